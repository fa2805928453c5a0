"""Answers "why": from an event, or from what an id stands for now, back to what it began with."""

from collections.abc import Sequence as SequenceOf

from unicron import events as ev
from unicron.controlplane.replay import ids
from unicron.controlplane.replay.chain import CauseChain, ChainLink, OtherQuestion
from unicron.controlplane.replay.entries import told
from unicron.controlplane.replay.evidence import CAUSE, SUSPICION, SYMPTOM, weight_of
from unicron.controlplane.replay.phrases import one_line
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.sizes import sizes_of
from unicron.controlplane.replay.standing import tracebacks
from unicron.controlplane.replay.story import NextCommand, StoryEvent
from unicron.controlplane.replay.summaries import Summaries
from unicron.events import IncidentId, Sequence

#: Links that are worth telling; the nearest ones, and those it all began with.
LINKS_MAX = 40
_NAMED_MAX = 3


def why_of(reading: Reading, summaries: Summaries, asked: str) -> CauseChain:
    """The chain of causes of `asked`: a sequence or an id. Raises ConfigError if there is none."""
    named = ids.find(reading.state, asked)
    seq, others = _subject(reading, named)
    incident = _incident(reading, summaries, seq)
    floor = summaries.mine[incident][0].seq if incident is not None else 1
    depths = _walk(reading, seq, floor)
    roots = sorted(s for s in depths if not _followed(reading, s, seq, floor))
    chosen = _chosen(depths, roots)
    start = reading.log[min(chosen) - 1].at_ns
    events = {s: told(reading, reading.log[s - 1], start) for s in chosen}
    links = tuple(
        ChainLink(depth=depths[s], root=s in roots, event=events[s])
        for s in sorted(chosen, reverse=True)
    )
    return CauseChain(
        asked=one_line(asked),
        kind=named.kind,
        seq=seq,
        incident=incident,
        answer=(
            f"{_subject_words(reading, named, seq)}: {events[seq].who} {_say(events[seq])}",
            *_answer(reading, seq, floor, [r for r in roots if r in events], events),
            *_which(reading, named, seq),
        ),
        links=links,
        left_out=len(depths) - len(chosen),
        others=tuple(o for o in others if o.seq != seq),
        commands=(*tracebacks(reading, sorted(chosen))[:1], *_commands(incident, seq, others)),
    )


# --- What it comes down to -----------------------------------------------------------------------


def _subject(reading: Reading, named: ids.Named) -> tuple[Sequence, tuple[OtherQuestion, ...]]:
    """The event that made it what it is, and others that one may mean."""
    state, name = reading.state, named.id
    match named.kind:
        case ids.INCIDENT:
            known = state.incidents[name]
            others = [OtherQuestion(seq=known.opened, what="why it was opened")]
            if known.resolved:
                others.append(OtherQuestion(seq=known.resolved, what="why it was closed"))
            return known.opened, tuple(others)
        case ids.NODE:
            return state.nodes[name].since, _changes(reading, named)
        case ids.TASK:
            return _task(reading, name)
        case ids.WORKER:
            changes = _changes(reading, named)
            return changes[-1].seq if changes else state.workers[name].order, changes
        case _:
            return Sequence(int(name)), ()


_OF_NODES = (
    ev.AgentStarted
    | ev.AgentStopped
    | ev.NodeLost
    | ev.NodeIsolated
    | ev.NodeAdmitted
    | ev.NodeReturned
    | ev.NodeSuspected
    | ev.NodeRecovered
)
_OF_WORKERS = (
    ev.WorkerStartOrdered
    | ev.WorkerStopOrdered
    | ev.WorkerExited
    | ev.WorkerStartFailed
    | ev.ExceptionReported
    | ev.NodeLost
)


def _changes(reading: Reading, named: ids.Named) -> tuple[OtherQuestion, ...]:
    """Events that changed how a node or a worker stands, oldest first."""
    kinds = _OF_NODES if named.kind == ids.NODE else _OF_WORKERS
    found = []
    for recorded in reading.log:
        body = reading.body(recorded.seq)
        if body is None or not isinstance(body, kinds) or recorded.seq in reading.void:
            continue
        if ids.is_about(body, named):
            what = told(reading, recorded, recorded.at_ns).what
            found.append(OtherQuestion(seq=recorded.seq, what=what))
    return tuple(found)


def _task(reading: Reading, name: str) -> tuple[Sequence, tuple[OtherQuestion, ...]]:
    """Why it has the size it has: the newest time it became smaller, or else its newest change;
    why it failed, if it did."""
    task = reading.state.tasks[name]
    sizes = sizes_of(reading, name)
    others = [OtherQuestion(seq=s.seq, what=s.what) for s in sizes]
    if task.phase in ("completed", "failed"):
        others.append(OtherQuestion(seq=task.since, what=f"{name} {task.phase}"))
    if task.phase == "failed":
        return task.since, tuple(others)
    smaller = [s for s in sizes if s.after < s.before]
    if smaller or sizes:
        return (smaller or sizes)[-1].seq, tuple(others)
    return task.since, tuple(others)


# --- The chain -----------------------------------------------------------------------------------


