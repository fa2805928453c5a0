"""A host's disk: what its processes have taken and not got into the log outlives them."""

import functools
from collections.abc import Iterable

from unicron.worker_shim.dropped import filled
from unicron.worker_shim.identity import Identity
from unicron.worker_shim.leftovers import in_order
from unicron.worker_shim.publisher import FactPublisher
from unicron.worker_shim.spool import SpooledFact, read_fact


class _Spool:
    """The publisher's port."""

    behind = False

    def __init__(self) -> None:
        self.facts: list[bytes] = []
        self.size = 0

    def append(self, fact: bytes) -> None:
        self.facts.append(fact)
        self.size += len(fact)

    def keep(self, facts: Iterable[bytes]) -> None:
        self.facts = list(facts)
        self.size = sum(map(len, self.facts))

    def close(self) -> None:
        pass

    def read(self) -> tuple[SpooledFact, ...]:
        found = {f.source.counter: f for f in map(read_fact, self.facts) if f is not None}
        return filled(tuple(found[number] for number in sorted(found)))


class Disk:
    """The spools of one host, as unicron.worker_shim.leftovers has them in files."""

    def __init__(self) -> None:
        self._spools: dict[tuple[str, int], _Spool] = {}
        self._undelivered = 0

    def spool(self, identity: Identity) -> _Spool:
        """One for a process that begins."""
        key = (identity.who, identity.incarnation)
        return self._spools.setdefault(key, _Spool())

    def hand_over(self, facts: FactPublisher, *of: tuple[str, int]) -> None:
        """The agent, whose publisher that is, takes over what these (who, incarnation) left, or, if
        none is named, what everybody left."""
        keys = [key for key in of or tuple(self._spools) if key in self._spools]
        left = [(key, self._spools[key].read()) for key in keys]
        left = [(key, spooled) for key, spooled in left if spooled]
        waiting = {key: len(spooled) for key, spooled in left}
        for number, fact in in_order([spooled for _, spooled in left]):
            self._undelivered += 1
            facts.adopt(fact, functools.partial(self._stored, waiting, left[number][0]))

    def forget_undelivered(self) -> None:
        """The agent is another one: it begins with all of it."""
        self._undelivered = 0

    @property
    def is_delivered(self) -> bool:
        """The log has all that was taken over."""
        return not self._undelivered

    def _stored(self, waiting: dict[tuple[str, int], int], key: tuple[str, int]) -> None:
        self._undelivered -= 1
        waiting[key] -= 1
        if not waiting[key]:
            self._spools.pop(key, None)
