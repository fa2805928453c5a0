"""How far a long pass over a log has come: on stderr, only once it takes a while."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import click

from unicron.controlplane.cli.output import number

T = TypeVar("T")

#: Nobody needs to hear of what is over by then.
_PATIENCE_S: Final = 0.5
#: From one line to the next: on a terminal it is written over, elsewhere it stays.
_TERMINAL_S: Final = 0.2
_LOG_S: Final = 10.0
#: Items between two looks at the clock.
_STRIDE: Final = 64


def watched(what: str, items: Iterable[T], fraction: Callable[[], float | None]) -> Iterator[T]:
    """`items`, and now and then a line such as ``replay  31 %  1,240,000 events  8,120/s  7 s
    left``. `fraction()`: how much is done, 0 to 1; None if nobody can tell."""
    terminal = sys.stderr.isatty()
    period = _TERMINAL_S if terminal else _LOG_S
    start = time.monotonic()
    due = start + (_PATIENCE_S if terminal else max(_PATIENCE_S, period))
    shown = False
    try:
        for count, item in enumerate(items, 1):
            yield item
            if count % _STRIDE:
                continue
            now = time.monotonic()
            if now >= due:
                due, shown = now + period, True
                _show(progress_line(what, count, now - start, fraction()), terminal=terminal)
    finally:
        if shown and terminal:
            click.echo("\r\x1b[K", err=True, nl=False)


def progress_line(what: str, count: int, took_s: float, done: float | None) -> str:
    """One line: share, items, speed, and how long it will still take if that can be told."""
    speed = f"{number(count)} events  {number(round(count / took_s))}/s"
    if not done:
        return f"{what}  {speed}"
    left = took_s / done - took_s
    return f"{what}  {min(done, 1.0):4.0%}  {speed}  {left:.0f} s left".replace("%", " %")


def _show(line: str, *, terminal: bool) -> None:
    click.echo(f"\r{line}\x1b[K" if terminal else line, err=True, nl=not terminal)