def _incident(reading: Reading, summaries: Summaries, seq: Sequence) -> IncidentId | None:
    envelope = reading.log[seq - 1].envelope
    if envelope is not None and envelope.incident in summaries.mine:
        return envelope.incident
    for known in reading.incidents:
        if any(r.seq == seq for r in summaries.mine[known.incident]):
            return known.incident
    return None


def _followed(reading: Reading, at: int, asked: int, floor: int) -> list[Sequence]:
    """Causes that are followed: those inside the incident. What was asked about itself may have
    led back to before it."""
    causes = reading.links[at - 1]
    inside = [c for c in causes if c >= floor]
    return inside or (list(causes) if at == asked else [])


def _walk(reading: Reading, seq: Sequence, floor: int) -> dict[Sequence, int]:
    """Every event that led to `seq`, and how many steps it is away."""
    depths = {seq: 0}
    frontier = [seq]
    while frontier:
        found: list[Sequence] = []
        for at in frontier:
            for cause in _followed(reading, at, seq, floor):
                if cause not in depths:
                    depths[cause] = depths[at] + 1
                    found.append(cause)
        frontier = found
    return depths


def _chosen(depths: dict[Sequence, int], roots: list[Sequence]) -> set[Sequence]:
    nearest = sorted(depths, key=lambda s: (depths[s], -s))
    first = nearest[:1] + roots[: LINKS_MAX // 4]
    return set([*dict.fromkeys([*first, *nearest])][:LINKS_MAX])


def _answer(
    reading: Reading,
    seq: Sequence,
    floor: int,
    roots: SequenceOf[Sequence],
    events: dict[Sequence, StoryEvent],
) -> tuple[str, ...]:
    lines = []
    causes = [c for c in _followed(reading, seq, seq, floor) if c in events]
    if causes:
        telling_first = sorted(causes, key=lambda c: _rank(reading, events[c], events[seq]))
        lines.append(f"because {_listed(telling_first, events)}")
    else:
        lines.append("nothing in the log led to it: it is where it began")
    began = [r for r in roots if r not in causes and r != seq]
    telling = [r for r in began if weight_of(reading.body(r)) != SYMPTOM]
    began = telling or began
    if began:
        lines.append(f"it began with {_listed(began, events)}")
    return tuple(lines)


def _subject_words(reading: Reading, named: ids.Named, seq: Sequence) -> str:
    """``n2 is isolated since #79``, ``gpt shrinks from 4 to 2 devices with #83``."""
    state, name = reading.state, named.id
    match named.kind:
        case ids.INCIDENT:
            return f"{name} was opened with #{seq}"
        case ids.NODE:
            return f"{name} is {state.nodes[name].status} since #{seq}"
        case ids.WORKER:
            return f"{name} is {state.workers[name].status}, by #{seq}"
        case ids.TASK:
            change = next((s.what for s in sizes_of(reading, name) if s.seq == seq), "")
            return f"{change or f'{name} is {state.tasks[name].phase}'} with #{seq}"
        case _:
            return f"#{seq}"


def _which(reading: Reading, named: ids.Named, seq: Sequence) -> tuple[str, ...]:
    """Which of the changes of a task's size was told, and the newest of the others, if any."""
    sizes = sizes_of(reading, named.id) if named.kind == ids.TASK else ()
    mine = next((s for s in sizes if s.seq == seq), None)
    others = [s for s in sizes if s.seq != seq]
    if mine is None or not others:
        return ()
    which = "the newest shrink" if mine.after < mine.before else "the newest change of size"
    listed = "; ".join(f"#{s.seq}, {s.what}" for s in others[-_NAMED_MAX:])
    more = len(others) - _NAMED_MAX
    return (f"this is {which}; also: {listed}{f'; and {more} before' if more > 0 else ''}",)


def _say(event: StoryEvent) -> str:
    return event.what if event.kind == "decided" else f"says: {event.what}"


def _rank(reading: Reading, event: StoryEvent, of: StoryEvent) -> int:
    """What failed comes before what was planned for it, that before what `of` names itself and what
    was decided, and that before suspicions, what was done about it and further symptoms."""
    body = reading.body(event.seq)
    if isinstance(body, ev.PlanDecided):
        return 1
    weight = weight_of(body) if event.kind == "observed" else ""
    if weight == CAUSE or isinstance(body, ev.NodeLost):
        return 0
    if weight == SYMPTOM and event.seq not in of.cause:
        return 4
    return 3 if weight == SUSPICION or event.kind == "done" else 2


def _listed(seqs: SequenceOf[Sequence], events: dict[Sequence, StoryEvent]) -> str:
    told_ = [f"#{s}, {events[s].what}" for s in seqs[:_NAMED_MAX]]
    more = f"; and {len(seqs) - _NAMED_MAX} more" if len(seqs) > _NAMED_MAX else ""
    return "; ".join(told_) + more


def _commands(
    incident: str | None, seq: Sequence, others: SequenceOf[OtherQuestion]
) -> tuple[NextCommand, ...]:
    found = [
        NextCommand(arguments=("why", str(o.seq)), about=o.what) for o in others if o.seq != seq
    ]
    if incident is not None:
        story = NextCommand(arguments=("audit", incident), about="the whole story")
        return (story, *found[-3:])
    return (*found[-3:], NextCommand(arguments=("status",), about="how the cluster stands"))
