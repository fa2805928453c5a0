"""`unicron audit … --html FILE`: one page that can be sent around and needs no network."""

from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli.target import STDOUT, named, write_whole
from unicron.events import ConfigError

if TYPE_CHECKING:
    from unicron.controlplane.cli.opened import Opened
    from unicron.controlplane.replay import ReplayReport

html_option = click.option(
    "--html",
    "html_file",
    callback=named,
    metavar="FILE",
    help="Write a page that needs no network; without an id, of all incidents. - is stdout.",
)


def write_page(file: str, opened: "Opened", chosen: str | None, report: "ReplayReport") -> str:
    """Write the page of the incident `chosen`, or of all (None): whole, or not at all. A line that
    says what was written; "" if it went to stdout. ConfigError if it can't be written."""
    page = _page(opened, chosen, report).encode()
    try:
        write_whole(file, page)
    except OSError as error:
        raise ConfigError(
            f"can't write the page to {file}",
            why=error.strerror or str(error),
            fix="make room or get the permission, or give another name",
            code="E-HTML-FILE",
        ) from error
    if file == STDOUT:
        return ""
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
