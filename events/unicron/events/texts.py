"""How texts that are too long for the log lie beside it: in parts, under their digest."""

import hashlib
from typing import Final

from unicron.events.worker import LongText

#: Of a text. Longer ones are cut.
TEXT_MAX_BYTES: Final = 4 * 1024 * 1024
#: Of a part, which is a message: less than any server takes.
PART_BYTES: Final = 256 * 1024


def part_count(text: LongText) -> int:
    """How many messages it is."""
    return -(-text.size // PART_BYTES)


def is_whole(text: LongText, data: bytes) -> bool:
    """Is that the text, every bit of it?"""
    return len(data) == text.size and hashlib.sha256(data).hexdigest() == text.sha256
