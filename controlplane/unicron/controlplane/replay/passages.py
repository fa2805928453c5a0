"""What an incident did to each task it hit: before, during, after; its throughput meanwhile."""

from collections.abc import Sequence as SequenceOf

import msgspec

from unicron import events as ev
from unicron.controlplane.core.state import TaskState
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.story import (
    TaskMoment,
    TaskPassage,
    ThroughputCurve,
    ThroughputPoint,
)
from unicron.controlplane.replay.summary import WHOLE, IncidentSummary, TaskCost
from unicron.controlplane.replay.throughput import Pace
from unicron.events import Generation, Recorded, Sequence, TaskId

_MS = 1_000_000


def passages_of(reading: Reading, incident: IncidentSummary) -> tuple[TaskPassage, ...]:
    """Of every task that the incident hit, its own first."""
    return tuple(_passage(reading, incident, cost) for cost in incident.costs)


def curves_of(reading: Reading, incident: IncidentSummary) -> tuple[ThroughputCurve, ...]:
    """Throughput of the same tasks, as far as their cost was counted."""
    return tuple(_curve(reading, incident, cost) for cost in incident.costs)


def _passage(reading: Reading, incident: IncidentSummary, cost: TaskCost) -> TaskPassage:
    first, over = incident.first_evidence_seq, incident.resolved_seq
    paces = reading.throughput.paces.get(cost.task, [])
    last = over or Sequence(len(reading.log))
    inside = [p for p in paces if first <= p.seq <= last and p.devices]
    smallest = min(inside, key=lambda p: p.devices, default=None)

    def moment(seq: int) -> TaskMoment:
        return _moment(reading, incident, cost.task, seq)

    before = moment(first - 1)
    reached = _reached(reading, cost.task, reading.log[first - 1 : incident.last_seq])
    return TaskPassage(
        task=cost.task,
        hit=cost.task == incident.task,
        before=msgspec.structs.replace(before, iteration=max(before.iteration, reached)),
        during=moment(smallest.seq if smallest else last),
        after=moment(over) if over else None,
        whole=moment(later) if (later := _whole_later(cost, paces, over)) else None,
    )


def _reached(reading: Reading, task: TaskId, meanwhile: SequenceOf[Recorded]) -> int:
    """The iteration in which its members stopped first; they tell it then, and not before."""
    bodies = [reading.body(r.seq) for r in meanwhile]
    stopped = [b for b in bodies if isinstance(b, ev.MemberQuiesced) and b.task == task]
    first = min((b.generation for b in stopped), default=0)
    return max((b.iteration for b in stopped if b.generation == first), default=0)


def _whole_later(cost: TaskCost, paces: list[Pace], over: Sequence | None) -> Sequence | None:
    if cost.until != WHOLE or over is None:
        return None
    found = (p.seq for p in paces if p.seq > over and p.gflops >= cost.gflops_before)
    before = [p for p in paces if p.seq <= over]
    missing = bool(before) and before[-1].gflops < cost.gflops_before
    return next(found, None) if missing else None


def _moment(reading: Reading, incident: IncidentSummary, name: TaskId, seq: int) -> TaskMoment:
    """The task after the entry `seq`."""
    entry = reading.task_before(name, seq + 1)
    paces = [p for p in reading.throughput.paces.get(name, []) if p.seq <= seq]
    pace = paces[-1] if paces else None
    at_ns = reading.log[seq - 1].at_ns if seq else incident.began_at_ns
    task = entry[1] if entry else None
    devices = pace.devices if pace else 0
    split = task.spec.tensor_parallel * task.spec.pipeline_parallel if task else 1
    return TaskMoment(
        seq=Sequence(seq),
        at_ns=at_ns,
        t_plus_ms=(at_ns - incident.first_evidence_at_ns) // _MS,
        phase=task.phase if task else "",
        generation=pace.generation if pace and devices else _generation(task),
        iteration=task.iteration if task else 0,
        devices=devices,
        tensor_parallel=task.spec.tensor_parallel if task else 1,
        pipeline_parallel=task.spec.pipeline_parallel if task else 1,
        data_parallel=devices // max(split, 1),
        gflops=pace.gflops if pace else 0,
        workers=tuple(m.worker for m in sorted(task.members, key=lambda m: m.rank))
        if task and devices
        else (),
    )


def _generation(task: TaskState | None) -> Generation:
    return task.generation if task else Generation(0)


def _curve(reading: Reading, incident: IncidentSummary, cost: TaskCost) -> ThroughputCurve:
    start = incident.first_evidence_at_ns
    paces = reading.throughput.paces.get(cost.task, [])
    before = [p for p in paces if p.seq < incident.first_evidence_seq]
    inside = [p for p in paces if p.seq >= incident.first_evidence_seq and p.at_ns <= cost.to_ns]
    base = before[-1:] or [
        Pace(
            at_ns=min([cost.from_ns, *(p.at_ns for p in inside[:1])]),
            seq=incident.first_evidence_seq,
            gflops=0,
            devices=0,
            generation=Generation(0),
        )
    ]
    return _pieces(cost.task, [*base, *inside], start, cost.to_ns)


def whole_curves_of(reading: Reading) -> tuple[ThroughputCurve, ...]:
    """Throughput of every task from when it was submitted to the end of the log; `t_plus_ms`
    counts from the first entry."""
    return tuple(
        _pieces(TaskId(task), paces, reading.log[0].at_ns, reading.end_ns)
        for task, paces in reading.throughput.paces.items()
    )


def _pieces(task: TaskId, paces: list[Pace], start: int, to_ns: int) -> ThroughputCurve:
    points = tuple(
        ThroughputPoint(
            at_ns=p.at_ns,
            t_plus_ms=(p.at_ns - start) // _MS,
            seq=p.seq,
            gflops=p.gflops,
            devices=p.devices,
            generation=p.generation,
        )
        for p in paces
    )
    return ThroughputCurve(task=task, to_ns=to_ns, points=points)
