"""The digest of a state: what its content alone decides, and cheap to work out again.

Every decision carries one, so with ten thousand nodes it must not cost what encoding them does.
Maps of up to INLINE_MAX entries stand in the state's canonical bytes. A larger one is empty there,
and a line for it follows: its name, its size, and the hash of the hashes of its buckets. The crc32
of its key says in which bucket an entry is; a bucket's hash is over its canonical bytes. So only
buckets in which an entry is another object than last time are encoded again.

What is kept from one call to the next is never seen: a state read from a file, whose objects are
all new, has the same digest. The definition belongs to FOLD_VERSION.
"""

import hashlib
from typing import Any, Final, get_origin
from zlib import crc32

import msgspec

from unicron.controlplane.core.change import changed_keys, replace
from unicron.controlplane.core.state import ClusterState

#: Larger maps are hashed in buckets.
INLINE_MAX: Final = 64
_BUCKETS: Final = 256
_SIZE: Final = hashlib.sha256().digest_size
_MAPS: Final = tuple(
    f.name for f in msgspec.structs.fields(ClusterState) if get_origin(f.type) is dict
)

_encoder = msgspec.json.Encoder(order="deterministic")


class _Buckets:
    """One large map as it was last hashed."""

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = [{} for _ in range(_BUCKETS)]
        self._hashes = bytearray(_hash({}) * _BUCKETS)

    def digest(self, entries: dict[str, Any]) -> str:
        """The hash (hex) of the map as it is now."""
        touched: dict[int, None] = {}
        for key in changed_keys(self._seen, entries):
            number = crc32(key.encode()) % _BUCKETS
            touched[number] = None
            if key in entries:
                self._parts[number][key] = entries[key]
            else:
                del self._parts[number][key]
        for number in touched:
            self._hashes[number * _SIZE : (number + 1) * _SIZE] = _hash(self._parts[number])
        self._seen = entries
        return hashlib.sha256(self._hashes).hexdigest()


def _hash(part: dict[str, Any]) -> bytes:
    return hashlib.sha256(_encoder.encode(part)).digest()


#: The large maps of the state that was looked at last, by name. Whoever works with them takes them
#: out meanwhile, so that another thread begins anew instead of meeting half of a change.
_kept: list[dict[str, _Buckets]] = []


def digest(state: ClusterState) -> str:
    """sha256 (hex) over the state's content."""
    large = [name for name in _MAPS if len(getattr(state, name)) > INLINE_MAX]
    if not large:
        return hashlib.sha256(_encoder.encode(state)).hexdigest()
    try:
        kept = _kept.pop()
    except IndexError:
        kept = {}
    empty: dict[str, Any] = {}
    whole = hashlib.sha256(_encoder.encode(replace(state, **dict.fromkeys(large, empty))))
    for name in large:
        entries = getattr(state, name)
        found = kept.setdefault(name, _Buckets()).digest(entries)
        whole.update(f"\n{name} {len(entries)} {found}".encode())
    _kept[:] = [kept]
    return whole.hexdigest()
