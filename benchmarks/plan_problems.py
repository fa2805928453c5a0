"""Planning problems as large clusters have them, made from a seed: for the planner's benchmarks.

Tasks are GPT models of 1.3 to 530 billion parameters; what a layout of them achieves comes from the
planner's cost model. Nodes have 8 devices and stand in racks of 32, 8 racks to a segment. Everybody
runs what a plan for an idle cluster gave them, on nodes in a row but for a share of them whose
owners were shuffled. Then a node is lost.

With side constraints half of the nodes are of another kind, most tasks may use both, eight tenants
have quotas, every task has a floor, a few have a floor by speed, a fifth avoid some nodes, and two
nodes are draining.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import msgspec

from unicron.planner import LayoutOption, NodeSupply, PlanProblem, Slot, TaskDemand, TenantQuota
from unicron.planner.choosing import choose
from unicron.planner.cost import (
    Choices,
    Training,
    Transformer,
    accelerator,
    layout_table,
    options,
    pareto,
)
from unicron.planner.objective import Choice, board

NODE, RACK, SEGMENT = 8, 32, 8
KINDS = ("h100", "a100-80gb")
TENANTS = 8
#: Device-seconds between failures of a large cluster; what a device receives state with.
DEVICE_SECONDS, LINK = 180_000_000, 20_000_000_000
#: layers, hidden size, heads, devices of a replica at least; weight of such a model in the mix
MODELS = {
    "1.3b": (24, 2048, 16),
    "2.7b": (32, 2560, 32),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
    "175b": (96, 12288, 96),
    "530b": (105, 20480, 128),
}
BATCHES = (512, 1024, 2048)
SHUFFLED = 0.15


@cache
def _offer(name: str, batch: int, kind: str, most: int) -> tuple[tuple[LayoutOption, ...], int]:
    """Layouts in whole nodes that are worth their devices, and bytes of state of one rank."""
    layers, hidden, heads = MODELS[name]
    model = Transformer(layers=layers, hidden=hidden, heads=heads, sequence=2048, vocabulary=50257)
    training = Training(global_batch=batch, exact=False)
    table = layout_table(
        model,
        training,
        accelerator(kind),
        most,
        Choices(virtual=(1,), micro_batches=(1, 2), distributed_optimizer=(True,)),
        min_devices=NODE,
    )
    whole = pareto(choice for choice in table if choice.devices % NODE == 0)
    return options(whole, kind), max((choice.state_bytes for choice in whole), default=0)


def plan_problem(tasks: int, gpus: int, seed: int, *, sides: bool) -> PlanProblem:
    """A cluster of `gpus` devices just after it has lost a node; `sides`: with side constraints."""
    chance = random.Random(seed)
    nodes = _nodes(gpus // NODE, KINDS if sides else KINDS[:1])
    demands = [_task(chance, i, tasks, gpus, sides=sides) for i in range(tasks)]
    idle = PlanProblem(
        computed_at=1,
        nodes=nodes,
        tasks=tuple(demands),
        expected_run_ms=1000 * DEVICE_SECONDS // gpus,
        link_bytes_per_s=LINK,
    )
    prepared = board(idle)
    picks, _ = choose(prepared)
    running = _settle(chance, nodes, prepared.tasks, picks)
    lost = chance.choice([slot.node for task in running for slot in task.placement])
    nodes = tuple(node for node in nodes if node.node != lost)
    running = [
        msgspec.structs.replace(task, hit=any(slot.node == lost for slot in task.placement))
        for task in running
    ]
    chance.shuffle(running)
    if not sides:
        return msgspec.structs.replace(idle, nodes=nodes, tasks=tuple(running))
    draining = {node.node for node in chance.sample(nodes, 2)}
    return msgspec.structs.replace(
        idle,
        nodes=tuple(
            msgspec.structs.replace(node, draining=node.node in draining) for node in nodes
        ),
        tasks=tuple(_avoiding(chance, nodes, task) for task in running),
        quotas=_quotas(running),
    )


def _nodes(count: int, kinds: Sequence[str]) -> tuple[NodeSupply, ...]:
    """The first part of the racks is of the first kind, the next of the next."""
    return tuple(
        NodeSupply(
            node=f"n{i:05d}",
            kind=kinds[i * len(kinds) // count],
            devices=tuple(range(NODE)),
            rack=f"r{i // RACK:03d}",
            segment=f"s{i // RACK // SEGMENT:02d}",
        )
        for i in range(count)
    )


def _task(chance: random.Random, i: int, tasks: int, gpus: int, *, sides: bool) -> TaskDemand:
    share = gpus // tasks
    fitting = [name for name in MODELS if _offer(name, BATCHES[0], KINDS[0], share)[0]]
    name, batch = chance.choice(fitting), chance.choice(BATCHES)
    most = min(gpus // 2, max(2 * NODE, int(share * chance.uniform(1, 4))))
    kinds = KINDS if sides and chance.random() < 0.75 else chance.choices(KINDS[: 1 + sides])
    offers = [_offer(name, batch, kind, most) for kind in kinds]
    found = tuple(option for offer, _ in offers for option in offer)
    smallest = min(option.layout.devices for option in found)
    speed = max(option.throughput_gflops for option in found)
    return TaskDemand(
        task=f"t{i:03d}",
        weight_milli=chance.randint(500, 2000),
        min_devices=smallest if sides else 0,
        max_devices=most,
        options=found,
        transition_ms=chance.randint(20_000, 120_000),
        state_bytes=max(state for _, state in offers),
        priority=chance.randint(0, 3) if sides else 0,
        min_gflops=speed // 8 if sides and chance.random() < 0.1 else 0,
        tenant=f"tenant{i % TENANTS}" if sides else "",
    )


def _settle(
    chance: random.Random,
    nodes: Sequence[NodeSupply],
    tasks: Sequence[TaskDemand],
    picks: Sequence[Choice],
) -> list[TaskDemand]:
    """Nodes in a row for each task, with a share of the owners shuffled among their kind."""
    free = {kind: [node.node for node in nodes if node.kind == kind] for kind in KINDS}
    for names in free.values():
        moved = chance.sample(range(len(names)), int(SHUFFLED * len(names)))
        for here, there in pairwise(moved):
            names[here], names[there] = names[there], names[here]
    running = []
    for task, pick in zip(tasks, picks, strict=True):
        mine = [free[pick.kind].pop() for _ in range(pick.devices // NODE)]
        held = tuple(Slot(node=name, device=d) for name in mine for d in range(NODE))
        running.append(
            msgspec.structs.replace(
                task, current=pick.layout, current_kind=pick.kind, placement=held
            )
        )
    return running


def _avoiding(chance: random.Random, nodes: Sequence[NodeSupply], task: TaskDemand) -> TaskDemand:
    """A fifth of the tasks avoid a few nodes, none of which they hold."""
    if chance.random() > 0.2:
        return task
    held = {slot.node for slot in task.placement}
    names = [node.node for node in chance.sample(nodes, min(4, len(nodes)))]
    return msgspec.structs.replace(task, avoid=tuple(name for name in names if name not in held))


def _quotas(tasks: Sequence[TaskDemand]) -> tuple[TenantQuota, ...]:
    """A little more than each tenant holds; for half of them of one kind too."""
    quotas = []
    for number in range(TENANTS):
        tenant = f"tenant{number}"
        held = [task for task in tasks if task.tenant == tenant]
        total = sum(len(task.placement) for task in held)
        quotas.append(TenantQuota(tenant=tenant, max_devices=total + total // 20))
        if number % 2:
            first = sum(len(task.placement) for task in held if task.current_kind == KINDS[0])
            quotas.append(TenantQuota(tenant=tenant, kind=KINDS[0], max_devices=first))
    return tuple(quotas)
