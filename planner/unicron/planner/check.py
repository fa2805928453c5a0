"""Is a plan fit to be carried out? Written apart from everything that makes plans.

It shares only the data types with them, so that a mistake would have to be made twice. What is
applied has passed here, wherever it came from.

The rules are those of `problem.py`, `plan.py`, and the formulas at the head of `pricing.py`;
whether state comes from where it should is judged in `check_state.py`. What is good about a plan
(few moves, replicas apart) is no rule: whoever wants less may have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import compress

import msgspec

from unicron.planner.check_state import Fault, wrong_transfers
from unicron.planner.plan import Assignment, Plan, Transfer
from unicron.planner.problem import Layout, NodeSupply, PlanProblem, Slot, TaskDemand, digest

SOURCES = ("local", "dp", "cpsat", "equal", "weighted", "sized")
_NONE: frozenset[int] = frozenset()


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong; `task` is empty where it concerns the plan as a whole."""

    kind: str
    task: str = ""
    detail: str


def check(problem: PlanProblem, plan: Plan) -> tuple[Violation, ...]:
    """Everything that is wrong with a plan for a valid problem; empty if it can be applied."""
    demands = {task.task: task for task in problem.tasks}
    nodes = {node.node: node for node in problem.nodes}
    known = [
        (demands[assignment.task], assignment)
        for assignment in plan.assignments
        if assignment.task in demands
    ]
    healthy = _healthy(problem)
    alive = _alive(known, plan.transfers, healthy)
    return (
        *_check_origin(problem, plan),
        *_check_task_list(demands, plan),
        *_check_slots(plan, healthy),
        *(v for demand, given in known for v in _check_assignment(demand, given)),
        *(v for demand, given in known for v in _check_nodes(demand, given, nodes, plan.source)),
        *_check_quotas(problem, known, nodes),
        *_check_relaxed(known, plan),
        *_check_figures(problem, known, nodes, alive, plan),
        *(_violation(fault) for fault in wrong_transfers(known, plan.transfers, alive)),
    )


def _violation(fault: Fault) -> Violation:
    return Violation(kind=fault.kind, task=fault.task, detail=fault.detail)


def _rests(demand: TaskDemand, given: Assignment) -> bool:
    """Whether the assignment is exactly what the task has."""
    return (
        given.layout == demand.current
        and given.kind == demand.current_kind
        and given.slots == demand.placement
    )


def _alive(
    known: list[tuple[TaskDemand, Assignment]],
    transfers: tuple[Transfer, ...],
    healthy: dict[str, frozenset[int]],
) -> dict[str, list[bool]]:
    """Which of the slots that a task holds are healthy devices, for each task that changes over or
    has transfers: nothing depends on it for the others."""
    receiving = {transfer.task for transfer in transfers}
    return {
        demand.task: [slot.device in healthy.get(slot.node, _NONE) for slot in demand.placement]
        for demand, given in known
        if demand.hit or demand.task in receiving or not _rests(demand, given)
    }


def _healthy(problem: PlanProblem) -> dict[str, frozenset[int]]:
    """Devices by node; nodes that are alike share one set."""
    shared = {devices: frozenset(devices) for devices in {n.devices for n in problem.nodes}}
    return {node.node: shared[node.devices] for node in problem.nodes}


def _name(slot: Slot) -> str:
    return f"{slot.node}/{slot.device}"


def _check_origin(problem: PlanProblem, plan: Plan) -> Iterator[Violation]:
    expected = digest(problem)
    if plan.problem_digest != expected:
        yield Violation(
            kind="problem-digest",
            detail=f"made for problem {plan.problem_digest}, this is {expected}",
        )
    if plan.computed_at != problem.computed_at:
        yield Violation(
            kind="computed-at",
            detail=f"made at sequence {plan.computed_at}, this is {problem.computed_at}",
        )
    if plan.source not in SOURCES:
        yield Violation(kind="source", detail=f"{plan.source!r} is none of {', '.join(SOURCES)}")


