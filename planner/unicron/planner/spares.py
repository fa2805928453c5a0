"""Whether it pays to leave a node free, so that it can take over when another one fails.

A free node earns nothing until the next failure (D_running) and saves something while the failed
one is away (`repair_ms`): the task that is hit goes on at its size, and nobody else has to give
anything up. So both are added up for the best plan that uses everything and for the best that
leaves a node free, weighted by their time:

    (D_running * value now + repair * mean over nodes of the best value after that node's loss)
    / (D_running + repair)

Most tasks gain by every device, and for them it never pays; it does where sizes are rigid, or where
a change-over is expensive and the last node brings little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from unicron.planner.assemble import finish
from unicron.planner.local import local_plan
from unicron.planner.plan import Plan
from unicron.planner.pricing import throughput
from unicron.planner.problem import PlanProblem
from unicron.planner.tables import Table, fill_losses
from unicron.planner.whatif import carried_out, drained, failed

#: Statistic of a plan that leaves a node free on purpose.
SPARE: Final = "spare"
#: Nodes that are tried as the free one: of each of so many tasks, those with the least to lose.
_TASKS_TRIED = 8
#: Losses times devices of the cluster, all of which each loss looks at. Beyond that, of the nodes
#: whose loss takes as many devices from the same tasks one is looked at and counts for all of them.
_ONE_BY_ONE_MAX = 2_000_000


class SpareWorth(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and what it comes to. `spare`: the node it leaves free on purpose, or "".

    In thousandths of a weighted GFLOP/s: `now_milli` until the next failure, `after_milli` on
    average after it, `total_milli` both, weighted by their time.
    """

    plan: Plan
    spare: str
    now_milli: int
    after_milli: int
    total_milli: int


def with_spare(
    problem: PlanProblem, solve: Callable[[PlanProblem], Plan]
) -> tuple[SpareWorth, ...]:
    """The best plan that uses everything and, if there is one, the best that leaves a node free;
    the better one first. `solve` makes a plan that passes `check`.

    Raises `ValueError` if the problem doesn't say how long a node is away (`repair_ms`).
    """
    if not problem.repair_ms:
        raise ValueError("without repair_ms nobody can say what a spare is worth")
    all_used = solve(problem)
    found = [_worth(problem, all_used, "")]
    if all_used.relaxed or _has_free_node(problem, all_used):
        return (found[0],)
    best: tuple[Plan, str] | None = None
    for node in _candidates(problem, all_used):
        plan = left_free(problem, node, solve)
        if plan.relaxed:
            continue
        if best is None or plan.value_gflops_milli > best[0].value_gflops_milli:
            best = plan, node
    if best is not None:
        found.append(_worth(problem, *best))
    return tuple(sorted(found, key=lambda each: (-each.total_milli, each.spare)))


def left_free(problem: PlanProblem, node: str, solve: Callable[[PlanProblem], Plan]) -> Plan:
    """A plan of the problem that doesn't use the node."""
    plan = solve(drained(problem, node))
    return finish(problem, plan.source, plan.assignments, plan.statistics)


def free_nodes(problem: PlanProblem, plan: Plan) -> tuple[str, ...]:
    """Nodes that the plan leaves free on purpose."""
    if not dict(plan.statistics).get(SPARE):
        return ()
    used = {slot.node for assignment in plan.assignments for slot in assignment.slots}
    return tuple(n.node for n in problem.nodes if n.devices and n.node not in used)


def _has_free_node(problem: PlanProblem, plan: Plan) -> bool:
    used = {slot.node for assignment in plan.assignments for slot in assignment.slots}
    return any(n.devices and not n.draining and n.node not in used for n in problem.nodes)


def _candidates(problem: PlanProblem, plan: Plan) -> Iterator[str]:
    """A node of each of the tasks that make least of a device; the one with its last ranks."""
    tasks = {task.task: task for task in problem.tasks}
    running = [a for a in plan.assignments if a.slots]
    running.sort(
        key=lambda a: (
            tasks[a.task].weight_milli
            * throughput(tasks[a.task], a.layout, a.kind)
            // len(a.slots),
            a.task,
        )
    )
    seen: set[str] = set()
    for assignment in running[:_TASKS_TRIED]:
        node = assignment.slots[-1].node
        if node not in seen:
            seen.add(node)
            yield node


def _worth(problem: PlanProblem, plan: Plan, spare: str) -> SpareWorth:
    after = _after_a_failure(carried_out(problem, plan))
    run, away = problem.expected_run_ms, problem.repair_ms
    total = (run * plan.value_gflops_milli + away * after) // (run + away)
    return SpareWorth(
        plan=plan,
        spare=spare,
        now_milli=plan.value_gflops_milli,
        after_milli=after,
        total_milli=total,
    )


def _after_a_failure(problem: PlanProblem) -> int:
    """The mean of the best values over all single failures."""
    table = Table(0)
    for _ in fill_losses(table, problem):
        pass
    devices = sum(len(node.devices) for node in problem.nodes)
    alike = len(problem.nodes) * devices > _ONE_BY_ONE_MAX
    known: dict[object, int] = {}
    total = 0
    for node in problem.nodes:
        entry, loss = table.failed(0, node.node), table.losses[node.node]
        assert entry is not None
        if not entry.local:
            total += entry.value_milli
            continue
        # The local answer to the loss of a free node is the same whichever it is.
        key = loss if alike or not loss.held else node.node
        if key not in known:
            known[key] = local_plan(failed(problem, node.node)).value_gflops_milli
        total += known[key]
    return total // max(1, len(problem.nodes))
