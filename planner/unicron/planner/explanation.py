"""What there is to say about a plan, as data: what it changes and what each change is worth, what
kept it from being worth more, the next best plan, and what more devices would bring.

Alternatives are found by the dynamic programme, each with one thing forbidden or added, and are
valued on the problem as it is. With many tasks only those the plan touches are looked at, so that
the time stays within bounds; it is meant for people and never stands in a recovery's way.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from unicron.planner.dynamic import dynamic_plan
from unicron.planner.local import local_plan
from unicron.planner.plan import Assignment, Plan
from unicron.planner.pricing import (
    Ground,
    evaluate,
    ground,
    has_floor,
    is_changed,
    price,
    receivers,
    relaxed,
    running_milli,
    standing,
    throughput,
    transition_ms,
)
from unicron.planner.problem import Layout, NodeSupply, PlanProblem, TaskDemand
from unicron.planner.spares import free_nodes
from unicron.planner.whatif import given_by

#: Tasks of which it is worked out what another size would be worth; beyond it so many of those that
#: change, and fewer on clusters of more devices than that.
_TASKS_MAX, _TASKS_MAX_IF_LARGE = 24, 4
_LARGE = 5_000
#: A priority before all others.
_FIRST = 2**52
#: A device that isn't there yet, to see what it would bring. No node of anybody's is called so.
_IMAGINED = "\x00one more"


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """One task before and after. Values in thousandths of a weighted GFLOP/s.

    Devices: `kept` by the task, `gained`, `released` in good order, `lost` with their node.
    `received`: how many are sent state, `bytes` together; `transition_ms` how long the task stands
    still. `cost_milli` is what that costs, spread over D_running. `worth_milli`: by how much the
    whole plan is worth more than the best one in which this task stays as it is; None if it can't
    stay, if it does, or if that wasn't worked out.
    """

    task: str
    hit: bool
    changed: bool
    before: Layout | None
    kind_before: str
    after: Layout | None
    kind_after: str
    devices_before: int
    devices_after: int
    kept: int
    gained: int
    released: int
    lost: int
    received: int
    bytes: int
    transition_ms: int
    cost_milli: int
    waf_before_milli: int
    waf_after_milli: int
    worth_milli: int | None = None


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """Something that binds: with more of it the plan could be worth more.

    `what`: ``devices`` of a kind, ``quota`` of a tenant, ``largest`` layout of a task, ``floor`` of
    a task, ``drain`` of a node. `used` of `limit` in devices.
    """

    what: str
    name: str
    used: int
    limit: int


class RunnerUp(msgspec.Struct, frozen=True, kw_only=True):
    """The best plan found that gives some task another size, layout or kind: `loss_milli` less
    worth (negative: more, as when the local answer was applied at once and a better one is known).
    """

    changes: tuple[tuple[str, int, int], ...]
    value_milli: int
    waf_milli: int
    loss_milli: int
    relaxed: tuple[str, ...]


class ShadowPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What `devices` more of a kind on one more node would add to the value."""

    kind: str
    devices: int
    gain_milli: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `failure_milli`: by how much the failure lowered the WAF; None if nothing is hit.
    `optimal`: whether no plan is better; None if the method can't say. `spares`: nodes that are
    left free on purpose."""

    source: str
    computed_at: int
    optimal: bool | None
    value_milli: int
    waf_before_milli: int
    waf_after_milli: int
    change_cost_milli: int
    failure_milli: int | None
    devices_healthy: int
    devices_used: int
    tasks: tuple[TaskChange, ...]
    relaxed: tuple[str, ...]
    bounds: tuple[Bound, ...]
    runner_up: RunnerUp | None
    shadow_prices: tuple[ShadowPrice, ...]
    spares: tuple[str, ...] = ()


def explanation(problem: PlanProblem, plan: Plan, *, alternatives: bool = True) -> Explanation:
    """Look at a plan that passes `check` for the problem. Without `alternatives` nothing is solved
    anew: no runner-up, no shadow prices, no worth of single moves. Raises `BadProblem` for a plan
    of other tasks."""
    nodes = ground(problem)
    demands = {task.task: task for task in problem.tasks}
    given = given_by(plan, problem)
    before = sum(running_milli(task) for task in problem.tasks)
    others = _others(problem, plan, nodes) if alternatives else None
    statistics = dict(plan.statistics)
    return Explanation(
        source=plan.source,
        computed_at=plan.computed_at,
        optimal=bool(statistics["optimal"]) if "optimal" in statistics else None,
        value_milli=plan.value_gflops_milli,
        waf_before_milli=before,
        waf_after_milli=plan.waf_milli,
        change_cost_milli=plan.waf_milli - plan.value_gflops_milli,
        failure_milli=before - plan.waf_milli if any(t.hit for t in problem.tasks) else None,
        devices_healthy=sum(len(node.devices) for node in problem.nodes),
        devices_used=sum(len(assignment.slots) for assignment in plan.assignments),
        tasks=tuple(
            _change(problem, demands[name], assignment, nodes, _worth(plan, others, demands[name]))
            for name, assignment in given.items()
        ),
        relaxed=plan.relaxed,
        bounds=tuple(_bounds(problem, given)),
        runner_up=_runner_up(plan, others) if others is not None else None,
        shadow_prices=tuple(_shadow_prices(problem, plan)) if alternatives else (),
        spares=free_nodes(problem, plan),
    )


def _change(
    problem: PlanProblem,
    task: TaskDemand,
    assignment: Assignment,
    nodes: Ground,
    worth_milli: int | None,
) -> TaskChange:
    held, given = set(task.placement), set(assignment.slots)
    healthy = {slot for slot in held if slot.device in nodes.devices.get(slot.node, ())}
    changed = is_changed(task, assignment)
    now = standing(task, nodes)
    receiving = receivers(task, now, assignment.layout, assignment.kind) if changed else 0
    return TaskChange(
        task=task.task,
        hit=task.hit,
        changed=changed,
        before=task.current,
        kind_before=task.current_kind,
        after=assignment.layout,
        kind_after=assignment.kind,
        devices_before=len(held),
        devices_after=len(given),
        kept=len(held & given),
        gained=len(given - held),
        released=len(healthy - given),
        lost=len(held) - len(healthy),
        received=receiving,
        bytes=receiving * task.state_bytes,
        transition_ms=transition_ms(problem, task, now, receiving)
        if changed and task.current is not None
        else 0,
        cost_milli=price(problem, task, assignment, nodes),
        waf_before_milli=running_milli(task),
        waf_after_milli=task.weight_milli * throughput(task, assignment.layout, assignment.kind),
        worth_milli=worth_milli,
    )


# --- What binds ----------------------------------------------------------------------------------


def _bounds(problem: PlanProblem, given: dict[str, Assignment]) -> Iterator[Bound]:
    kinds = {node.node: node.kind for node in problem.nodes}
    supply: dict[str, int] = {}
    used: dict[str, int] = {}
    for node in problem.nodes:
        if not node.draining:
            supply[node.kind] = supply.get(node.kind, 0) + len(node.devices)
    for assignment in given.values():
        for slot in assignment.slots:
            used[kinds[slot.node]] = used.get(kinds[slot.node], 0) + 1
    for kind in sorted(supply):
        # Less than the smallest group left over is as good as nothing left.
        spare = supply[kind] - used.get(kind, 0)
        if spare < _smallest_group(problem, kind):
            yield Bound(what="devices", name=kind, used=used.get(kind, 0), limit=supply[kind])
    yield from _quotas(problem, given, kinds)
    for task in problem.tasks:
        size = len(given[task.task].slots)
        largest = max((o.layout.devices for o in task.options), default=0)
        if size and size == largest:
            yield Bound(what="largest", name=task.task, used=size, limit=largest)
        elif has_floor(task) and size and size == _least(task):
            yield Bound(what="floor", name=task.task, used=size, limit=size)
    for node in problem.nodes:
        if node.draining:
            yield Bound(what="drain", name=node.node, used=0, limit=len(node.devices))


def _smallest_group(problem: PlanProblem, kind: str) -> int:
    return min(
        (o.layout.tp for t in problem.tasks for o in t.options if o.kind in ("", kind)), default=1
    )


def _least(task: TaskDemand) -> int:
    """Devices of the smallest layout that meets the floor."""
    return min(
        (o.layout.devices for o in task.options if o.throughput_gflops >= task.min_gflops),
        default=0,
    )


def _quotas(
    problem: PlanProblem, given: dict[str, Assignment], kinds: dict[str, str]
) -> Iterator[Bound]:
    for quota in problem.quotas:
        used = sum(
            1
            for task in problem.tasks
            if task.tenant == quota.tenant
            for slot in given[task.task].slots
            if quota.kind in ("", kinds[slot.node])
        )
        if used + _smallest_group(problem, quota.kind) > quota.max_devices:
            name = f"{quota.tenant} on {quota.kind}" if quota.kind else quota.tenant
            yield Bound(what="quota", name=name, used=used, limit=quota.max_devices)


# --- What else there was -------------------------------------------------------------------------


class _Others(msgspec.Struct, frozen=True, kw_only=True):
    """Other plans, valued on the problem as it is. `local`; by task those in which it has another
    layout than it got, and those in which it stays as it is."""

    local: Plan
    without: dict[str, Plan]
    staying: dict[str, Plan]

    def all(self) -> tuple[Plan, ...]:
        return (self.local, *self.without.values(), *self.staying.values())


def _others(problem: PlanProblem, plan: Plan, nodes: Ground) -> _Others:
    given = {assignment.task: assignment for assignment in plan.assignments}
    touched = [t for t in problem.tasks if is_changed(t, given[t.task])]
    large = sum(len(node.devices) for node in problem.nodes) > _LARGE
    most = _TASKS_MAX_IF_LARGE if large else _TASKS_MAX
    looked_at = problem.tasks if len(problem.tasks) <= most else touched[:most]
    without, staying = {}, {}
    for task in looked_at:
        narrowed = _without(task, given[task.task])
        if narrowed is not None:
            without[task.task] = _solved(problem, task, narrowed, nodes)
        moved = is_changed(task, given[task.task]) and not task.hit
        if moved and standing(task, nodes).settled:
            staying[task.task] = _solved(problem, task, _fixed(task), nodes)
    return _Others(local=local_plan(problem), without=without, staying=staying)


def _without(task: TaskDemand, chosen: Assignment) -> TaskDemand | None:
    """The task that can't have what it got; None if that leaves it nothing else.

    With what it runs now it loses the price of its change, the same for every other size: so the
    choice among them stays right, and the value is taken afterwards on the problem as it is.
    """
    if chosen.layout is None:
        return _insisting(task) if task.options else None
    options = tuple(o for o in task.options if (o.layout, o.kind) != (chosen.layout, chosen.kind))
    return msgspec.structs.replace(task, options=options) if options else None


def _fixed(task: TaskDemand) -> TaskDemand:
    """The task that may run nothing but what it runs."""
    now = (task.current, task.current_kind)
    options = tuple(o for o in task.options if (o.layout, o.kind) == now)
    return _insisting(msgspec.structs.replace(task, options=options))


def _insisting(task: TaskDemand) -> TaskDemand:
    """The task that must run, before all others."""
    return msgspec.structs.replace(task, min_devices=max(1, task.min_devices), priority=_FIRST)


def _solved(problem: PlanProblem, task: TaskDemand, other: TaskDemand, nodes: Ground) -> Plan:
    tasks = tuple(other if t is task else t for t in problem.tasks)
    plan = dynamic_plan(msgspec.structs.replace(problem, tasks=tasks))
    return _valued(problem, plan, nodes)


def _valued(problem: PlanProblem, plan: Plan, nodes: Ground) -> Plan:
    value, waf = evaluate(problem, plan.assignments, nodes)
    given = {assignment.task: assignment for assignment in plan.assignments}
    return msgspec.structs.replace(
        plan, value_gflops_milli=value, waf_milli=waf, relaxed=relaxed(problem.tasks, given)
    )


def _worth(plan: Plan, others: _Others | None, task: TaskDemand) -> int | None:
    """What the task's move brings: against the best plan in which it keeps what it holds."""
    other = others.staying.get(task.task) if others is not None else None
    if other is None or len(other.relaxed) > len(plan.relaxed):
        return None
    return plan.value_gflops_milli - other.value_gflops_milli