def _check_task_list(demands: dict[str, TaskDemand], plan: Plan) -> Iterator[Violation]:
    counts = Counter(assignment.task for assignment in plan.assignments)
    for task, count in counts.items():
        if task not in demands:
            yield Violation(kind="task-unknown", task=task, detail="the problem has no such task")
        if count > 1:
            yield Violation(kind="task-duplicate", task=task, detail=f"assigned {count} times")
    for task in demands:
        if task not in counts:
            yield Violation(kind="task-missing", task=task, detail="has no assignment")


def _check_slots(plan: Plan, healthy: dict[str, frozenset[int]]) -> Iterator[Violation]:
    for given in plan.assignments:
        for slot in [s for s in given.slots if s.device not in healthy.get(s.node, _NONE)]:
            if slot.node not in healthy:
                yield Violation(
                    kind="node-unknown", task=given.task, detail=f"no node of {_name(slot)}"
                )
            else:
                yield Violation(
                    kind="slot-unhealthy", task=given.task, detail=f"{_name(slot)} isn't healthy"
                )
    total = sum([len(given.slots) for given in plan.assignments])
    if len(set().union(*[given.slots for given in plan.assignments])) == total:
        return
    holder: dict[Slot, str] = {}
    for given in plan.assignments:
        for slot in given.slots:
            if slot in holder:
                yield Violation(
                    kind="slot-shared",
                    task=given.task,
                    detail=f"{_name(slot)} is given to {holder[slot]} already",
                )
            holder[slot] = given.task


def _check_assignment(demand: TaskDemand, given: Assignment) -> Iterator[Violation]:
    """The layout by itself, and whether the slots are as many and grouped as it says."""
    layout, task = given.layout, given.task
    if layout is None:
        if given.slots:
            yield Violation(
                kind="slot-count", task=task, detail=f"parked with {len(given.slots)} slots"
            )
        if given.kind:
            yield Violation(kind="kind", task=task, detail=f"parked, but on {given.kind!r}")
        return
    size = layout.tp * layout.pp * layout.dp
    if len(given.slots) != size:
        yield Violation(
            kind="slot-count",
            task=task,
            detail=f"{len(given.slots)} slots for a layout of {size}",
        )
    if _speed(demand, layout, given.kind) == 0:
        on = f" on {given.kind!r}" if given.kind else ""
        yield Violation(kind="layout-unknown", task=task, detail=f"{layout}{on} is no option")
    if size < demand.min_devices:
        yield Violation(kind="below-min", task=task, detail=f"{size} < {demand.min_devices}")
    if size > demand.max_devices:
        yield Violation(kind="above-max", task=task, detail=f"{size} > {demand.max_devices}")
    for first in _split_groups(given.slots, layout.tp):
        on = ", ".join(sorted({slot.node for slot in given.slots[first : first + layout.tp]}))
        yield Violation(
            kind="group-split",
            task=task,
            detail=f"tensor parallel group at rank {first} is on {on}",
        )


def _split_groups(slots: tuple[Slot, ...], tp: int) -> list[int]:
    """The first ranks of tensor parallel groups that are on several nodes."""
    if tp < 2:
        return []
    names = [slot.node for slot in slots]
    firsts = names[::tp]
    if all(names[i::tp] == firsts[: len(names[i::tp])] for i in range(1, tp)):
        return []
    return [i for i in range(0, len(names), tp) if len(set(names[i : i + tp])) > 1]


def _check_nodes(
    demand: TaskDemand, given: Assignment, nodes: dict[str, NodeSupply], source: str
) -> Iterator[Violation]:
    """Whether the task may be where its slots are.

    The local answer leaves who holds something on a draining node there.
    """
    used = {slot.node for slot in given.slots}
    for name in sorted(used.intersection(demand.avoid)):
        yield Violation(kind="node-avoided", task=given.task, detail=f"it avoids {name}")
    used = {name for name in used if name in nodes}
    if given.kind:
        for name in sorted(used):
            if nodes[name].kind != given.kind:
                detail = f"{name} has {nodes[name].kind!r} devices, not {given.kind!r}"
                yield Violation(kind="device-kind", task=given.task, detail=detail)
    draining = {name for name in used if nodes[name].draining}
    if draining:
        may = set(demand.placement) if source == "local" else set()
        for slot in given.slots:
            if slot.node in draining and slot not in may:
                yield Violation(
                    kind="node-draining", task=given.task, detail=f"{_name(slot)} is to be emptied"
                )


