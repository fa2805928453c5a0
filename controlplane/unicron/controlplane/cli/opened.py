"""A log that was read for a view: the book of it, its JSON documents, the commands to type next."""

import shlex
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import msgspec

from unicron.controlplane.cli.log_source import Log, hidden_words, log_arguments, open_log
from unicron.controlplane.cli.output import json_text
from unicron.controlplane.cli.progress import watched
from unicron.controlplane.replay import IncidentBook
from unicron.controlplane.replay.phrases import one_line
from unicron.controlplane.replay.story import NextCommand
from unicron.events import ConfigError, Recorded


@dataclass(frozen=True, kw_only=True)
class Opened:
    """`log`: as far as it is told; `last_seq`: of all that is in it."""

    log: Log
    book: IncidentBook
    last_seq: int

    @property
    def at(self) -> tuple[str, ...]:
        """``--at SEQ``, if less than all is told."""
        return ("--at", str(len(self.log.events))) if len(self.log.events) < self.last_seq else ()


def open_book(log: str, cluster: str | None, at: int | None) -> Opened:
    """Read a log and fold it, up to the entry `at` if that is given. Raises as read_log() and
    IncidentBook() do; ConfigError if the log doesn't reach up to `at`."""
    with open_log(log, cluster) as opened:
        items = watched("read", opened.items, opened.fraction)
        events = tuple(item for item in items if isinstance(item, Recorded))
        shown, name, birth = opened.shown, opened.cluster, opened.birth
    last = len(events)
    if at is not None and not 0 <= at <= last:
        raise ConfigError(
            f"the log has no event #{at}",
            why=f"it ends with #{last}",
            fix=f"give a sequence from 0 to {last}",
            code="E-ID-SEQUENCE",
        )
    told = events if at is None else events[:at]
    content = Log(shown=shown, cluster=name, birth=birth, events=told)
    return Opened(log=content, book=IncidentBook(told), last_seq=last)


def document(schema: str, opened: Opened, content: object, **more: Any) -> str:
    """One JSON document: what it is and of which log, then the fields of the view."""
    fields: dict[str, Any] = {
        "schema": schema,
        "cluster": opened.log.cluster,
        "log": opened.log.shown,
        "at_seq": len(opened.log.events),
        **more,
    }
    return json_text({**fields, **msgspec.to_builtins(content)})


def next_lines(opened: Opened, commands: SequenceOf[NextCommand]) -> list[str]:
    """``next: unicron why n2 --log …``: the most useful command, on the last line; above it what
    else one may type."""
    lines = []
    for command in reversed(commands):
        words = " ".join(map(shlex.quote, ("unicron", *command.arguments, *opened.at)))
        lines.append(one_line(f"{words} {log_arguments(opened.log)}"))
    hidden = hidden_words(opened.log)
    others = [f"also: {line}" for line in lines[:-1]]
    return [*([hidden] if hidden else []), *others, *(f"next: {line}" for line in lines[-1:])]
