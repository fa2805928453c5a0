"""Rules about plans: the local answer at once, the solver's when it comes, if it still holds."""

from collections import Counter

from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.figures import figures_of
from unicron.controlplane.core.fold_task import in_transition
from unicron.controlplane.core.problem import (
    active,
    allocations_of,
    assignment_of,
    kind_of,
    problem_of,
)
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.supply import fits, is_lame
from unicron.controlplane.core.unsettled import owners_of, unsettled_tasks
from unicron.controlplane.core.verdict import Verdict
from unicron.controlplane.core.words import devices
from unicron.events import Allocation, PlanDecided, PlanDropped, PlanRequested
from unicron.planner.check import check
from unicron.planner.local import local_plan
from unicron.planner.plan import Assignment, Plan
from unicron.planner.pricing import relaxed
from unicron.planner.problem import digest
from unicron.planner.sources import transfers


def adopt_local(state: ClusterState) -> Verdict | None:
    """A task whose allocation names a device that can't be used: shrink or park only that task.
    Survivors never wait for a solver."""
    hit = [t for t in unsettled_tasks(state) if t.phase not in tables.ENDED and is_lame(state, t)]
    if not hit:
        return None
    hit.sort(key=lambda t: t.submitted)
    problem = problem_of(state)
    plan = local_plan(problem)
    names = {t.spec.task for t in hit}
    changed = tuple(a for a in allocations_of(plan) if a.task in names)
    body = PlanDecided(
        source="local",
        computed_at=state.seq,
        allocations=changed,
        value=plan.value_gflops_milli,
        waf_milli=plan.waf_milli,
        reason="the hit task goes on with what it has left",
        explanation=tuple(_say(state, a) for a in changed),
    )
    slots = hit[0].allocation.slots if hit[0].allocation is not None else ()
    gone = [n for n, device in slots if n in state.nodes and not fits(state, n, device)]
    since = max((state.nodes[n].since for n in gone), default=hit[0].planned_at)
    return Verdict(body=body, cause=(since,), incident=hit[0].incident)


def _say(state: ClusterState, allocation: Allocation) -> str:
    old = state.tasks[allocation.task].allocation
    before = len(old.slots) if old is not None else 0
    after = len(allocation.slots)
    if after == before == 0:
        return f"{allocation.task} stays parked"
    if after == before:
        return f"{allocation.task} keeps its {devices(after)}"
    word = "grows" if after > before else "shrinks" if after else "is parked: shrinks"
    return f"{allocation.task} {word} from {before} to {devices(after)}{_whose(state, allocation)}"


def _whose(state: ClusterState, allocation: Allocation) -> str:
    """From which tasks its devices come, where they come from any: ``, 2 from bert``."""
    given = owners_of(state, allocation.slots)
    donors = Counter(given[s] for s in allocation.slots if s in given)
    del donors[allocation.task]
    return "".join(f", {count} from {task}" for task, count in sorted(donors.items()))


def request(state: ClusterState) -> Verdict | None:
    """Something calls for a plan of the whole cluster and none is being made."""
    plan = state.plan
    if not plan.wanted or plan.request or plan.failures >= limits.PLAN_FAILURES_MAX:
        return None
    if not active(state):
        return None
    if any(in_transition(state, t) for t in active(state)):
        return None  # what stands still is dealt with first; its answer changes the problem
    body = PlanRequested(reason=plan.reason)
    incident = next((t.incident for t in active(state) if t.incident), None)
    return Verdict(body=body, cause=(plan.wanted,), incident=incident)


def take_answer(state: ClusterState) -> Verdict | None:
    """The solver's answer is applied if it passes the check on the state as it is now."""
    plan = state.plan
    if not plan.answer:
        return None
    stale = plan.error or plan.wanted > plan.request
    if not stale and any(in_transition(state, t) for t in active(state)):
        return None  # what a task in transition will need is not known yet
    why_not = _why_not(state)
    incident = next((t.incident for t in active(state) if t.incident), None)
    cause = (plan.request, plan.answer)
    if why_not:
        return Verdict(
            body=PlanDropped(request=plan.request, reason=why_not), cause=cause, incident=incident
        )
    body = PlanDecided(
        source=plan.source,
        computed_at=plan.request,
        allocations=plan.answered,
        value=plan.value,
        waf_milli=plan.waf_milli,
        reason="; ".join(_say(state, a) for a in plan.answered),
        explanation=(*plan.explanation, *figures_of(state)),
    )
    return Verdict(body=body, cause=cause, incident=incident)


def _why_not(state: ClusterState) -> str:
    plan = state.plan
    if plan.error:
        return plan.error
    if plan.wanted > plan.request:
        return f"since then #{plan.wanted}: {plan.reason}"
    problem = problem_of(state)
    assignments = tuple(assignment_of(a, kind_of(state, a.slots)) for a in plan.answered)
    nothing = {task.task: Assignment(task=task.task) for task in problem.tasks}
    given = Plan(
        source=plan.source,
        assignments=assignments,
        # The log names neither these nor the transfers: they follow from the allocations.
        relaxed=relaxed(problem.tasks, nothing | {a.task: a for a in assignments}),
        value_gflops_milli=plan.value,
        waf_milli=plan.waf_milli,
        computed_at=state.seq,
        problem_digest=digest(problem),
        transfers=transfers(problem, assignments),
    )
    broken = check(problem, given)
    return "; ".join(str(v) for v in broken[:3])