def _check_quotas(
    problem: PlanProblem,
    known: list[tuple[TaskDemand, Assignment]],
    nodes: dict[str, NodeSupply],
) -> Iterator[Violation]:
    for quota in problem.quotas:
        held = 0
        for demand, given in known:
            if demand.tenant != quota.tenant:
                continue
            if quota.kind:
                names = [slot.node for slot in given.slots if slot.node in nodes]
                held += sum(nodes[name].kind == quota.kind for name in names)
            else:
                held += len(given.slots)
        if held > quota.max_devices:
            of = f" of kind {quota.kind!r}" if quota.kind else ""
            yield Violation(
                kind="quota",
                detail=f"tenant {quota.tenant!r} holds {held} devices{of}, above "
                f"{quota.max_devices}",
            )


def _check_relaxed(known: list[tuple[TaskDemand, Assignment]], plan: Plan) -> Iterator[Violation]:
    unmet = set()
    for demand, given in known:
        if demand.min_devices == 0 and demand.min_gflops == 0:
            continue
        speed = 0 if given.layout is None else _speed(demand, given.layout, given.kind)
        if given.layout is None or speed < demand.min_gflops:
            unmet.add(demand.task)
    for task in sorted(unmet - set(plan.relaxed)):
        yield Violation(kind="relaxed", task=task, detail="its floor isn't met, unsaid")
    for task in sorted(set(plan.relaxed) - unmet):
        yield Violation(kind="relaxed", task=task, detail="named as relaxed without need")
    for task, count in Counter(plan.relaxed).items():
        if count > 1:
            yield Violation(kind="relaxed", task=task, detail=f"named {count} times")


def _check_figures(
    problem: PlanProblem,
    known: list[tuple[TaskDemand, Assignment]],
    nodes: dict[str, NodeSupply],
    alive: dict[str, list[bool]],
    plan: Plan,
) -> Iterator[Violation]:
    waf = value = 0
    for demand, given in known:
        runs = 0
        if given.layout is not None:
            runs = demand.weight_milli * _speed(demand, given.layout, given.kind)
        waf += runs
        value += runs
        if demand.hit or not _rests(demand, given):
            value -= _price(problem, demand, given, nodes, alive[demand.task])
    if plan.waf_milli != waf:
        yield Violation(kind="waf", detail=f"says {plan.waf_milli}, is {waf}")
    if plan.value_gflops_milli != value:
        yield Violation(kind="value", detail=f"says {plan.value_gflops_milli}, is {value}")


def _speed(demand: TaskDemand, layout: Layout, kind: str) -> int:
    """GFLOP/s of an option; 0 if there is no such option."""
    for option in demand.options:
        if option.layout == layout and option.kind == kind:
            return option.throughput_gflops
    return 0


def _price(
    problem: PlanProblem,
    demand: TaskDemand,
    given: Assignment,
    nodes: dict[str, NodeSupply],
    alive: list[bool],
) -> int:
    """F(t, x) * D_transition / D_running: what it costs a task to change over."""
    if demand.current is None:
        return 0
    same_shape = given.layout == demand.current and given.kind == demand.current_kind
    lost = demand.weight_milli * _speed(demand, demand.current, demand.current_kind)
    receiving = 0
    if given.layout is not None:
        old, new = demand.current, given.layout
        receiving = new.tp * new.pp * new.dp
        if (new.tp, new.pp) == (old.tp, old.pp):
            keeps = sum(
                node.kind == given.kind or not given.kind
                for slot in compress(demand.placement, alive)
                for node in [nodes[slot.node]]
                if not node.draining and slot.node not in demand.avoid
            )
            receiving = max(
                receiving - keeps, int(same_shape and given.slots != demand.placement), 0
            )
    senders = sum(alive)
    each = 0
    if problem.link_bytes_per_s:
        each = _up(1000 * demand.state_bytes, problem.link_bytes_per_s)
    rounds = _up(receiving, senders) if senders else min(receiving, 1)
    return lost * (demand.transition_ms + rounds * each) // problem.expected_run_ms


def _up(amount: int, per: int) -> int:
    """The quotient, rounded up."""
    return (amount + per - 1) // per
