"""Ways to spoil a good plan, each wrong by construction, with what must be found.

An operator gets a problem, a plan that is right for it and a source of chance, and gives the
spoiled pair; None where the plan has nothing of the sort to spoil. Where the problem is changed
instead, the plan gets its new digest, so that the digest can't give it away.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

from tests.planner.cases import change
from unicron.planner import Assignment, Plan, PlanProblem, Slot, TenantQuota, Transfer, digest

Spoiled: TypeAlias = tuple[PlanProblem, Plan] | None
Operator: TypeAlias = Callable[[PlanProblem, Plan, random.Random], Spoiled]

OPERATORS: dict[str, tuple[Operator, str]] = {}


def finds(kind: str) -> Callable[[Operator], Operator]:
    """Register an operator; `kind` is one of the violations that must be found."""

    def register(operator: Operator) -> Operator:
        OPERATORS[operator.__name__] = operator, kind
        return operator

    return register


def put(plan: Plan, given: Assignment, **fields: object) -> Plan:
    """The plan with one assignment changed."""
    return change(
        plan,
        assignments=tuple(
            change(a, **fields) if a.task == given.task else a for a in plan.assignments
        ),
    )


def restamped(problem: PlanProblem, plan: Plan) -> tuple[PlanProblem, Plan]:
    return problem, change(plan, problem_digest=digest(problem))


def _running(plan: Plan, rng: random.Random) -> Assignment | None:
    running = [a for a in plan.assignments if a.layout is not None]
    return rng.choice(running) if running else None


def _with_slot(plan: Plan, given: Assignment, at: int, slot: Slot) -> Plan:
    return put(plan, given, slots=(*given.slots[:at], slot, *given.slots[at + 1 :]))


@finds("slot-count")
def drop_a_slot(problem, plan, rng):
    given = _running(plan, rng)
    return given and (problem, put(plan, given, slots=given.slots[:-1]))


@finds("slot-shared")
def give_a_slot_twice(problem, plan, rng):
    given = _running(plan, rng)
    if given is None or len(given.slots) < 2:
        return None
    return problem, _with_slot(plan, given, 0, given.slots[-1])


@finds("slot-shared")
def take_a_slot_of_another_task(problem, plan, rng):
    given = _running(plan, rng)
    others = [a.slots[0] for a in plan.assignments if a.slots and a is not given]
    return (problem, _with_slot(plan, given, 0, others[0])) if others else None


@finds("slot-unhealthy")
def use_a_device_that_is_not_healthy(problem, plan, rng):
    given = _running(plan, rng)
    return given and (problem, _with_slot(plan, given, 0, change(given.slots[0], device=77)))


@finds("node-unknown")
def use_a_node_that_is_not_there(problem, plan, rng):
    given = _running(plan, rng)
    return given and (problem, _with_slot(plan, given, 0, change(given.slots[0], node="n77")))


@finds("slot-unhealthy")
def break_a_device_in_use(problem, plan, rng):
    given = _running(plan, rng)
    if given is None:
        return None
    slot = given.slots[0]
    nodes = tuple(
        change(n, devices=tuple(d for d in n.devices if d != slot.device))
        if n.node == slot.node
        else n
        for n in problem.nodes
    )
    return restamped(change(problem, nodes=nodes), plan)


@finds("node-unknown")
def lose_a_node_in_use(problem, plan, rng):
    given = _running(plan, rng)
    if given is None:
        return None
    nodes = tuple(n for n in problem.nodes if n.node != given.slots[-1].node)
    return restamped(change(problem, nodes=nodes), plan)


@finds("group-split")
def swap_slots_of_groups_on_two_nodes(problem, plan, rng):
    for given in plan.assignments:
        tp = given.layout.tp if given.layout else 1
        last = len(given.slots) - 1
        if tp > 1 and given.slots[0].node != given.slots[last].node:
            turned = (given.slots[last], *given.slots[1:last], given.slots[0])
            return problem, put(plan, given, slots=turned)
    return None


@finds("node-avoided")
def avoid_a_node_in_use(problem, plan, rng):
    given = _running(plan, rng)
    if given is None:
        return None
    name = given.slots[0].node
    tasks = tuple(
        change(t, avoid=tuple({*t.avoid, name})) if t.task == given.task else t
        for t in problem.tasks
    )
    return restamped(change(problem, tasks=tasks), plan)


@finds("node-draining")
def drain_a_node_in_use(problem, plan, rng):
    given = _running(plan, rng)
    if given is None or plan.source == "local":
        return None
    nodes = tuple(
        change(n, draining=n.draining or n.node == given.slots[0].node) for n in problem.nodes
    )
    return restamped(change(problem, nodes=nodes), plan)


@finds("node-draining")
def take_a_draining_device_anew_at_once(problem, plan, rng):
    """Not even the local answer may, unless it is held."""
    given = _running(plan, rng)
    task = next((t for t in problem.tasks if given and t.task == given.task), None)
    used = {slot for a in plan.assignments for slot in a.slots}
    for n in problem.nodes:
        for device in n.devices:
            slot = Slot(node=n.node, device=device)
            if given and slot not in used and slot not in task.placement:
                nodes = tuple(change(m, draining=m.draining or m is n) for m in problem.nodes)
                other = change(problem, nodes=nodes)
                return restamped(other, _with_slot(plan, given, 0, slot))
    return None


@finds("device-kind")
def change_the_kind_of_a_node(problem, plan, rng):
    named = [a for a in plan.assignments if a.kind]
    if not named:
        return None
    name = rng.choice(named).slots[0].node
    nodes = tuple(change(n, kind="odd") if n.node == name else n for n in problem.nodes)
    return restamped(change(problem, nodes=nodes), plan)


@finds("layout-unknown")
def name_another_kind(problem, plan, rng):
    given = _running(plan, rng)
    return given and (problem, put(plan, given, kind=given.kind + "x"))


@finds("kind")
def park_on_a_kind(problem, plan, rng):
    parked = [a for a in plan.assignments if a.layout is None]
    return (problem, put(plan, rng.choice(parked), kind="new")) if parked else None


@finds("slot-count")
def change_the_layout(problem, plan, rng):
    given = _running(plan, rng)
    if given is None:
        return None
    return problem, put(plan, given, layout=change(given.layout, dp=given.layout.dp + 1))


@finds("slot-count")
def park_but_keep_the_slots(problem, plan, rng):
    given = _running(plan, rng)
    return given and (problem, put(plan, given, layout=None))


@finds("waf")
def park_and_say_nothing(problem, plan, rng):
    given = _running(plan, rng)
    return given and (problem, put(plan, given, layout=None, slots=(), kind=""))


@finds("slot-count")
def give_slots_to_a_parked_task(problem, plan, rng):
    parked = [a for a in plan.assignments if a.layout is None]
    if not parked or not problem.nodes:
        return None
    slot = Slot(node=problem.nodes[0].node, device=0)
    return problem, put(plan, rng.choice(parked), slots=(slot,))


@finds("task-missing")
def forget_a_task(problem, plan, rng):
    return (problem, change(plan, assignments=plan.assignments[1:])) if plan.assignments else None


@finds("task-duplicate")
def say_a_task_twice(problem, plan, rng):
    if not plan.assignments:
        return None
    return problem, change(plan, assignments=(*plan.assignments, plan.assignments[0]))


@finds("task-unknown")
def invent_a_task(problem, plan, rng):
    return problem, change(plan, assignments=(*plan.assignments, Assignment(task="zz")))


# --- quotas, floors, figures ---------------------------------------------------------------------


@finds("quota")
def lower_a_quota(problem, plan, rng):
    given = _running(plan, rng)
    if given is None:
        return None
    tenant = next(t.tenant for t in problem.tasks if t.task == given.task)
    mine = {t.task for t in problem.tasks if t.tenant == tenant}
    kind = rng.choice(["", given.kind])
    held = sum(len(a.slots) for a in plan.assignments if a.task in mine and kind in ("", a.kind))
    quota = TenantQuota(tenant=tenant, kind=kind, max_devices=held - 1)
    others = tuple(q for q in problem.quotas if (q.tenant, q.kind) != (tenant, kind))
    return restamped(change(problem, quotas=(*others, quota)), plan)


@finds("relaxed")
def raise_a_floor_above_what_is_met(problem, plan, rng):
    free = [a for a in plan.assignments if a.task not in plan.relaxed]
    if not free:
        return None
    name = rng.choice(free).task
    tasks = tuple(change(t, min_gflops=10**6) if t.task == name else t for t in problem.tasks)
    return restamped(change(problem, tasks=tasks), plan)


@finds("relaxed")
def name_a_task_as_relaxed_without_need(problem, plan, rng):
    fine = [t.task for t in problem.tasks if t.task not in plan.relaxed]
    if not fine:
        return None
    return problem, change(plan, relaxed=tuple(sorted((*plan.relaxed, rng.choice(fine)))))


@finds("relaxed")
def hide_who_is_relaxed(problem, plan, rng):
    return (problem, change(plan, relaxed=plan.relaxed[1:])) if plan.relaxed else None


@finds("relaxed")
def say_twice_who_is_relaxed(problem, plan, rng):
    return (problem, change(plan, relaxed=plan.relaxed * 2)) if plan.relaxed else None


@finds("value")
def change_the_value_by_one(problem, plan, rng):
    value = plan.value_gflops_milli + rng.choice([-1, 1])
    return problem, change(plan, value_gflops_milli=value)


@finds("waf")
def change_the_waf_by_one(problem, plan, rng):
    return problem, change(plan, waf_milli=plan.waf_milli + rng.choice([-1, 1]))


@finds("value")
def forget_what_a_change_costs(problem, plan, rng):
    if plan.value_gflops_milli == plan.waf_milli:
        return None
    return problem, change(plan, value_gflops_milli=plan.waf_milli)


@finds("problem-digest")
def use_it_for_another_problem(problem, plan, rng):
    return change(problem, repair_ms=problem.repair_ms + 1), plan


@finds("computed-at")
def date_it_otherwise(problem, plan, rng):
    return problem, change(plan, computed_at=plan.computed_at + 1)


@finds("source")
def invent_a_method(problem, plan, rng):
    return problem, change(plan, source="guess")


# --- transfers -----------------------------------------------------------------------------------


def _with_transfer(plan: Plan, old: Transfer, *new: Transfer) -> Plan:
    at = plan.transfers.index(old)
    return change(plan, transfers=(*plan.transfers[:at], *new, *plan.transfers[at + 1 :]))


@finds("transfer-missing")
def forget_a_transfer(problem, plan, rng):
    if not plan.transfers:
        return None
    return problem, _with_transfer(plan, rng.choice(plan.transfers))


@finds("transfer-needless")
def say_a_transfer_twice(problem, plan, rng):
    return (
        (problem, change(plan, transfers=(*plan.transfers, plan.transfers[0])))
        if (plan.transfers)
        else None
    )


@finds("transfer-missing")
def send_it_to_somebody_else(problem, plan, rng):
    if not plan.transfers:
        return None
    old = rng.choice(plan.transfers)
    return problem, _with_transfer(plan, old, change(old, to=Slot(node="n77", device=0)))


@finds("transfer-origin")
def fetch_from_who_holds_nothing(problem, plan, rng):
    if not plan.transfers:
        return None
    old = rng.choice(plan.transfers)
    return problem, _with_transfer(plan, old, change(old, origin=Slot(node="n77", device=0)))


@finds("transfer-origin")
def fetch_from_a_dead_device(problem, plan, rng):
    healthy = {(n.node, device) for n in problem.nodes for device in n.devices}
    for old in plan.transfers:
        task = next(t for t in problem.tasks if t.task == old.task)
        for slot in task.placement:
            if (slot.node, slot.device) not in healthy:
                return problem, _with_transfer(plan, old, change(old, origin=slot))
    return None


@finds("transfer-missing")
def load_from_storage_what_lives(problem, plan, rng):
    living = [transfer for transfer in plan.transfers if transfer.origin is not None]
    if not living:
        return None
    old = rng.choice(living)
    return problem, _with_transfer(plan, old, change(old, origin=None))


@finds("transfer-needless")
def fetch_what_is_held(problem, plan, rng):
    """For a worker that gets nothing, from itself."""
    getting = {transfer.to for transfer in plan.transfers}
    for given in plan.assignments:
        task = next(t for t in problem.tasks if t.task == given.task)
        for slot in given.slots:
            if slot not in getting and slot in task.placement:
                more = Transfer(task=given.task, to=slot, origin=slot)
                return problem, change(plan, transfers=(*plan.transfers, more))
    return None


@finds("transfer-needless")
def fetch_for_a_task_that_starts(problem, plan, rng):
    fresh = {t.task for t in problem.tasks if t.current is None}
    for given in plan.assignments:
        if given.task in fresh and given.slots:
            more = Transfer(task=given.task, to=given.slots[0])
            return problem, change(plan, transfers=(*plan.transfers, more))
    return None


@finds("transfer-needless")
def fetch_for_nobody(problem, plan, rng):
    more = Transfer(task="zz", to=Slot(node="n0", device=0))
    return problem, change(plan, transfers=(*plan.transfers, more))
