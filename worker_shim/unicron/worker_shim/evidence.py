"""Long texts in facts are cut, with a note of what is missing, rather than refused.

The whole stays where it came from: the log file of the worker, on its node.
"""

import msgspec

from unicron.events.union import AnyFact

#: Characters that stay of a text when a fact would be too large for the log.
TEXT_MAX = 4000
_NOTE_MAX = 60


def cut(text: str, limit: int) -> str:
    """`text` with at most `limit` characters (80 or more): its beginning and its end, and between
    them how much was cut."""
    if len(text) <= limit:
        return text
    kept = limit - _NOTE_MAX
    head = kept // 2
    tail = kept - head
    missing = len(text) - kept
    return f"{text[:head]} [… {missing} of {len(text)} characters cut …] {text[-tail:]}"


def shortened(fact: AnyFact) -> AnyFact:
    """The fact with all its texts cut to TEXT_MAX."""
    long = {
        name: cut(value, TEXT_MAX)
        for name in fact.__struct_fields__
        if isinstance(value := getattr(fact, name), str) and len(value) > TEXT_MAX
    }
    return msgspec.structs.replace(fact, **long) if long else fact
