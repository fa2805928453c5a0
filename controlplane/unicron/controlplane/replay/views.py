"""The one layer between a log and whoever shows it: text, JSON and page are rendered from these
views, so they can't disagree."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from functools import cached_property

from unicron import events as ev
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.replay import ids
from unicron.controlplane.replay.chain import CauseChain
from unicron.controlplane.replay.cluster import ClusterView, IdStatus
from unicron.controlplane.replay.entries import told
from unicron.controlplane.replay.overview import about, cluster_of, status_of
from unicron.controlplane.replay.passages import whole_curves_of
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.recovery import recovery_of
from unicron.controlplane.replay.replayer import ReplayReport
from unicron.controlplane.replay.steps import IncidentSteps
from unicron.controlplane.replay.story import IncidentStory, StoryEvent, ThroughputCurve, Trade
from unicron.controlplane.replay.summaries import Summaries
from unicron.controlplane.replay.summary import IncidentSummary
from unicron.controlplane.replay.telling import story_of
from unicron.controlplane.replay.why import why_of
from unicron.events import Recorded, Sequence


class IncidentBook:
    """What a log tells. `state` is the one after its last entry.

    Raises:
        LogBroken: the entries aren't #1, #2, … without a hole.
        ReplayDivergence: the fold can't take an entry.
    """

    def __init__(self, log: SequenceOf[Recorded]) -> None:
        self._reading = Reading(log)
        self.state: ClusterState = self._reading.state

    @cached_property
    def _summaries(self) -> Summaries:
        return Summaries(self._reading)

    # --- Incidents --------------------------------------------------------------------------------

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all incidents, oldest first."""
        return tuple(known.incident for known in self._reading.incidents)

    def incidents(self) -> tuple[IncidentSummary, ...]:
        """All incidents in short, oldest first."""
        return tuple(self._summaries.all.values())

    def story(self, incident: str, report: ReplayReport | None = None) -> IncidentStory:
        """One incident. `report`: of a verification of this log. KeyError: there is none with this
        id."""
        known = self.state.incidents[ev.IncidentId(incident)]
        return story_of(
            self._reading,
            known,
            self._summaries.mine[incident],
            self._summaries.all[incident],
            report,
        )

    def throughput(self) -> tuple[ThroughputCurve, ...]:
        """Of every task, over the whole log."""
        return whole_curves_of(self._summaries.reading)

    def trades(self) -> tuple[Trade, ...]:
        """Devices that passed from one task to another, oldest first."""
        return self._reading.trades.trades

    def steps(self, incident: str) -> IncidentSteps:
        """What its recovery took, step by step. KeyError if there is none with this id."""
        known = self.state.incidents[ev.IncidentId(incident)]
        mine = self._summaries.mine[incident]
        return recovery_of(self._reading.log, known, mine, self._reading.void)

    # --- Everything else --------------------------------------------------------------------------

    def cluster(self, last_seq: int | None = None) -> ClusterView:
        """How it all stands. `last_seq`: of the whole log, if only its beginning was read."""
        last = self.state.seq if last_seq is None else last_seq
        return cluster_of(self._reading, self._summaries, last_seq=last)

    def status(self, asked: str) -> IdStatus:
        """How one thing stands: an id, the beginning of one, or a sequence. ConfigError if there
        is no such thing."""
        return status_of(self._reading, self._summaries, asked)

    def why(self, asked: str) -> CauseChain:
        """The chain of causes of an event, or of what an id stands for. ConfigError if there is no
        such thing."""
        return why_of(self._reading, self._summaries, asked)

    def entries(
        self, asked: str | None = None, since: int = 1, until: int | None = None
    ) -> Iterator[StoryEvent]:
        """Entries from `since` to `until`, of `asked` only if it is given; `t_plus_ms` counts from
        the first one that is shown. ConfigError if there is no such thing."""
        found: SequenceOf[Recorded] = self._reading.log
        if asked is not None:
            found = about(self._reading, self._summaries, ids.find(self.state, asked))
        last = self.state.seq if until is None else until
        shown = [r for r in found if since <= r.seq <= last]
        return (told(self._reading, r, shown[0].at_ns) for r in shown)


class Follower:
    """Tells a log entry by entry, as it comes."""

    def __init__(self) -> None:
        self._reading = Reading()
        self._named: ids.Named | None = None

    @property
    def last_seq(self) -> Sequence:
        """Of the last entry that was told."""
        return self._reading.state.seq

    def tell(self, recorded: Recorded) -> StoryEvent:
        """The next entry; its `t_plus_ms` is 0. Raises as IncidentBook() does."""
        self._reading.add(recorded)
        return told(self._reading, recorded, recorded.at_ns)

    def only(self, asked: str) -> None:
        """From here on is_wanted() tells what is about `asked`. ConfigError if there is no such
        thing yet."""
        self._named = ids.find(self._reading.state, asked)

    def is_wanted(self, recorded: Recorded) -> bool:
        """Is it about what was asked for? Of an incident: does it name it, or is it evidence of
        it so far?"""
        named, envelope = self._named, recorded.envelope
        if named is None:
            return True
        if envelope is None:
            return False
        if named.kind != ids.INCIDENT:
            return ids.is_about(envelope.body, named)
        known = self._reading.state.incidents[named.id]
        return envelope.incident == known.incident or recorded.seq in known.evidence
