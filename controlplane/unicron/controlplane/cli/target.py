"""FILE, as options take it: stdout, a pipe, or a file that is replaced only when told to."""

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

import click

from unicron.events import ConfigError

#: The FILE that means stdout.
STDOUT: Final = "-"


def named(_: click.Context, __: click.Parameter, file: str | None) -> str | None:
    """Callback for an option that takes a FILE."""
    if file == "":
        raise click.BadParameter("give the name of a file, or - for stdout")
    return file


def check_target(file: str, what: str, *, force: bool) -> None:
    """ConfigError if `file` can't be written, before anything long begins. `what` is to be written
    into it: ``a page``."""
    path = Path(file)
    if os.path.isdir(path):
        raise ConfigError(
            f"{file} is a folder",
            fix=f"give the name of a file in it, such as {path / 'log.ndjson'}",
            code="E-EXPORT-TARGET",
        )
    if os.path.isfile(path) and not force:
        raise ConfigError(
            f"{file} is there already",
            why=f"{what} replaces nothing by itself",
            fix="give another name, or say --force",
            code="E-EXPORT-EXISTS",
        )
    if not os.path.isdir(path.parent):
        raise ConfigError(
            f"{file} can't be written: there is no folder {path.parent}",
            fix="make the folder, or give another name",
            code="E-EXPORT-TARGET",
        )


def check_spares(file: str, log: str, what: str) -> None:
    """ConfigError if `file` is the log itself, or stands among those of the folder that LOG is:
    nothing takes the place of the record, whatever is forced."""
    if not os.path.isfile(file) or not os.path.exists(log):
        return
    beside = os.path.isdir(log) and os.path.samefile(os.path.dirname(file) or ".", log)
    if os.path.samefile(file, log) or (beside and file.endswith((".ndjson", ".ndjson.zst"))):
        raise ConfigError(
            f"{file} is the log that is read",
            why=f"{what} in its place would destroy it",
            fix="give another name",
            code="E-EXPORT-TARGET",
        )


def same_file(one: str, other: str) -> bool:
    """Do both name the same place?"""
    return os.path.realpath(one) == os.path.realpath(other)


def is_pipe(file: str) -> bool:
    """Stdout, or something else that isn't an ordinary file or the place for one."""
    if file == STDOUT:
        return True
    try:
        return not stat.S_ISREG(os.stat(file).st_mode)
    except FileNotFoundError:
        return False


def write_whole(file: str, content: bytes) -> None:
    """Put it in the place of what stands there, whole or not at all; or write it to stdout, into a
    pipe or a device. OSError if that fails."""
    if file == STDOUT:
        _to_stdout(content)
        return
    if is_pipe(file):
        Path(file).write_bytes(content)
        return
    target = Path(os.path.realpath(file))
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as written:
            written.write(content)
            written.flush()
            os.fsync(written.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _to_stdout(content: bytes) -> None:
    try:
        with os.fdopen(os.dup(1), "wb") as out:
            out.write(content)
    except BrokenPipeError:
        return  # `| head` has seen enough
