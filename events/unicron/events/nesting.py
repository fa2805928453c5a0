"""How deeply JSON is nested, before a parser that recurses looks at it.

A parser gives up where the stack ends, which is another place for each caller: the same bytes
would be an event to one reader and none to another. So the limit is one of the data.
"""

import re
from typing import Final

#: Ours nest less than ten levels.
DEPTH_MAX: Final = 64

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_OPENS: Final = frozenset(b"[{")


def too_deep(data: bytes) -> bool:
    """Do arrays and objects nest more than DEPTH_MAX levels?"""
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return False  # almost always
    depth = 0
    for sign in re.findall(rb"[\[\]{}]", _STRING.sub(b"", data)):
        depth += 1 if sign[0] in _OPENS else -1
        if depth > DEPTH_MAX:
            return True
    return False
