"""What led to each event of a log: what it says itself, and what its content implies.

Decisions name their causes. Facts name none, but an answer follows its order, a life the order to
start it, a wait what it waited for. And some decisions need more than they name: the loss of a node
(what was seen of it), the close of a generation (all that broke it), and what waits for a worker to
come back (its end, its being ready).
"""

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf

from unicron import events as ev
from unicron.controlplane.replay.breaks import Breaks
from unicron.controlplane.replay.tracing import foreboding
from unicron.events import Recorded, Sequence, WorkerId, node_of


class Linker:
    """Goes through a log that begins with #1, entry by entry.
    Knows the newest event of each kind about each subject, under a key of its own.
    """

    def __init__(self, log: SequenceOf[Recorded]) -> None:
        self._log = log
        self._newest: dict[tuple[str, str, int], Sequence] = {}
        self._members: dict[tuple[str, str, int], dict[str, Sequence]] = {}
        self._formed: dict[str, dict[WorkerId, int]] = {}
        self._breaks = Breaks()

    def link(self, recorded: Recorded, *, void: bool) -> tuple[Sequence, ...]:
        """The sequences that led to the entry, the next one of the log, ascending. `void`: it
        changed nothing; then it has causes and causes nothing."""
        envelope = recorded.envelope
        if envelope is None:
            return ()
        seq, body = recorded.seq, envelope.body
        told: Iterable[Sequence | None] = (*envelope.cause, *self._implied(body))
        if isinstance(body, ev.NodeLost | ev.DeadlinePassed):
            told = foreboding(self._log, seq) or told
        if not void:
            self._note(seq, body)
        return tuple(sorted({cause for cause in told if cause is not None and cause < seq}))

    def _get(self, kind: str, name: str, number: int = 0) -> Sequence | None:
        return self._newest.get((kind, name, number))

    # --- What an event implies --------------------------------------------------------------------

    def _implied(self, body: ev.AnyEvent) -> tuple[Sequence | None, ...]:
        match body:
            case ev.WorkerExited(ordered=True) | ev.ConnectionClosed():
                return self._stopped(body)
            case ev.ConnectionOpened(client=client):
                return (self._newest.get(("started", *_life(client))),)
            case ev.WorkerStarted() | ev.WorkerStartFailed():
                return (self._get("start", body.worker, body.incarnation),)
            case ev.WorkerPrepared():
                return (self._get("started", body.worker, body.incarnation),)
            case ev.WorkerStartOrdered():
                return (self._ended(body),)
            case ev.DeadlinePassed(key=key):
                return (self._waited(key),)
            case ev.PlanSolved(request=request):
                return (Sequence(request),)
            case ev.NodeRecovered(node=node):
                return (self._get("suspected", node),)
            case ev.TaskCompleted(task=task):
                return self._all("finished", task, 0)
            case _:
                return self._in_generation(body)

    def _in_generation(self, body: ev.AnyEvent) -> tuple[Sequence | None, ...]:
        match body:
            case ev.GenerationClosed():
                return self._breaks.of(body.task)
            case ev.MemberQuiesced():
                return (self._get("closed", body.task, body.generation),)
            case ev.MemberReady():
                return (self._get("ordered", body.task, body.generation),)
            case ev.MemberCommitted():
                return (self._one("ready", body),)
            case ev.MemberFinished():
                return (self._one("committed", body),)
            case ev.TransitionOrdered():
                return self._changed(body)
            case ev.TransitionCompleted():
                return self._all("ready", body.task, body.generation)
            case _:
                return ()

    def _changed(self, body: ev.TransitionOrdered) -> tuple[Sequence, ...]:
        """Why the members are others than before: who is warm now, who is gone, what was planned,
        as far as it came after the order before."""
        newest = self._get("newest order", body.task) or 0
        warm = [self._get("warm", m.worker, m.incarnation) for m in body.members]
        staying = {m.worker for m in body.members}
        gone: list[Sequence | None] = []
        for name, life in self._formed.get(body.task, {}).items():
            if name not in staying:
                gone.append(self._get("exited", name, life))
                gone.append(self._get("lost", node_of(name)))
        planned = None if body.planned else self._get("planned", body.task)
        return tuple(s for s in (*warm, *gone, planned) if s is not None and s > newest)

    def _stopped(self, body: ev.WorkerExited | ev.ConnectionClosed) -> tuple[Sequence | None, ...]:
        if isinstance(body, ev.WorkerExited):
            return (self._get("stop", body.worker, body.incarnation),)
        return (self._newest.get(("stop", *_life(body.client))),)

    def _ended(self, body: ev.WorkerStartOrdered) -> Sequence | None:
        """How the life before came to its end, unless a plan that gives the device came since."""
        ends = [
            self._get("exited", body.worker, body.incarnation - 1),
            self._get("lost", body.node),
        ]
        newest = max((seq for seq in ends if seq is not None), default=None)
        planned = self._get("planned", body.task) or 0
        return newest if newest is not None and newest > planned else None

    def _waited(self, key: str) -> Sequence | None:
        wait, _, name = key.partition(":")
        subject, _, number = name.rpartition(":")
        if not number.isdecimal():
            return None
        if wait == "release":  # since the newest plan that gives the device away
            return self._get("given", subject)
        kinds = {"quiesce": "closed", "ready": "ordered", "start": "start", "stop": "stop"}
        if wait in kinds:
            return self._get(kinds[wait], subject, int(number))
        return Sequence(int(number))  # confirm, solve, replan: the sequence itself

    def _one(self, kind: str, body: ev.MemberCommitted | ev.MemberFinished) -> Sequence | None:
        return self._members.get((kind, body.task, body.generation), {}).get(body.worker)

    def _all(self, kind: str, task: str, generation: int) -> tuple[Sequence, ...]:
        return tuple(self._members.get((kind, task, generation), {}).values())

    # --- What is remembered -----------------------------------------------------------------------

    def _note(self, seq: Sequence, body: ev.AnyEvent) -> None:
        for key in _keys(body):
            self._newest[key] = seq
        self._breaks.note(seq, body)
        match body:
            case ev.TransitionOrdered():
                self._formed[body.task] = {m.worker: m.incarnation for m in body.members}
            case ev.MemberReady():
                self._note_member(seq, "ready", body, body.generation)
            case ev.MemberCommitted():
                self._note_member(seq, "committed", body, body.generation)
            case ev.MemberFinished():
                self._note_member(seq, "finished", body, 0)
            case _:
                pass

    def _note_member(
        self,
        seq: Sequence,
        kind: str,
        body: ev.MemberReady | ev.MemberCommitted | ev.MemberFinished,
        generation: int,
    ) -> None:
        self._members.setdefault((kind, body.task, generation), {})[body.worker] = seq


