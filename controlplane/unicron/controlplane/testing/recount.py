"""What the state counts or compares, counted and compared once more from the log.

Budgets are kept by counters in the state, and the invariants look at those: a fold that forgot to
count would bound nothing, and nobody would see it. So the same is counted here, by other means.
"""

from collections.abc import Iterator

from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.events import (
    Generation,
    GenerationClosed,
    IncidentResolved,
    MemberCommitted,
    MemberQuiesced,
    MemberReady,
    Recorded,
    TaskCompleted,
    TaskFailed,
    TaskSubmitted,
    TransitionCompleted,
    TransitionOrdered,
    WorkerPrepared,
    WorkerStartOrdered,
)

#: Who stands where: (worker, incarnation) by rank.
_People = tuple[tuple[str, int], ...]

#: Versions and what else decides which bits a worker computes.
_Software = tuple[str, int, str, str]

#: Of a close that no fault made necessary.
_PARKED = "the plan parks the task"


class _Task:
    """One task. `faults`, `closes`: generations that were closed for a fault, and for whatever
    reason; `in_vain`: in a row, with the same members, without a commit; `software`: of those who
    have committed in its generation."""

    def __init__(self) -> None:
        self.generation = Generation(0)
        self.open = False
        self.people: _People = ()
        self.coming: _People = ()
        self.has_committed = False
        self.software: set[_Software] = set()
        self.faults = self.closes = self.in_vain = 0


class Recount:
    """Told of every event of the log that took effect."""

    def __init__(self) -> None:
        #: How often each incident ended.
        self.ends: dict[str, int] = {}
        self._tasks: dict[str, _Task] = {}
        self._lives: dict[str, int] = {}
        self._software: dict[tuple[str, int], _Software] = {}

    def taken(self, recorded: Recorded, after: ClusterState) -> Iterator[tuple[str, str]]:
        """Name and words of what the state counts otherwise."""
        body = recorded.envelope.body if recorded.envelope is not None else None
        match body:
            case IncidentResolved():
                self.ends[body.incident] = self.ends.get(body.incident, 0) + 1
            case TaskSubmitted():
                self._tasks[body.spec.task] = _Task()
            case WorkerStartOrdered():
                self._lives[body.worker] = body.incarnation
            case GenerationClosed():
                _close(self._tasks[body.task], body)
            case TransitionOrdered():
                _order(self._tasks[body.task], body)
            case TaskCompleted() | TaskFailed():
                self._tasks[body.task].open = False  # who commits meanwhile does it for nobody
            case TransitionCompleted():
                task = self._tasks[body.task]
                task.people, task.coming = task.coming, ()
            case MemberCommitted():
                yield from self._commit(body)
            case WorkerPrepared():
                software = (body.spec_digest, body.threads, body.torch, body.megatron)
                self._software[body.worker, body.incarnation] = software
        if isinstance(body, WorkerPrepared | MemberReady | MemberQuiesced):
            yield from self._unlike(body.task, after)
        name = getattr(body, "task", None)
        if name in self._tasks:
            yield from _differ(after.tasks[name], self._tasks[name])

    def _unlike(self, name: str, after: ClusterState) -> Iterator[tuple[str, str]]:
        """Once somebody holds the training state, whoever would compute other bits is refused."""
        there = [
            w
            for w in after.workers.values()
            if w.task == name and w.status in ("prepared", "member")
        ]
        found = {w.worker: self._software[w.worker, w.incarnation] for w in there}
        if any(w.joined for w in there) and len({*found.values()}) > 1:
            yield "other_software_is_refused", f"task {name} has {found}"

    def _commit(self, body: MemberCommitted) -> Iterator[tuple[str, str]]:
        task, life = self._tasks[body.task], (body.worker, body.incarnation)
        stands = life in task.people or life in task.coming
        lives = self._lives.get(body.worker) == body.incarnation
        if task.open and stands and lives and body.generation == task.generation:
            task.has_committed, task.in_vain = True, 0
            task.software.add(self._software[life])
            if len(task.software) > 1:
                yield "members_commit_with_one_software", f"task {body.task}: {task.software}"


def _close(task: _Task, body: GenerationClosed) -> None:
    task.closes += 1
    task.faults += body.reason != _PARKED
    task.in_vain = 0 if task.has_committed else task.in_vain + 1
    task.open = False


def _order(task: _Task, body: TransitionOrdered) -> None:
    people = tuple((str(m.worker), int(m.incarnation)) for m in body.members)
    if not body.planned:
        task.in_vain = task.in_vain if people == task.people else 0
        task.people = people
    task.coming, task.generation = people, body.generation
    task.open, task.has_committed, task.software = True, False, set()


def _differ(state: TaskState, task: _Task) -> Iterator[tuple[str, str]]:
    name = state.spec.task
    if not task.faults <= state.closes <= task.closes:
        counted = f"{task.faults} to {task.closes} generations were closed for faults"
        yield "faults_are_counted", f"task {name}: {counted}, the state says {state.closes}"
    if state.fruitless != task.in_vain:
        counted = f"{task.in_vain} generations in a row without a commit"
        yield (
            "vain_generations_are_counted",
            f"task {name}: {counted}, the state says {state.fruitless}",
        )
