"""What a command says when it can't do its work, and the exit codes of the whole command line."""

import sys
import traceback
from typing import Final

import click

from unicron.controlplane.cli.output import emit, hung, json_text, width
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
    """Say it on stderr in three lines at most (broken at a terminal's width; with -vv: and where
    it was raised), and with --json also as the one document on stdout. Returns the exit code."""
    from unicron.controlplane.replay.phrases import one_line

    code = exit_code(error)
    if as_json:
        first_wrong = error.first_wrong if isinstance(error, LogBroken) else None
        _emit_document(code, error.code, error.what, error.why, error.fix, first_wrong)
    if verbosity >= 2:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    lines = [f"error: {one_line(error.what)} ({error.code})"]
    if error.why:
        lines.append(one_line(error.why))
    if error.fix:
        lines.append(f"try: {one_line(error.fix)}")
    columns = width(sys.stderr)
    click.echo("\n".join(hung(line, 2, columns) for line in lines), err=True)
    return code


def report_usage(error: click.ClickException, *, as_json: bool) -> int:
    """Say what is wrong with how the command was called: as click does on stderr and, if --json is
    among the words (which click may not have come to), as the one document on stdout. Returns the
    exit code."""
    if as_json:
        context = error.ctx if isinstance(error, click.UsageError) else None
        fix = f"{context.command_path if context is not None else 'unicron'} --help"
        _emit_document(error.exit_code, "E-USAGE", error.format_message(), "", fix)
    error.show()
    return error.exit_code


def _emit_document(
    exit_code: int, code: str, what: str, why: str, fix: str, first_wrong: int | None = None
) -> None:
    document = {
        "schema": "unicron.error/1",
        "ok": False,
        "exit_code": exit_code,
        "code": code,
        "what": what,
        "why": why or None,
        "fix": fix or None,
        "first_wrong_seq": first_wrong,
    }
    emit(json_text(document))
