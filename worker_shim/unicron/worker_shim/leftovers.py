"""What the dead of a node left unsaid: found in their spools, delivered by the agent, removed.

All of it goes through the agent's own publisher, so it reaches the log before what the agent says
afterwards: a dead worker's last words before the news of its end, those of an earlier life of the
agent before the next one says that it has started. The other way round they would do harm: whoever
reads the log takes a life that it hears of later for the later one.
"""

import asyncio
import heapq
import logging
import os
import stat
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf

from unicron.events.ids import ClusterId
from unicron.worker_shim import dropped
from unicron.worker_shim.publisher import FactPublisher
from unicron.worker_shim.spool import HALF_SUFFIX, SUFFIX, Contents, SpooledFact, decode, is_held

log = logging.getLogger(__name__)

#: Spools that an agent which starts may find, and their bytes. Of more it takes the oldest; what
#: the others held is dropped, and it says so.
LEFT_LIMIT_FILES = 1000
LEFT_LIMIT_BYTES = 128 * 1024 * 1024

#: A process that was killed needs so long to be gone, at most.
_HELD_LIMIT_S = 5.0
_LOOK_S = 0.02


class Leftovers:
    """In the agent of a node: `folder` is the node's, `facts` the agent's publisher."""

    def __init__(self, folder: str, cluster: ClusterId, facts: FactPublisher) -> None:
        self._folder = folder
        self._cluster = cluster
        self._facts = facts
        self._undelivered = 0
        self._none = asyncio.Event()
        self._none.set()
        self._ends = False

    async def of_earlier_lives(self) -> None:
        """Take over all that lies in the folder. Call it before the agent's first fact, when the
        workers of earlier agents have been killed."""
        names = sorted(os.listdir(self._folder))
        paths = [os.path.join(self._folder, name) for name in names if name.endswith(SUFFIX)]
        for name in names:
            if name.endswith(HALF_SUFFIX):  # what it was to replace is there still
                _remove(os.path.join(self._folder, name))
        found: list[tuple[str, Contents]] = []
        for path in paths:
            contents = self._read(path) if await _let_go(path) else None
            if contents is not None:
                found.append((path, contents))
        kept, too_many = _within_limits(found)
        self._adopt(kept)
        for path, contents in too_many:
            self._drop(path, contents)

    def of_worker(self, path: str) -> None:
        """A worker is gone: take over what it hadn't got into the log."""
        contents = self._read(path)
        if contents is not None:
            self._adopt([(path, contents)])

    async def delivered(self) -> bool:
        """Wait until the log has all that was taken over. False: the agent ends before that."""
        await self._none.wait()
        return not self._ends

    def close(self) -> None:
        """Nobody waits any more. What is still to be delivered is, or stays on the disk."""
        self._ends = True
        self._none.set()

    def _read(self, path: str) -> Contents | None:
        """None if there is nothing in it for us; an empty one is removed."""
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # to read a pipe may take for ever
                log.error("%s is no file: left alone", path)
                return None
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.error("%s can't be read, what it holds stays there: %s", path, error.strerror)
            return None
        contents = decode(data)
        if contents.owner is not None and contents.owner.cluster != self._cluster:
            log.error("%s is of the cluster %s: left alone", path, contents.owner.cluster)
            return None
        if contents.damaged:
            log.warning("%s is damaged in %d places; the rest is used", path, contents.damaged)
        if not contents.facts:
            _remove(path)
            return None
        return contents

    def _adopt(self, found: list[tuple[str, Contents]]) -> None:
        spools = [_Undelivered(path, dropped.filled(c.facts)) for path, c in found]
        for spool in spools:
            log.info("%s: %d facts that somebody left are delivered", spool.path, len(spool.facts))
        for number, fact in in_order([spool.facts for spool in spools]):
            spool = spools[number]
            self._undelivered += 1
            if not self._ends:
                self._none.clear()
            self._facts.adopt(fact, lambda spool=spool: self._stored(spool))  # type: ignore[misc]

    def _stored(self, spool: "_Undelivered") -> None:
        spool.left -= 1
        if not spool.left:
            _remove(spool.path)
        self._undelivered -= 1
        if not self._undelivered:
            self._none.set()

    def _drop(self, path: str, contents: Contents) -> None:
        log.error("%s is given up with %d facts: too much was left", path, len(contents.facts))
        for fact in dropped.left(list(contents.facts), "too much was left on the node's disk"):
            self._facts.publish(fact)
        _remove(path)


class _Undelivered:
    def __init__(self, path: str, facts: tuple[SpooledFact, ...]) -> None:
        self.path = path
        self.facts = facts
        self.left = len(facts)


def in_order(
    spools: SequenceOf[SequenceOf[SpooledFact]],
) -> Iterator[tuple[int, SpooledFact]]:
    """The facts of all spools, none of which is empty, each with the index of its spool: lives of
    one source one after the other, sources among each other by their time, which is the same
    host's."""
    sources: dict[str, list[int]] = {}
    for number in sorted(range(len(spools)), key=lambda n: spools[n][0].source.incarnation):
        sources.setdefault(spools[number][0].source.who, []).append(number)
    streams = [
        [(number, fact) for number in lives for fact in spools[number]]
        for lives in sources.values()
    ]
    return iter(heapq.merge(*streams, key=lambda pair: pair[1].written_at_ns))


def _within_limits(
    found: list[tuple[str, Contents]],
) -> tuple[list[tuple[str, Contents]], list[tuple[str, Contents]]]:
    """The oldest that are within the limits, and the others."""
    found = sorted(found, key=lambda pair: pair[1].facts[0].written_at_ns)
    size = 0
    for number, (_, contents) in enumerate(found):
        size += sum(len(fact.data) for fact in contents.facts)
        if number >= LEFT_LIMIT_FILES or size > LEFT_LIMIT_BYTES:
            return found[:number], found[number:]
    return found, []


async def _let_go(path: str) -> bool:
    """Wait until the process that writes it is gone. False: it isn't."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _HELD_LIMIT_S
    try:
        while is_held(path):
            if loop.time() > until:
                log.error("%s is in use still; is another agent of this node running?", path)
                return False
            await asyncio.sleep(_LOOK_S)
    except OSError:
        pass  # gone, or not to be opened: reading it says so
    return True


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            log.error("%s can't be removed, it will be sent again: %s", path, error.strerror)
