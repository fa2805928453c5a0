"""Whether a problem makes sense; `validate` names the first fault, whose it is, and a way out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from unicron.planner.errors import BadProblem
from unicron.planner.pricing import Ground, ground, running_milli, standing, transition_ms
from unicron.planner.problem import (
    Layout,
    LayoutOption,
    NodeSupply,
    PlanProblem,
    Slot,
    TaskDemand,
    TenantQuota,
)

# Limits. Together they keep every tie-break sum of `objective.py` below 2**53 (10_000 tasks times
# 10_000 ranks times 1_000_000 devices is 10**14); the values themselves are bounded per problem.
TASKS_MAX = 10_000
NODES_MAX = 200_000
OPTIONS_MAX = 100_000
DEVICES_MAX = 1_000_000
QUOTAS_MAX = 10_000
# Doubles are exact up to here, and CP-SAT reports its objective as a double.
EXACT_MAX = 2**53


def validate(problem: PlanProblem) -> None:
    """Raise `BadProblem` at the first value that makes no sense."""
    _instance("problem", problem, PlanProblem)
    _integer("computed_at", problem.computed_at, 0, EXACT_MAX)
    _integer("expected_run_ms", problem.expected_run_ms, 1, EXACT_MAX)
    _integer("node_mtbf_ms", problem.node_mtbf_ms, 0, EXACT_MAX)
    _integer("repair_ms", problem.repair_ms, 0, EXACT_MAX)
    _integer("link_bytes_per_s", problem.link_bytes_per_s, 0, EXACT_MAX)
    _count("nodes", problem.nodes, NODES_MAX)
    _count("tasks", problem.tasks, TASKS_MAX)
    for i, node in enumerate(problem.nodes):
        _check_node(f"nodes[{i}]", node)
    if sum(len(node.devices) for node in problem.nodes) > DEVICES_MAX:
        raise BadProblem("nodes", f"have more than {DEVICES_MAX} devices", "give fewer nodes")
    _distinct("nodes", "node", (node.node for node in problem.nodes), "list each node once")
    _check_segments(problem.nodes)
    for i, task in enumerate(problem.tasks):
        _check_task(f"tasks[{i}]", task)
    _distinct("tasks", "task", (task.task for task in problem.tasks), "list each task once")
    _count("quotas", problem.quotas, QUOTAS_MAX)
    for i, quota in enumerate(problem.quotas):
        _check_quota(f"quotas[{i}]", quota)
    _distinct(
        "quotas",
        "tenant and kind",
        ((quota.tenant, quota.kind) for quota in problem.quotas),
        "give one limit for each",
    )
    _check_holders(problem.tasks)
    _check_tensor_sizes(problem.tasks)
    _check_quota_kinds(problem)
    _check_magnitude(problem)


def _check_node(path: str, node: NodeSupply) -> None:
    _instance(path, node, NodeSupply)
    _name(f"{path}.node", node.node)
    _count(f"{path}.devices", node.devices, DEVICES_MAX)
    for j, device in enumerate(node.devices):
        _integer(f"{path}.devices[{j}]", device, 0, DEVICES_MAX)
    _distinct(f"{path}.devices", "device", node.devices, "list each healthy device once")
    _text(f"{path}.kind", node.kind)
    _text(f"{path}.rack", node.rack)
    _text(f"{path}.segment", node.segment)
    _boolean(f"{path}.draining", node.draining)


def _check_segments(nodes: tuple[NodeSupply, ...]) -> None:
    segments: dict[str, str] = {}
    for i, node in enumerate(nodes):
        before = segments.setdefault(node.rack, node.segment)
        if node.rack and before != node.segment:
            raise BadProblem(
                f"nodes[{i}].segment",
                f"is {node.segment!r}, but rack {node.rack!r} is in {before!r} already",
                "a rack belongs to one segment; correct it or name the rack otherwise",
            )


def _check_quota(path: str, quota: TenantQuota) -> None:
    _name(f"{path}.tenant", quota.tenant)
    _integer(f"{path}.max_devices", quota.max_devices, 0, DEVICES_MAX)
    _text(f"{path}.kind", quota.kind)


def _check_task(path: str, task: TaskDemand) -> None:
    _instance(path, task, TaskDemand)
    _name(f"{path}.task", task.task)
    _integer(f"{path}.weight_milli", task.weight_milli, 1, EXACT_MAX)
    _integer(f"{path}.min_devices", task.min_devices, 0, DEVICES_MAX)
    _integer(f"{path}.max_devices", task.max_devices, 1, DEVICES_MAX)
    _integer(f"{path}.transition_ms", task.transition_ms, 0, EXACT_MAX)
    _integer(f"{path}.priority", task.priority, -EXACT_MAX, EXACT_MAX)
    _integer(f"{path}.state_bytes", task.state_bytes, 0, EXACT_MAX)
    _integer(f"{path}.min_gflops", task.min_gflops, 0, EXACT_MAX)
    _boolean(f"{path}.hit", task.hit)
    _text(f"{path}.tenant", task.tenant)
    _count(f"{path}.avoid", task.avoid, NODES_MAX)
    for j, node in enumerate(task.avoid):
        _name(f"{path}.avoid[{j}]", node)
    _distinct(f"{path}.avoid", "node", task.avoid, "list each node once")
    if task.min_devices > task.max_devices:
        raise BadProblem(
            f"{path}.min_devices",
            f"is {task.min_devices}, above max_devices {task.max_devices}",
            "lower the minimum or raise the maximum",
        )
    _count(f"{path}.options", task.options, OPTIONS_MAX)
    for j, option in enumerate(task.options):
        _check_option(f"{path}.options[{j}]", task, option)
    _distinct(
        f"{path}.options",
        "layout",
        ((option.kind, option.layout) for option in task.options),
        "give one throughput for each layout and kind",
    )
    if len({bool(option.kind) for option in task.options}) > 1:
        raise BadProblem(
            f"{path}.options",
            "some name a kind of device and some don't",
            "name the kind in all options of a task, or in none",
        )
    _check_placement(path, task)


def _check_layout(path: str, layout: Layout) -> None:
    _integer(f"{path}.tp", layout.tp, 1, DEVICES_MAX)
    _integer(f"{path}.pp", layout.pp, 1, DEVICES_MAX)
    _integer(f"{path}.dp", layout.dp, 1, DEVICES_MAX)


def _check_option(path: str, task: TaskDemand, option: LayoutOption) -> None:
    _check_layout(f"{path}.layout", option.layout)
    _text(f"{path}.kind", option.kind)
    _integer(f"{path}.throughput_gflops", option.throughput_gflops, 1, EXACT_MAX)
    if not task.min_devices <= option.layout.devices <= task.max_devices:
        raise BadProblem(
            f"{path}.layout",
            f"takes {option.layout.devices} devices, outside {task.min_devices} to "
            f"{task.max_devices} of task {task.task!r}",
            "offer only layouts between min_devices and max_devices",
        )


def _check_placement(path: str, task: TaskDemand) -> None:
    for j, slot in enumerate(task.placement):
        _name(f"{path}.placement[{j}].node", slot.node)
        _integer(f"{path}.placement[{j}].device", slot.device, 0, DEVICES_MAX)
    _text(f"{path}.current_kind", task.current_kind)
    if task.current is not None:
        _check_layout(f"{path}.current", task.current)
    elif task.current_kind:
        raise BadProblem(
            f"{path}.current_kind",
            f"is {task.current_kind!r} for a task that doesn't run",
            "leave it out, or say what the task runs",
        )
    held = 0 if task.current is None else task.current.devices
    if len(task.placement) != held:
        raise BadProblem(
            f"{path}.placement",
            f"names {len(task.placement)} slots where the current layout takes {held}",
            "name every slot the task holds, healthy or not, and none if it doesn't run",
        )


def _check_holders(tasks: tuple[TaskDemand, ...]) -> None:
    holders: dict[Slot, str] = {}
    for i, task in enumerate(tasks):
        for j, slot in enumerate(task.placement):
            if slot in holders:
                raise BadProblem(
                    f"tasks[{i}].placement[{j}]",
                    f"device {slot.node}/{slot.device} is held by {holders[slot]!r} already",
                    "a device has one holder; correct the placements",
                )
            holders[slot] = task.task


def _check_tensor_sizes(tasks: tuple[TaskDemand, ...]) -> None:
    """Packing groups of 2 and 4 into nodes is a matter of counting; groups of 2 and 3 is not."""
    sizes = sorted({option.layout.tp for task in tasks for option in task.options})
    for smaller, larger in pairwise(sizes):
        if larger % smaller:
            raise BadProblem(
                "tasks.options.layout.tp",
                f"tensor parallel sizes {smaller} and {larger} don't divide one another",
                "offer sizes that do, such as 1, 2, 4, 8",
            )


def _check_quota_kinds(problem: PlanProblem) -> None:
    """What a layout on any kind takes of one kind isn't known before it is placed."""
    limited = {quota.tenant: quota.kind for quota in problem.quotas if quota.kind}
    for i, task in enumerate(problem.tasks):
        if task.tenant in limited and any(not option.kind for option in task.options):
            raise BadProblem(
                f"tasks[{i}].options",
                f"name no kind of device, but tenant {task.tenant!r} has a quota of "
                f"{limited[task.tenant]!r}",
                "name the kind in the task's options, or give the quota for all kinds",
            )


