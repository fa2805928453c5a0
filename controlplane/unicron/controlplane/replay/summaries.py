"""All incidents of a log in short, with what they cost."""

import re
from collections.abc import Sequence as SequenceOf
from functools import cached_property
from typing import Final

from unicron import events as ev
from unicron.controlplane.core.state import ClusterState, IncidentState, TaskState
from unicron.controlplane.core.supply import fits
from unicron.controlplane.replay.belonging import events_of
from unicron.controlplane.replay.costs import Episode, costs_of
from unicron.controlplane.replay.evidence import SYMPTOM, weight_of
from unicron.controlplane.replay.phrases import one_line
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.summary import IncidentSummary, TaskCost, counted_longest
from unicron.controlplane.replay.throughput import began
from unicron.events import Recorded, Sequence, TaskId

_MS = 1_000_000
#: How the fold tells of an agent that started anew.
_PARTS: Final = re.compile(r"agent of (?P<node>\S+) started anew: its workers are gone")


class Summaries:
    """Incidents of one log, by id, oldest first. `mine`: the events that belong to each. What only
    a whole incident tells of a task's throughput is noted in `reading`."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.mine: dict[str, tuple[Recorded, ...]] = {
            known.incident: _events(reading, known) for known in reading.incidents
        }
        for known in reading.incidents:
            self._backdate(known)

    @cached_property
    def all(self) -> dict[str, IncidentSummary]:
        """Every incident in short."""
        costs = self._costs()
        return {
            known.incident: self._in_short(known, costs[known.incident])
            for known in self.reading.incidents
        }

    def _backdate(self, known: IncidentState) -> None:
        """A peer's report that came before the cause was known: the failure itself was earlier."""
        for recorded in self.mine[known.incident]:
            body = self.reading.body(recorded.seq)
            if known.task is not None and isinstance(body, ev.PeerErrorReported):
                first = self.mine[known.incident][0]
                since = self._began(first)
                self.reading.throughput.stood_since(known.task, recorded.seq, since)
                return

    # --- Costs ------------------------------------------------------------------------------------

    def _costs(self) -> dict[str, tuple[TaskCost, ...]]:
        by_task: dict[str, list[Episode]] = {}
        for known in self.reading.incidents:
            for episode in self._episodes(known):
                by_task.setdefault(episode.task, []).append(episode)
        costs: dict[str, list[TaskCost]] = {known.incident: [] for known in self.reading.incidents}
        for task, episodes in by_task.items():
            ordered = sorted(episodes, key=lambda e: (e.first_seq, e.incident))
            paces = self.reading.throughput.paces.get(task, [])
            found = costs_of(paces, ordered, self.reading.end_ns)
            for episode, cost in zip(ordered, found, strict=True):
                costs[episode.incident].append(cost)
        return {
            known.incident: tuple(
                sorted(costs[known.incident], key=lambda c: (c.task != known.task, c.task))
            )
            for known in self.reading.incidents
        }

    def _episodes(self, known: IncidentState) -> list[Episode]:
        log, mine = self.reading.log, self.mine[known.incident]
        over = log[known.resolved - 1].at_ns if known.resolved else None
        episodes = []
        if known.task is not None:
            episodes.append(
                Episode(
                    incident=known.incident,
                    task=known.task,
                    first_seq=mine[0].seq,
                    began_ns=self._began(mine[0]),
                    over_ns=over,
                )
            )
        for task, seq in self._made_smaller(known, mine):
            episodes.append(
                Episode(
                    incident=known.incident,
                    task=task,
                    first_seq=seq,
                    began_ns=log[seq - 1].at_ns,
                    over_ns=over,
                    planned=True,
                )
            )
        return episodes

    def _made_smaller(
        self, known: IncidentState, mine: SequenceOf[Recorded]
    ) -> list[tuple[TaskId, Sequence]]:
        """Other tasks whose devices the incident's plans took, and the first plan that did. What
        failed of a task that has an incident of its own was not taken from it by a plan."""
        found: dict[TaskId, Sequence] = {}
        for recorded in mine:
            body = self.reading.body(recorded.seq)
            if not isinstance(body, ev.PlanDecided) or recorded.seq in self.reading.void:
                continue
            for given in body.allocations:
                entry = self.reading.task_before(given.task, recorded.seq)
                state = self.reading.computed_on(body.computed_at)
                takeable = _takeable(entry[1], state) if entry else 0
                if len(given.slots) < takeable and given.task != known.task:
                    found.setdefault(given.task, recorded.seq)
        return list(found.items())

    def _began(self, first: Recorded) -> int:
        return began(self.reading.log, first.seq, first.at_ns)

    # --- In short ---------------------------------------------------------------------------------

    def _in_short(self, known: IncidentState, costs: tuple[TaskCost, ...]) -> IncidentSummary:
        log, mine = self.reading.log, self.mine[known.incident]
        first = mine[0]
        began_ns = began(log, first.seq, first.at_ns, silence=True)
        resolved = known.resolved or None
        own = next((c for c in costs if c.task == known.task), None)
        longest = counted_longest(costs)
        return IncidentSummary(
            id=known.incident,
            severity=known.severity,
            is_open=resolved is None,
            what=one_line(self._what(known)),
            outcome=one_line(known.outcome),
            task=known.task,
            tasks=tuple(c.task for c in costs),
            node=known.node,
            worker=known.worker,
            first_evidence_seq=first.seq,
            first_evidence_at_ns=first.at_ns,
            began_at_ns=began_ns,
            opened_seq=known.opened,
            resolved_seq=resolved,
            last_seq=mine[-1].seq,
            last_at_ns=mine[-1].at_ns,
            detect_ms=(log[known.opened - 1].at_ns - began_ns) // _MS,
            stall_ms=own.stall_ms if own else None,
            duration_ms=(log[resolved - 1].at_ns - began_ns) // _MS if resolved else None,
            lost_flop=sum(c.lost_flop for c in costs) if costs else None,
            lost_device_ms=sum(c.lost_device_ms for c in costs) if costs else None,
            cost_until=longest.until if longest is not None else "",
            costs=costs,
        )

    def _what(self, known: IncidentState) -> str:
        """What happened, where the log tells more than the decision that opened it knew."""
        what = known.what
        unknown = all(weight_of(self.reading.body(seq)) == SYMPTOM for seq in known.evidence)
        for recorded in self.mine[known.incident]:
            body = self.reading.body(recorded.seq)
            if isinstance(body, ev.StoreBound) and unknown:
                return f"the store of {body.node} died (#{recorded.seq}), and {what}"
        for recorded in self.mine[known.incident]:
            if recorded.seq in self.reading.throughput.trained_on:
                return f"{what} ({self.reading.notes[recorded.seq]})"
        if (at := _PARTS.match(what)) is not None:
            return self._started_anew(known, at["node"]) + what[at.end() :]
        return what

    def _started_anew(self, known: IncidentState, node: str) -> str:
        """Workers live on without their agent; it is the next one that ends them."""
        words = f"a new agent of {node} took over, which ends the workers of the one before"
        for recorded in self.mine[known.incident]:
            body = self.reading.body(recorded.seq)
            if isinstance(body, ev.AgentStarted) and body.node == node:
                note = self.reading.notes.get(recorded.seq, "")
                return f"{words} ({note})" if note else words
        return words