def _keys(body: ev.AnyEvent) -> list[tuple[str, str, int]]:
    match body:
        case ev.WorkerStartOrdered():
            return [("start", body.worker, body.incarnation)]
        case ev.WorkerStopOrdered():
            return [("stop", body.worker, body.incarnation)]
        case ev.WorkerStarted():
            return [("started", body.worker, body.incarnation)]
        case ev.WorkerPrepared():
            return [("warm", body.worker, body.incarnation)]
        case ev.WorkerExited() | ev.WorkerStartFailed():
            return [("exited", body.worker, body.incarnation)]
        case ev.NodeLost(node=node):
            return [("lost", node, 0)]
        case ev.NodeSuspected(node=node):
            return [("suspected", node, 0)]
        case ev.PlanDecided(allocations=allocations):
            given = [("given", ev.worker_id(*slot), 0) for a in allocations for slot in a.slots]
            return [*(("planned", a.task, 0) for a in allocations), *given]
        case ev.GenerationClosed():
            return [("closed", body.task, body.generation)]
        case ev.TransitionOrdered():
            return [("ordered", body.task, body.generation), ("newest order", body.task, 0)]
        case _:
            return []


def _life(client: str) -> tuple[str, int]:
    """``worker/n1/0/3`` -> ("n1/0", 3); ("", 0) for what is no worker of ours."""
    kind, _, rest = client.partition("/")
    name, _, life = rest.rpartition("/")
    if kind != "worker" or not life.isdecimal() or not node_of(ev.WorkerId(name)):
        return "", 0
    return name, int(life)
