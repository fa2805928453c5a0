"""What a control plane in the foreground logs: on stderr, a line each."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

import click

#: Their failures are told once per outage by runtime/telemetry.py; they themselves tell each try.
_RETOLD: Final = "opentelemetry.exporter."


class _Lines(logging.Handler):
    """``warning: …``, for what is worth a person's attention."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        from unicron.controlplane.replay.phrases import one_line

        if not record.name.startswith(_RETOLD):
            text = one_line(record.getMessage())
            click.echo(f"{record.levelname.lower()}: {text}", err=True)


@contextlib.contextmanager
def logged_on_stderr() -> Iterator[None]:
    """Meanwhile warnings and errors that anything logs are lines on stderr."""
    root, lines = logging.getLogger(), _Lines()
    root.addHandler(lines)
    try:
        yield
    finally:
        root.removeHandler(lines)
