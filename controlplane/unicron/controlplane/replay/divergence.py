"""Where a log and its replay part: what differs, and how to say it in a few lines."""

from collections.abc import Iterator
from typing import Any

import msgspec

from unicron.events import Sequence, UnicronError

#: Lines of a difference that are worth reading; the rest is counted.
LINES_MAX = 6
_VALUE_MAX = 80


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first entry of a log that isn't what replay makes of it.

    `what`: ``event`` (can't be read), ``newer`` (of a type that only a newer version knows),
    ``subject``, ``basis``, ``fence``, ``term``, ``version``, ``chain``, ``state``, ``decision``,
    ``digest`` (of a history file) or ``fold``. `expected` is what replay gives, `actual` what the
    log holds; `diff` says field by field where they differ. `since`: if not 0, `seq` shows that an
    entry from `since` on is wrong, and nothing in the log says which.
    """

    seq: Sequence
    what: str
    message: str
    expected: str = ""
    actual: str = ""
    diff: tuple[str, ...] = ()
    why: str = ""
    since: Sequence = Sequence(0)


class ReplayDivergence(UnicronError):
    """A log doesn't hold what its replay gives; nothing after `divergence.seq` was judged."""

    default_code = "E-REPLAY"

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(
            f"replay diverges at #{divergence.seq}: {divergence.message}",
            why=divergence.why,
            fix="don't act on this log; get it again from the stream and compare",
            code=f"E-REPLAY-{divergence.what.upper()}",
        )
        self.divergence = divergence


def differences(expected: object, actual: object) -> tuple[str, ...]:
    """``path: this by replay, that in the log`` for each field that differs, a few at most."""
    found = list(_walk(msgspec.to_builtins(expected), msgspec.to_builtins(actual), ""))
    lines = [f"{path}: {was} by replay, {is_} in the log" for path, was, is_ in found[:LINES_MAX]]
    if len(found) > LINES_MAX:
        lines.append(f"and {len(found) - LINES_MAX} more differences")
    return tuple(lines)


def _walk(expected: Any, actual: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(k for k in actual if k not in expected)]:
            inner = f"{path}.{key}" if path else str(key)
            yield from _walk(expected.get(key, _ABSENT), actual.get(key, _ABSENT), inner)
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        for index in range(max(len(expected), len(actual))):
            yield from _walk(_item(expected, index), _item(actual, index), f"{path}[{index}]")
    elif expected != actual:
        yield path or "value", shown(expected), shown(actual)


_ABSENT = "(nothing)"


def _item(values: Any, index: int) -> Any:
    return values[index] if index < len(values) else _ABSENT


def shown(value: object) -> str:
    """A value as JSON on one line, cut short."""
    if value is _ABSENT:
        return _ABSENT
    text = msgspec.json.encode(value, order="deterministic").decode()
    return text if len(text) <= _VALUE_MAX else f"{text[: _VALUE_MAX - 3]}..."
