"""The problem after one thing more has happened: a node fails, joins or is drained, a task ends or
arrives. Pure; the answer to the new problem is the plan for that case.

D_running depends on how many nodes there are to fail: where their failure rate is known
(`node_mtbf_ms`), it is worked out anew for the new number of them; otherwise it stays.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import msgspec

from unicron.planner.errors import BadProblem
from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import NodeSupply, PlanProblem, TaskDemand


def expected_run_ms(nodes: int, node_mtbf_ms: int) -> int:
    """D_running in ms: the mean time until the first of `nodes` nodes fails, each of which fails
    once in `node_mtbf_ms` on average (exponential, independent): their rates add up."""
    return max(1, node_mtbf_ms // max(1, nodes))


def failed(problem: PlanProblem, *nodes: str) -> PlanProblem:
    """These nodes are gone at once; every task that held a device of theirs is hit.

    Raises `BadProblem` for a node that isn't there.
    """
    gone = {_known(problem, node) for node in nodes}
    tasks = tuple(
        msgspec.structs.replace(task, hit=True)
        if any(slot.node in gone for slot in task.placement)
        else task
        for task in problem.tasks
    )
    return _with(problem, (n for n in problem.nodes if n.node not in gone), tasks)


def drained(problem: PlanProblem, *nodes: str) -> PlanProblem:
    """These nodes are to be emptied. Raises `BadProblem` for a node that isn't there."""
    going = {_known(problem, node) for node in nodes}
    return msgspec.structs.replace(
        problem,
        nodes=tuple(
            msgspec.structs.replace(n, draining=True) if n.node in going else n
            for n in problem.nodes
        ),
    )


def unit(problem: PlanProblem, *, rack: str = "", segment: str = "") -> tuple[str, ...]:
    """The nodes of one rack, or of one segment, for `failed` and `drained`: what is to be taken out
    of service as a whole, such as an NVLink domain that isn't healthy.

    Raises `BadProblem` if there is no node in it.
    """
    part, name = ("rack", rack) if rack else ("segment", segment)
    members = tuple(n.node for n in problem.nodes if name and getattr(n, part) == name)
    if not members:
        names = sorted({getattr(n, part) for n in problem.nodes} - {""})
        raise BadProblem(part, f"there is no node in {part} {name!r}", _suggestion(name, names))
    return members


def joined(problem: PlanProblem, kind: str, count: int = 1) -> PlanProblem:
    """`count` more nodes like the largest healthy one of this kind, in no known rack.

    Raises `BadProblem` if there is no node of the kind to go by.
    """
    models = [n for n in problem.nodes if n.kind == kind]
    if not models:
        kinds = sorted({n.kind for n in problem.nodes})
        raise BadProblem(
            "join", f"there is no node of kind {kind!r} to go by", f"known: {', '.join(kinds)}"
        )
    devices = max((n.devices for n in models), key=len)
    taken = {n.node for n in problem.nodes}
    names = (f"new-{kind}-{i}" for i in range(1, count + len(taken) + 1))
    fresh = [name for name in names if name not in taken][:count]
    nodes = (NodeSupply(node=name, kind=kind, devices=devices) for name in fresh)
    return _with(problem, (*problem.nodes, *nodes), problem.tasks)


def given_by(plan: Plan, problem: PlanProblem) -> dict[str, Assignment]:
    """What the plan gives each task of the problem, by its name.

    Raises `BadProblem` if the plan is one of other tasks.
    """
    given = {assignment.task: assignment for assignment in plan.assignments}
    if given.keys() != {task.task for task in problem.tasks}:
        fix = "give the problem that the plan was made for"
        raise BadProblem("tasks", "are others than those of the plan", fix)
    return given


def carried_out(problem: PlanProblem, plan: Plan) -> PlanProblem:
    """The problem once the plan is in force. Raises `BadProblem` if it is one of other tasks."""
    given = given_by(plan, problem)
    return msgspec.structs.replace(
        problem,
        tasks=tuple(
            msgspec.structs.replace(
                task,
                current=given[task.task].layout,
                current_kind=given[task.task].kind,
                placement=given[task.task].slots,
                hit=False,
            )
            for task in problem.tasks
        ),
    )


def finished(problem: PlanProblem, task: str) -> PlanProblem:
    """The task has ended. Raises `BadProblem` for one that isn't there."""
    names = [t.task for t in problem.tasks]
    if task not in names:
        raise BadProblem("finish", f"there is no task {task!r}", _suggestion(task, names))
    return msgspec.structs.replace(problem, tasks=tuple(t for t in problem.tasks if t.task != task))


def arrived(problem: PlanProblem, task: TaskDemand) -> PlanProblem:
    """One task more."""
    return msgspec.structs.replace(problem, tasks=(*problem.tasks, task))


def _known(problem: PlanProblem, node: str) -> str:
    if any(n.node == node for n in problem.nodes):
        return node
    names = [n.node for n in problem.nodes]
    raise BadProblem("node", f"there is no node {node!r}", _suggestion(node, names))


def _suggestion(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    shown = ", ".join(known[:5])
    return f"known: {shown}, and {len(known) - 5} more" if len(known) > 5 else f"known: {shown}"


def _with(
    problem: PlanProblem, nodes: Iterable[NodeSupply], tasks: tuple[TaskDemand, ...]
) -> PlanProblem:
    nodes = tuple(nodes)
    run_ms = problem.expected_run_ms
    if problem.node_mtbf_ms:
        run_ms = expected_run_ms(len(nodes), problem.node_mtbf_ms)
    return msgspec.structs.replace(problem, nodes=nodes, tasks=tasks, expected_run_ms=run_ms)