def _check_magnitude(problem: PlanProblem) -> None:
    """Refuse problems whose objective could leave the exact range, naming the largest term."""
    total, largest, culprit = 0, 0, 0
    nodes = ground(problem)
    for i, task in enumerate(problem.tasks):
        bound = value_bound(problem, task, nodes)
        total += bound
        if bound > largest:
            largest, culprit = bound, i
    if total >= EXACT_MAX:
        raise BadProblem(
            f"tasks[{culprit}].weight_milli",
            f"the objective could reach {total}, of which this task {largest}; 2**53 is the limit",
            "lower weight_milli, transition_ms, state_bytes or throughputs, or raise "
            "expected_run_ms or link_bytes_per_s",
        )


def value_bound(problem: PlanProblem, task: TaskDemand, nodes: Ground) -> int:
    """The largest magnitude that one task's part of the objective can have."""
    fastest = max((option.throughput_gflops for option in task.options), default=0)
    lost = running_milli(task)
    if not lost:
        return task.weight_milli * fastest
    most = max(option.layout.devices for option in task.options)
    longest = transition_ms(problem, task, standing(task, nodes), most)
    return task.weight_milli * fastest + lost * longest // problem.expected_run_ms


def _instance(path: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise BadProblem(path, f"is a {type(value).__name__}", f"give a {kind.__name__}")


def _integer(path: str, value: object, low: int, high: int) -> None:
    # A struct built in Python isn't checked by msgspec: NaN, 1.5 and True arrive here as they are.
    if type(value) is not int:
        raise BadProblem(path, f"is {value!r}, no integer", "give an integer")
    if not low <= value <= high:
        # Python refuses to write out integers of more than some thousand digits.
        shown = f"is {value}" if value.bit_length() < 1000 else "is far too large"
        raise BadProblem(path, shown, f"give an integer from {low} to {high}")


def _text(path: str, value: object) -> None:
    if not isinstance(value, str):
        raise BadProblem(path, f"is {value!r}", "give a text, which may be empty")


def _boolean(path: str, value: object) -> None:
    if type(value) is not bool:
        raise BadProblem(path, f"is {value!r}", "give true or false")


def _name(path: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise BadProblem(path, f"is {value!r}", "give a name")


def _count(path: str, items: tuple[object, ...], limit: int) -> None:
    if not isinstance(items, tuple):
        raise BadProblem(path, f"is a {type(items).__name__}", "give a tuple")
    if len(items) > limit:
        raise BadProblem(path, f"has {len(items)} entries", f"give at most {limit}")


def _distinct(path: str, what: str, items: Iterable[object], fix: str) -> None:
    seen: set[object] = set()
    for item in items:
        if item in seen:
            raise BadProblem(path, f"{what} {item!r} is there twice", fix)
        seen.add(item)
