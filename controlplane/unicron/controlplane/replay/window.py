"""The newest part of a log, for whoever follows it and can't keep all."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import overload

import msgspec

from unicron.events import Recorded, Sequence


class LogPart(SequenceOf[Recorded]):
    """A log from `first` on, indexed as the whole is: by sequence less one. Slices leave out what
    stood before; an index there is an IndexError."""

    def __init__(self, first: int, entries: SequenceOf[Recorded]) -> None:
        self.first = first
        self._entries = entries

    def __len__(self) -> int:
        """As many as the whole log has."""
        return self.first - 1 + len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Recorded: ...

    @overload
    def __getitem__(self, index: slice) -> SequenceOf[Recorded]: ...

    def __getitem__(self, index: int | slice) -> Recorded | SequenceOf[Recorded]:
        before = self.first - 1
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1, "nobody goes through a log in steps"
            return self._entries[max(start - before, 0) : max(stop - before, 0)]
        if index < before:
            raise IndexError(f"#{index + 1} stood before #{self.first}")
        return self._entries[index - before]

    def __iter__(self) -> Iterator[Recorded]:
        return iter(self._entries)


class LogWindow:
    """The newest `keep` entries at least, without their raw bytes; which of them had no effect."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._first = 1
        self._entries: list[Recorded] = []
        self._void: set[Sequence] = set()
        self._twice: set[Sequence] = set()

    def add(self, recorded: Recorded, *, void: bool, twice: bool) -> None:
        """The next entry. `void`: it no longer applied; `twice`: it was heard before."""
        if not self._entries:
            self._first = recorded.seq
        self._entries.append(msgspec.structs.replace(recorded, data=b""))
        if void:
            self._void.add(recorded.seq)
        if twice:
            self._twice.add(recorded.seq)
        if len(self._entries) >= 2 * self._keep:
            self._forget(len(self._entries) - self._keep)

    def _forget(self, count: int) -> None:
        del self._entries[:count]
        self._first += count
        self._void = {seq for seq in self._void if seq >= self._first}
        self._twice = {seq for seq in self._twice if seq >= self._first}

    def part(self) -> tuple[LogPart, frozenset[Sequence], frozenset[Sequence]]:
        """What is kept as it is now, and which of it is void and which was heard before."""
        part = LogPart(self._first, tuple(self._entries))
        return part, frozenset(self._void), frozenset(self._twice)
