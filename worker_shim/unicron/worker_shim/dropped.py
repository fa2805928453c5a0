"""Says of facts that can't reach the log that they are lost: events that stand in their place."""

from collections import Counter

from unicron.events import codec
from unicron.events.envelope import Envelope, Source, event_id
from unicron.events.facts import FactsDropped, KindCount
from unicron.events.union import AnyFact
from unicron.worker_shim.spool import SpooledFact

_REASON_MAX = 300
#: Numbers in a row that damage may have taken: ten times what a spool holds.
FILLED_MAX = 100_000


class Gap:
    """Facts of one source that were dropped one after the other, until the log can be told.
    `after`: number of the last fact before them."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.count = 0
        self._kinds: Counter[str] = Counter()
        self._reasons: dict[str, None] = {}
        self._first_at_ns = self._last_at_ns = 0

    def add(self, fact: AnyFact, why: str, at_ns: int) -> None:
        """One more. `at_ns`: wall time."""
        self.count += 1
        self._kinds[tag_of(fact)] += 1
        self._reasons[why] = None
        self._first_at_ns = self._first_at_ns or at_ns
        self._last_at_ns = at_ns

    def fact(self, source: Source) -> FactsDropped:
        """What the source says about them."""
        return FactsDropped(
            who=source.who,
            incarnation=source.incarnation,
            after=self.after,
            count=self.count,
            kinds=_counts(self._kinds),
            reason="; ".join(self._reasons)[:_REASON_MAX],
            first_at_ns=self._first_at_ns,
            last_at_ns=self._last_at_ns,
        )


def tag_of(fact: AnyFact) -> str:
    return str(type(fact).__struct_config__.tag)


def in_place_of(fact: SpooledFact, why: str) -> SpooledFact:
    """What takes the number of a fact that can't be sent, in the name of its source."""
    return _stand_in(fact.source, fact.written_at_ns, why, fact.kind)


def filled(facts: tuple[SpooledFact, ...]) -> tuple[SpooledFact, ...]:
    """A source's facts without a hole in their numbers: for each that is missing, what says so. A
    hole larger than any damage stays: the log names it, and it fills no memory."""
    whole: list[SpooledFact] = []
    for fact in facts:
        hole = fact.source.counter - whole[-1].source.counter - 1 if whole else 0
        for _ in range(hole if hole <= FILLED_MAX else 0):
            last = whole[-1]
            source = Source(
                who=last.source.who,
                incarnation=last.source.incarnation,
                counter=last.source.counter + 1,
            )
            whole.append(_stand_in(source, last.written_at_ns, "damaged on the node's disk"))
        whole.append(fact)
    return tuple(whole)


def left(facts: list[SpooledFact], why: str) -> list[FactsDropped]:
    """For each source of these facts, what another one says about their loss."""
    sources = dict.fromkeys((f.source.who, f.source.incarnation) for f in facts)
    said = []
    for who, incarnation in sources:
        own = [f for f in facts if (f.source.who, f.source.incarnation) == (who, incarnation)]
        said.append(
            FactsDropped(
                who=who,
                incarnation=incarnation,
                after=own[0].source.counter - 1,
                count=len(own),
                kinds=_counts(Counter(f.kind for f in own)),
                reason=why,
                first_at_ns=own[0].written_at_ns,
                last_at_ns=own[-1].written_at_ns,
            )
        )
    return said


def _counts(kinds: Counter[str]) -> tuple[KindCount, ...]:
    return tuple(KindCount(kind=kind, count=kinds[kind]) for kind in sorted(kinds))


def _stand_in(source: Source, at_ns: int, why: str, kind: str = "") -> SpooledFact:
    body = FactsDropped(
        who=source.who,
        incarnation=source.incarnation,
        after=source.counter - 1,
        count=1,
        kinds=(KindCount(kind=kind, count=1),) if kind else (),
        reason=why[:_REASON_MAX],
        first_at_ns=at_ns,
        last_at_ns=at_ns,
    )
    envelope = Envelope(id=event_id(source), source=source, written_at_ns=at_ns, body=body)
    return SpooledFact(
        source=source, written_at_ns=at_ns, kind=tag_of(body), data=codec.encode(envelope)
    )
