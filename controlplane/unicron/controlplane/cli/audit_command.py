"""`unicron audit`: the incidents of a log, or the story of one."""

import difflib
import shlex
from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.failure import NO, YES
from unicron.controlplane.cli.html_option import html_option, write_page
from unicron.controlplane.cli.output import emit, number
from unicron.controlplane.cli.target import STDOUT, check_spares, check_target, same_file
from unicron.controlplane.cli.trace_option import trace_option, write_traces
from unicron.events import ConfigError

if TYPE_CHECKING:  # what takes long to import is imported once the arguments are known to be good
    from unicron.controlplane.replay import IncidentBook
    from unicron.controlplane.replay.ids import Named


@click.command()
@click.argument("incident", required=False)
@options.log_options
@options.at_option
@trace_option
@html_option
@click.option("--force", is_flag=True, help="Replace what is there by the page or the trace.")
@options.json_option
@options.verbose_option
@click.pass_context
def audit(
    ctx: click.Context,
    incident: str | None,
    log: str,
    cluster: str | None,
    at: int | None,
    trace_file: str | None,
    html_file: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """All incidents and what they cost, or the story of one.

    INCIDENT is an id, or its beginning if that names only one. The story tells whom it hit, what
    was seen, decided (with what else could have been), ordered and done, by whom and when. Times
    are the log's own (UTC); T+ counts from the incident's first evidence. A cost is what the task
    would have computed at its throughput of before, by the planner's cost model, less what it did.

    The record is verified on the way; exit code 1 if it doesn't hold.
    """
    from unicron.controlplane.cli import incident_list, story_text
    from unicron.controlplane.cli.opened import open_book
    from unicron.controlplane.replay import Replayer

    _check_targets(log, html_file, trace_file, force=force, as_json=as_json)
    opened = open_book(log, cluster, at)
    chosen = None if incident is None else _find(opened.book, incident)
    report = Replayer(opened.log.events).verify()
    if trace_file is not None:
        wanted = None if chosen is None else [chosen]
        written = write_traces(trace_file, opened.log, wanted)
        click.echo(written, err=True, nl=bool(written))
    if html_file is not None:
        written = write_page(html_file, opened, chosen, report)
        click.echo(written, err=True, nl=bool(written))
    if STDOUT in (html_file, trace_file):
        pass
    elif chosen is None:
        listed = incident_list.as_json if as_json else incident_list.as_text
        emit(listed(opened, report))
    else:
        told = story_text.as_json if as_json else story_text.as_text
        emit(told(opened, opened.book.story(chosen, report), report))
    ctx.exit(YES if report.divergence is None else NO)


def _check_targets(
    log: str, html: str | None, trace: str | None, *, force: bool, as_json: bool
) -> None:
    """ConfigError if a page or a trace can't go where it should, before anything long begins."""
    given = [("--html", html, "a page"), ("--trace", trace, "a trace")]
    if force and html is None and trace is None:
        raise click.UsageError("--force goes with --html or --trace")
    to_stdout = ["--json"] if as_json else []
    to_stdout += [f"{option} -" for option, file, _ in given if file == STDOUT]
    if len(to_stdout) > 1:
        raise click.UsageError(f"{' and '.join(to_stdout[:2])} would both go to stdout")
    if html is not None and trace is not None and same_file(html, trace):
        raise click.UsageError(f"--html and --trace would both be written to {html}")
    for _, file, what in given:
        if file is not None and file != STDOUT:
            check_spares(file, log, what)
            check_target(file, what, force=force)


def _find(book: "IncidentBook", wanted: str) -> str:
    """The id that `wanted` begins. ConfigError if there is none or more than one."""
    if wanted in book.ids:
        return wanted
    found = [i for i in book.ids if i.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"{wanted!r} begins {_incidents(len(found))}",
            why=f"there are {', '.join(found[:5])}{', ...' if len(found) > 5 else ''}",
            fix=f"give more of the id, such as {found[0]}",
            code="E-AUDIT-AMBIGUOUS",
        )
    other = _other_kind(book, wanted)
    if other is not None:
        raise ConfigError(
            f"{other.id} is a {other.kind}, not an incident",
            why=f"of a {other.kind} there is a chain of causes, and its events",
            fix=f"unicron why {shlex.quote(other.id)}, or unicron events --for "
            f"{shlex.quote(other.id)}",
            code="E-AUDIT-INCIDENT",
        )
    event = wanted.removeprefix("#")
    if event.isascii() and event.isdigit():
        raise ConfigError(
            f"{wanted} is no incident",
            why="a number is an event, and an event has a chain of causes",
            fix=f"unicron why {event}: it names the incident that the event belongs to",
            code="E-AUDIT-INCIDENT",
        )
    near = difflib.get_close_matches(wanted, book.ids, n=3, cutoff=0.5)
    raise ConfigError(
        f"there is no incident {wanted!r} in this log",
        why=f"did you mean {' or '.join(near)}?" if near else f"it has {_incidents(len(book.ids))}",
        fix="unicron audit without an id lists all",
        code="E-AUDIT-INCIDENT",
    )


def _other_kind(book: "IncidentBook", wanted: str) -> "Named | None":
    """What else bears that name."""
    from unicron.controlplane.replay import ids

    try:
        found = ids.find(book.state, wanted)
    except ConfigError:
        return None
    return found if found.kind in (ids.NODE, ids.TASK, ids.WORKER) else None


def _incidents(count: int) -> str:
    return f"{number(count)} incident{'' if count == 1 else 's'}"
