"""`unicron audit … --html FILE`: one page that can be sent around and needs no network."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from unicron.controlplane.cli.exporting import STDOUT, check_target, is_pipe
from unicron.events import ConfigError

if TYPE_CHECKING:
    from unicron.controlplane.cli.opened import Opened
    from unicron.controlplane.replay import ReplayReport

F = TypeVar("F", bound=Callable[..., Any])


def html_option(command: F) -> F:
    """--html and --force, as arguments `html_file` and `force`."""
    force = click.option("--force", is_flag=True, help="Replace the page if FILE is there.")
    html = click.option(
        "--html",
        "html_file",
        callback=_checked,
        metavar="FILE",
        help="Write a page that needs no network; without an id, of all incidents. - is stdout.",
    )
    return html(force(command))


def _checked(ctx: click.Context, _: click.Parameter, file: str | None) -> str | None:
    if file == "":
        raise click.BadParameter("give the name of a file, or - for stdout")
    return file


def check_html(file: str | None, *, force: bool, as_json: bool) -> None:
    """ConfigError if the page can't go there, before anything long begins."""
    if file is None and force:
        raise click.UsageError("--force goes with --html")
    if file == STDOUT and as_json:
        raise click.UsageError("--json and --html - would both go to stdout")
    if file is not None and file != STDOUT:
        check_target(file, force=force)


def write_page(file: str, opened: "Opened", chosen: str | None, report: "ReplayReport") -> str:
    """Write the page of the incident `chosen`, or of all (None): whole, or not at all. A line that
    says what was written; "" if it went to stdout. ConfigError if it can't be written."""
    page = _page(opened, chosen, report).encode()
    if file == STDOUT:
        _to_stdout(page)
        return ""
    try:
        _write(Path(file), page)
    except OSError as error:
        raise ConfigError(
            f"can't write the page to {file}",
            why=error.strerror or str(error),
            fix="make room or get the permission, or give another name",
            code="E-HTML-FILE",
        ) from error
    about = "all incidents" if chosen is None else chosen
    return f"page of {about} written to {file} ({len(page) / 1e6:.2f} MB)"


def _page(opened: "Opened", chosen: str | None, report: "ReplayReport") -> str:
    from unicron.controlplane.cli.incident_list import trust_line, verdict
    from unicron.controlplane.cli.log_source import log_arguments
    from unicron.controlplane.replay.page import Frame, incident_page, overview_page

    book, log = opened.book, opened.log
    frame = Frame(
        cluster=log.cluster,
        log=log.shown,
        upto=len(log.events),
        holds=report.divergence is None,
        record=click.unstyle(trust_line(report)),
        command_end=" ".join([*opened.at, log_arguments(log)]),
    )
    if chosen is not None:
        return incident_page(frame, book.story(chosen, report))
    incidents = book.incidents()
    stories = (book.story(i.id, report) for i in reversed(incidents))
    return overview_page(frame, verdict(opened, incidents), incidents, stories, book.throughput())


def _to_stdout(page: bytes) -> None:
    try:
        with os.fdopen(os.dup(1), "wb") as out:
            out.write(page)
    except BrokenPipeError:
        return  # `| head` has seen enough


def _write(target: Path, page: bytes) -> None:
    """Put the page in the place of what stands there, or write into a pipe or a device."""
    if is_pipe(str(target)):
        target.write_bytes(page)
        return
    target = Path(os.path.realpath(target))
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
