"""Logs that were tampered with so well that only one thing gives them away."""

from collections.abc import Callable

import msgspec

from unicron import events as ev
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import ClusterState
from unicron.events import codec

Change = Callable[[ev.Envelope], ev.Envelope]


def replace(envelope: ev.Envelope, **changes) -> ev.Envelope:
    """The envelope with other fields."""
    return msgspec.structs.replace(envelope, **changes)


def rebase(envelope: ev.Envelope, **changes) -> ev.Envelope:
    """The envelope with other fields in its basis."""
    return replace(envelope, basis=msgspec.structs.replace(envelope.basis, **changes))


def reword(envelope: ev.Envelope, **changes) -> ev.Envelope:
    """The envelope with other fields in its body."""
    return replace(envelope, body=msgspec.structs.replace(envelope.body, **changes))


def swap_in(log: list[ev.Recorded], seq: int, change: Change) -> list[ev.Recorded]:
    """The log with one event changed and nothing else."""
    forged = list(log)
    forged[seq - 1] = _again(log[seq - 1], change(log[seq - 1].envelope))
    return forged


def reforge(log: list[ev.Recorded], change: Change) -> list[ev.Recorded]:
    """The log with each event passed through `change`, and every later chain and digest made to
    fit: only deciding again can tell."""
    state, chain = ClusterState(), ev.EMPTY_CHAIN
    bases = [(chain.hex(), digest(state))]
    forged = []
    for recorded in log:
        envelope = recorded.envelope
        if envelope.basis is not None:
            hashed, digested = bases[envelope.basis.decided_at]
            envelope = rebase(envelope, chain=hashed, state_digest=digested)
        new = _again(recorded, change(envelope))
        forged.append(new)
        state = fold(state, new)
        chain = ev.extend_chain(chain, new.seq, new.subject, new.data)
        bases.append((chain.hex(), digest(state)))
    return forged


def at(seq: int, change: Change) -> Change:
    """`change` for the event at `seq` only; in a story, an event's counter says where it is."""
    seen = [0]

    def once(envelope: ev.Envelope) -> ev.Envelope:
        seen[0] += 1
        return change(envelope) if seen[0] == seq else envelope

    return once


def _again(recorded: ev.Recorded, envelope: ev.Envelope) -> ev.Recorded:
    data = codec.encode(envelope)
    return codec.record(recorded.seq, recorded.subject, data, recorded.at_ns)


def with_bytes(log: list[ev.Recorded], seq: int, old: bytes, new: bytes) -> list[ev.Recorded]:
    """The log with other bytes in one event and nothing else."""
    recorded = log[seq - 1]
    assert old in recorded.data
    data = recorded.data.replace(old, new, 1)
    forged = list(log)
    forged[seq - 1] = codec.record(seq, recorded.subject, data, recorded.at_ns)
    return forged
