"""What a plan would change, for who has to approve it."""

import msgspec

from unicron.controlplane.core.words import devices
from unicron.events import TaskId
from unicron.planner.explain import explain
from unicron.planner.plan import Assignment, Plan
from unicron.planner.problem import PlanProblem, Slot, TaskDemand


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """One task's devices, before and after; none after means that it is parked. `hit`: a failure
    has hit the task, so it changes over anyway."""

    task: TaskId
    before: tuple[Slot, ...]
    after: tuple[Slot, ...]
    hit: bool

    @property
    def is_planned(self) -> bool:
        """It loses a device though nothing happened to it."""
        return not self.hit and not set(self.before) <= set(self.after)

    def __str__(self) -> str:
        if not self.after:
            return f"{self.task} is parked and gives up {devices(len(self.before))}"
        if len(self.after) == len(self.before):
            return f"{self.task} moves to other devices"
        return f"{self.task} goes from {len(self.before)} to {devices(len(self.after))}"


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that awaits approval. `computed_at`: the sequence it was computed at; `tasks`: those
    whose devices change; `explanation`: why, as the log will have it."""

    computed_at: int
    tasks: tuple[TaskChange, ...]
    explanation: tuple[str, ...]

    @property
    def planned(self) -> tuple[TaskChange, ...]:
        """Those that lose devices though nothing happened to them."""
        return tuple(task for task in self.tasks if task.is_planned)

    def __str__(self) -> str:
        return "; ".join(str(task) for task in self.planned) or "nobody loses a device"


def change_of(problem: PlanProblem, plan: Plan) -> PlannedChange:
    """What the plan changes about the problem's tasks."""
    given = {assignment.task: assignment for assignment in plan.assignments}
    changes = (_task_change(task, given.get(task.task)) for task in problem.tasks)
    return PlannedChange(
        computed_at=problem.computed_at,
        tasks=tuple(change for change in changes if change.before != change.after),
        explanation=explain(problem, plan),
    )


def _task_change(task: TaskDemand, assignment: Assignment | None) -> TaskChange:
    return TaskChange(
        task=TaskId(task.task),
        before=task.placement,
        after=() if assignment is None else assignment.slots,
        hit=task.hit,
    )