def _runner_up(plan: Plan, others: _Others) -> RunnerUp | None:
    chosen = {a.task: (a.layout, a.kind) for a in plan.assignments}
    different = [
        other
        for other in others.all()
        if any((a.layout, a.kind) != chosen[a.task] for a in other.assignments)
    ]
    if not different:
        return None
    best = max(different, key=lambda other: (-len(other.relaxed), other.value_gflops_milli))
    sizes = {a.task: len(a.slots) for a in plan.assignments}
    return RunnerUp(
        changes=tuple(
            (a.task, sizes[a.task], len(a.slots))
            for a in best.assignments
            if (a.layout, a.kind) != chosen[a.task]
        ),
        value_milli=best.value_gflops_milli,
        waf_milli=best.waf_milli,
        loss_milli=plan.value_gflops_milli - best.value_gflops_milli,
        relaxed=best.relaxed,
    )


def _shadow_prices(problem: PlanProblem, plan: Plan) -> Iterator[ShadowPrice]:
    """One device more, and a whole node more, of each kind; D_running is left as it is, so that
    only the devices count."""
    base = dynamic_plan(problem)
    reference = min(plan.relaxed, base.relaxed, key=len)
    for kind in sorted({node.kind for node in problem.nodes}):
        whole = max(len(node.devices) for node in problem.nodes if node.kind == kind)
        for devices in sorted({1, whole}):
            node = NodeSupply(node=_IMAGINED, kind=kind, devices=tuple(range(devices)))
            more = dynamic_plan(msgspec.structs.replace(problem, nodes=(*problem.nodes, node)))
            best = max(base.value_gflops_milli, plan.value_gflops_milli)
            gain = more.value_gflops_milli - best
            # A floor that can be met then costs value and is worth it: no figure says that.
            if len(more.relaxed) == len(reference):
                yield ShadowPrice(kind=kind, devices=devices, gain_milli=max(0, gain))
