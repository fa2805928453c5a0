"""What a command says when it can't do its work, and the exit codes of the whole command line."""

import traceback
from typing import Final

import click
import msgspec

from unicron.controlplane.cli.output import emit
from unicron.events import (
    ConfigError,
    LogBroken,
    LogMismatch,
    LogTooOld,
    LogUnreachable,
    UnicronError,
)

YES: Final = 0
NO: Final = 1
UNUSABLE: Final = 2
OUT_OF_REACH: Final = 3
NOT_ALLOWED: Final = 4
INTERRUPTED: Final = 130

_BY_CODE: Final = {
    "E-DATA-NOT-RUNNING": OUT_OF_REACH,
    "E-LOG-HALF": UNUSABLE,
    "E-NATS-ADDRESS": OUT_OF_REACH,
    "E-NATS-CREDENTIALS": NOT_ALLOWED,
    "E-NATS-PERMISSION": NOT_ALLOWED,
}


def exit_code(error: UnicronError) -> int:
    """The exit code that tells a script what kind of failure it was."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    if isinstance(error, LogUnreachable):
        return OUT_OF_REACH
    if isinstance(error, ConfigError | LogMismatch | LogTooOld):
        return UNUSABLE
    return NO  # a log that was touched, a replay that diverges


def report(error: UnicronError, *, as_json: bool, verbosity: int) -> int:
    """Say it on stderr in three lines at most (with -vv: and where it was raised), and with
    --json also as the one document on stdout. Returns the exit code."""
    from unicron.controlplane.replay.phrases import one_line

    code = exit_code(error)
    if as_json:
        document = {
            "schema": "unicron.error/1",
            "ok": False,
            "exit_code": code,
            "code": error.code,
            "what": error.what,
            "why": error.why or None,
            "fix": error.fix or None,
            "first_wrong_seq": error.first_wrong if isinstance(error, LogBroken) else None,
        }
        emit(msgspec.json.format(msgspec.json.encode(document)).decode())
    if verbosity >= 2:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    lines = [f"error: {one_line(error.what)} ({error.code})"]
    if error.why:
        lines.append(one_line(error.why))
    if error.fix:
        lines.append(f"try: {one_line(error.fix)}")
    click.echo("\n".join(lines), err=True)
    return code