def _takeable(task: TaskState, state: ClusterState | None) -> int:
    """How many devices a plan that was computed on `state` could take from the task."""
    slots = task.allocation.slots if task.allocation is not None else ()
    if task.incident is None or state is None:
        return len(slots)
    return sum(fits(state, node, device) for node, device in slots)


def _events(reading: Reading, known: IncidentState) -> tuple[Recorded, ...]:
    """The events that belong to the incident, in order, without repetitions."""
    mine = {r.seq for r in events_of(reading.log, known, reading.named.get(known.incident, []))}
    mine |= _stores(reading, known, mine)
    return tuple(reading.log[seq - 1] for seq in sorted(mine) if seq not in reading.twice)


def _stores(reading: Reading, known: IncidentState, mine: set[Sequence]) -> set[Sequence]:
    """Stores of the incident's generations that came back while it was open."""
    nodes = set()
    for seq in mine:
        body = reading.body(seq)
        if isinstance(body, ev.GenerationClosed | ev.TransitionOrdered):
            nodes.add(reading.stores.get((body.task, body.generation)))
    last = known.resolved or len(reading.log)
    return {
        Sequence(seq)
        for seq in range(min(mine), last + 1)
        if isinstance(body := reading.body(seq), ev.StoreBound) and body.node in nodes
    }
