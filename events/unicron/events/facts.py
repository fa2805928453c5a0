"""About facts themselves: what was observed and could not be kept for the log."""

from unicron.events.base import Fact, Part
from unicron.events.ids import Incarnation


class KindCount(Part, frozen=True, kw_only=True):
    """How many events of one type. `kind`: its tag."""

    kind: str
    count: int


class FactsDropped(Fact, frozen=True, kw_only=True, tag="facts.dropped.v1"):
    """`count` facts of the source (`who`, `incarnation`) are lost: too many waited for the log, or
    they could not be written, or what lay on the disk was damaged. It stands in their place, so
    the source's numbers have no hole.

    `after`: number of the source's last fact before them, 0 if there was none. `kinds`: of which
    types they were, as far as that is known. `first_at_ns`, `last_at_ns`: the source's wall clock
    at the first and the last of them, 0 if unknown.
    """

    who: str
    incarnation: Incarnation
    after: int
    count: int
    kinds: tuple[KindCount, ...] = ()
    reason: str = ""
    first_at_ns: int = 0
    last_at_ns: int = 0
