"""What a run was worth: samples, losses and the verdict, computed from the log and the workers'
journals. Pure but for reading the journals."""

from collections import Counter, defaultdict
from pathlib import Path

import msgspec

from unicron import events as ev
from unicron.controlplane.core.state import ClusterState
from unicron.events import Recorded
from unicron.worker_shim.journal import Kind, Record, read_journal


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What all journals of one run say. `forwards`: (iteration, micro-batch) -> who did it, as
    (worker, incarnation), once for each pass. `contributed`: iteration -> (micro-batch id,
    generation) that members brought in. `losses`: iteration -> the losses members computed.
    `commits`: (monotonic ns, iteration, generation), sorted."""

    forwards: dict[tuple[int, int], list[tuple[str, int]]]
    contributed: dict[int, list[tuple[int, int]]]
    losses: dict[int, tuple[float, ...]]
    commits: list[tuple[int, int, int]]

    @property
    def passes(self) -> int:
        """Forward passes in all."""
        return sum(len(who) for who in self.forwards.values())


def read_work(journals: list[Path]) -> Work:
    """Put together the journals ``<node>/w<device>.<incarnation>.journal`` of a run."""
    forwards: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    contributed: dict[int, list[tuple[int, int]]] = defaultdict(list)
    losses: dict[int, set[float]] = defaultdict(set)
    commits = []
    for path in journals:
        who = _who(path)
        for record in read_journal(str(path)):
            _count(record, who, forwards, contributed, losses)
            if record.kind is Kind.COMMIT:
                commits.append((record.mono_ns, record.iteration, record.generation))
    return Work(
        forwards=dict(forwards),
        contributed=dict(contributed),
        losses={i: tuple(sorted(values)) for i, values in losses.items()},
        commits=sorted(commits),
    )


def read_works(journals: list[Path], events: list[Recorded]) -> dict[str, Work]:
    """The same of each task that the log names: whose journal it is, the orders to start say."""
    tasks: dict[tuple[str, int], str] = {}
    for recorded in events:
        body = recorded.envelope.body if recorded.envelope is not None else None
        if isinstance(body, ev.WorkerStartOrdered):
            tasks[body.worker, body.incarnation] = body.task
    paths: dict[str, list[Path]] = {task: [] for task in sorted({*tasks.values()})}
    for path in journals:
        if _who(path) in tasks:
            paths[tasks[_who(path)]].append(path)
    return {task: read_work(found) for task, found in paths.items()}


def _who(path: Path) -> tuple[str, int]:
    device, _, incarnation = path.stem.removeprefix("w").partition(".")
    return f"{path.parent.name}/{device}", int(incarnation or 0)  # the reference has no lives


def _count(
    record: Record,
    who: tuple[str, int],
    forwards: dict[tuple[int, int], list[tuple[str, int]]],
    contributed: dict[int, list[tuple[int, int]]],
    losses: dict[int, set[float]],
) -> None:
    if record.kind is Kind.FORWARD:
        forwards[record.iteration, record.micro_batch].append(who)
    elif record.kind is Kind.CONTRIBUTED:
        contributed[record.iteration].append((record.micro_batch, record.generation))
    elif record.kind is Kind.COMMIT:
        losses[record.iteration].add(record.loss)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that must hold at the end of a run."""

    name: str
    ok: bool
    detail: str


def checks(
    spec: ev.TaskSpec, state: ClusterState, events: list[Recorded], work: Work
) -> list[Check]:
    """What must hold of any run of the task, faults or not (the comparison with a reference comes
    apart). `work`: the task's."""
    task = state.tasks.get(spec.task)
    phase = task.phase if task is not None else "never submitted"
    redone = work.passes - spec.iterations * spec.micro_batches
    gone, restarted = _gone(events), _restarted(spec.task, events)
    unexplained = [
        place for place, who in work.forwards.items() if len(who) - 1 > sum(w in gone for w in who)
    ]
    return [
        Check(
            name="each task completed",
            ok=phase == "completed",
            detail=f"{phase}, iteration {task.iteration if task else 0} of {spec.iterations}",
        ),
        _samples(spec, work, gone, restarted),
        Check(
            name="no finished work was thrown away",
            ok=redone >= 0 and not unexplained and restarted <= 1,
            detail=f"{work.passes} forward passes = {spec.iterations} x {spec.micro_batches} + "
            f"{redone} that died with their workers"
            + (
                f"; in generation {restarted} the task started again from its initial state, "
                "since no member was left"
                if restarted > 1
                else ""
            ),
        ),
        _one_iteration(spec.task, events),
        Check(
            name="every incident ended",
            ok=all(i.resolved for i in state.incidents.values()),
            detail=f"{len(state.incidents)} in all",
        ),
    ]


def _gone(events: list[Recorded]) -> set[tuple[str, int]]:
    """Worker incarnations that died or were given up."""
    gone: set[tuple[str, int]] = set()
    newest: dict[str, int] = {}
    for recorded in events:
        body = recorded.envelope.body if recorded.envelope is not None else None
        match body:
            case ev.WorkerStartOrdered():
                newest[body.worker] = body.incarnation
            case ev.WorkerExited():
                gone.add((body.worker, body.incarnation))
            case ev.NodeLost():
                gone |= {
                    (w, i) for w, i in newest.items() if ev.node_of(ev.WorkerId(w)) == body.node
                }
            case _:
                pass
    return gone


def _restarted(task: ev.TaskId, events: list[Recorded]) -> int:
    """Generation in which the task last started from its initial state; what went before it was
    lost with the last member that held it."""
    newest = 0
    for recorded in events:
        body = recorded.envelope.body if recorded.envelope is not None else None
        if not isinstance(body, ev.TransitionOrdered) or body.task != task:
            continue
        if all(m.state_from == -1 for m in body.members):
            newest = body.generation
    return newest


def _samples(spec: ev.TaskSpec, work: Work, gone: set[tuple[str, int]], since: int) -> Check:
    """Each iteration is made of each sample once, counted from generation `since`. A contribution
    that is missing must have been computed by a worker that died after the iteration was reduced.
    """
    wrong = []
    for iteration in range(spec.iterations):
        brought = work.contributed.get(iteration, [])
        count = Counter(m for m, generation in brought if generation >= since)
        for micro_batch in range(spec.micro_batches):
            by = work.forwards.get((iteration, micro_batch), [])
            missing = count[micro_batch] == 0 and any(w in gone for w in by)
            if count[micro_batch] != 1 and not missing:
                wrong.append((iteration, micro_batch, count[micro_batch]))
    return Check(
        name="each iteration has each sample once",
        ok=not wrong,
        detail=f"{spec.iterations} iterations" if not wrong else f"not so: {wrong[:5]}",
    )


def _one_iteration(task: ev.TaskId, events: list[Recorded]) -> Check:
    """After each transition all members stand at the same committed iteration."""
    stood: dict[int, set[int]] = defaultdict(set)
    for recorded in events:
        body = recorded.envelope.body if recorded.envelope is not None else None
        if isinstance(body, ev.MemberReady) and body.task == task:
            stood[body.generation].add(body.iteration)
    wrong = sorted(g for g, iterations in stood.items() if len(iterations) > 1)
    return Check(
        name="members always stood at one iteration",
        ok=not wrong,
        detail=f"{len(stood)} generations" if not wrong else f"not in generations {wrong}",
    )
