"""The running hash over raw events: a changed, dropped, added or swapped one shows.

chain(0) = sha256("unicron chain v1")
chain(n) = sha256(chain(n-1) + seq as 8 bytes + length of subject as 4 bytes + subject + data)

Integers are big-endian. Lengths are inside, so no two histories run together to the same bytes.
The hash is kept as bytes and written as hex.
"""

import hashlib
import struct
from collections.abc import Iterable

from unicron.events.recorded import Recorded

_head = struct.Struct(">QI").pack
#: The chain of an empty log.
EMPTY_CHAIN = hashlib.sha256(b"unicron chain v1").digest()


def extend_chain(chain: bytes, seq: int, subject: str, data: bytes) -> bytes:
    """The chain after one more raw event."""
    name = subject.encode()
    return hashlib.sha256(b"".join((chain, _head(seq, len(name)), name, data))).digest()


def chain_of(events: Iterable[Recorded], start: bytes = EMPTY_CHAIN) -> bytes:
    """The chain after all of `events`, which follow the log whose chain is `start`."""
    chain = start
    for event in events:
        chain = extend_chain(chain, event.seq, event.subject, event.data)
    return chain
