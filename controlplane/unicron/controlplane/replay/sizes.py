"""When a task became smaller or larger, and by which order."""

import msgspec

from unicron import events as ev
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.units import count
from unicron.events import Sequence


class SizeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A task went from one number of training devices to another. `seq`: the order that did it."""

    seq: Sequence
    before: int
    after: int
    what: str


def sizes_of(reading: Reading, task: str) -> tuple[SizeChange, ...]:
    """All of them, oldest first; times at which it stood still between equal sizes are none."""
    orders = _orders(reading, task)
    changes, size = [], 0
    for pace in reading.throughput.paces.get(task, []):
        if not pace.devices or pace.devices == size:
            continue
        word = "starts on" if not size else "shrinks" if pace.devices < size else "grows"
        how = f"from {size} to " if size else ""
        changes.append(
            SizeChange(
                seq=orders.get(pace.generation, pace.seq),
                before=size,
                after=pace.devices,
                what=f"{task} {word} {how}{count(pace.devices, 'device')}",
            )
        )
        size = pace.devices
    return tuple(changes)


def _orders(reading: Reading, task: str) -> dict[int, Sequence]:
    found = {}
    for recorded in reading.log:
        body = reading.body(recorded.seq)
        if not isinstance(body, ev.TransitionOrdered) or body.task != task:
            continue
        if recorded.seq not in reading.void:
            found[int(body.generation)] = recorded.seq
    return found
