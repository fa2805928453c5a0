"""`unicron events`: the log, decoded."""

from collections import deque
from typing import TYPE_CHECKING, Final

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.output import emit, escaped, hung, number, rfc3339, table, utc, width
from unicron.events import ConfigError

if TYPE_CHECKING:
    from unicron.controlplane.cli.opened import Opened
    from unicron.controlplane.replay import StoryEvent
    from unicron.events import Recorded

_SCHEMA: Final = "unicron.events/1"
#: So many entries that are there already are shown before those to come.
_NEWEST: Final = 10


@click.command()
@click.option("--for", "what", metavar="ID", help="Only what is about this one.")
@click.option("--since", callback=options.sequence, metavar="SEQ", help="From there on.")
@click.option("--until", callback=options.sequence, metavar="SEQ", help="Up to there.")
@click.option(
    "--follow", is_flag=True, help="Go on as the log does, until interrupted (NATS only)."
)
@options.log_options
@options.at_option
@options.json_option
@options.verbose_option
def events(
    what: str | None,
    since: int | None,
    until: int | None,
    follow: bool,
    log: str,
    cluster: str | None,
    at: int | None,
    as_json: bool,
) -> None:
    """Every event of a log in words: when, who, because of what, what.

    ID is a node, a task, a worker or an incident, or the beginning of one. Times are the log's own
    (UTC). With --json each event has its fields; with --follow --json it is a line each.
    """
    if follow:
        if at is not None or until is not None:
            raise click.UsageError("--follow goes on for ever: leave out --at and --until.")
        _follow(log, cluster, what, since, as_json)
        return
    from unicron.controlplane.cli.opened import open_book

    if since is not None and until is not None and since > until:
        raise click.UsageError(f"--since {since} comes after --until {until}")
    opened = open_book(log, cluster, at)
    _check_reaches(opened, since)
    told = [*opened.book.entries(what, since or 1, until)]
    emit(_as_json(opened, told) if as_json else _as_text(opened, told, what))


def _check_reaches(opened: "Opened", since: int | None) -> None:
    last = len(opened.log.events)
    if since is not None and since > max(last, 1):
        raise ConfigError(
            f"the log has no event #{since}",
            why=f"{'it' if last == opened.last_seq else 'what is told of it'} ends with #{last}",
            fix=f"give --since a sequence from 1 to {last}",
            code="E-ID-SEQUENCE",
        )


def _as_json(opened: "Opened", told: "list[StoryEvent]") -> str:
    from unicron.controlplane.cli.opened import document

    return document(_SCHEMA, opened, {"items": [_item(event) for event in told]})


def _item(event: "StoryEvent") -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(event)
    return {**fields, "at": rfc3339(event.at_ns)}


def _as_text(opened: "Opened", told: "list[StoryEvent]", what: str | None) -> str:
    from unicron.controlplane.cli.opened import next_lines
    from unicron.controlplane.cli.story_text import causes
    from unicron.controlplane.replay.phrases import one_line
    from unicron.controlplane.replay.story import NextCommand

    days = {utc(event.at_ns)[:10] for event in told}
    about = f" about {what}" if what is not None else ""
    of = f"{number(len(told))} of {number(len(opened.log.events))} events{about}"
    day = f", {next(iter(days))} UTC" if len(days) == 1 else ", times UTC" if told else ""
    lines = [hung(one_line(f"cluster {opened.log.cluster}: {of}{day}"), 2, width())]
    if told:
        rows = [
            (
                utc(event.at_ns)[0 if len(days) > 1 else 11 :],
                f"#{event.seq}",
                event.kind,
                event.who,
                causes(event.because),
                _words(event),
            )
            for event in told
        ]
        header = ("AT", "SEQ ", "KIND", "WHO", "BECAUSE", "WHAT")
        lines += ["", table(header, rows, width())]
    last = told[-1].seq if told else None
    commands = (
        NextCommand(arguments=("why", str(last)), about="why the last one came")
        if last is not None
        else NextCommand(arguments=("status",), about="what there is"),
    )
    return "\n".join([*lines, "", *next_lines(opened, commands)])


def _words(event: "StoryEvent") -> str:
    return f"{event.what}{' (void: it no longer applied)' if event.void else ''}"


# --- As it comes ---------------------------------------------------------------------------------


def _follow(log: str, cluster: str | None, what: str | None, since: int | None, raw: bool) -> None:
    """The newest entries, or those from `since` on, and then each as it comes."""
    from unicron.controlplane.cli.following import following
    from unicron.controlplane.replay.views import Follower

    follower = Follower()
    newest: deque[tuple[Recorded, StoryEvent]] = deque(maxlen=None if since else _NEWEST)
    with following(log, cluster) as (last, entries):
        for recorded in entries:
            newest.append((recorded, follower.tell(recorded)))
            if recorded.seq < last:
                continue
            if recorded.seq == last and what is not None:
                follower.only(what)
            while newest:
                entry, event = newest.popleft()
                wanted = entry.seq >= (since or 1) and follower.is_wanted(entry)
                if wanted and not emit(_json_line(event) if raw else _text_line(event)):
                    return


def _json_line(event: "StoryEvent") -> str:
    import msgspec

    return escaped(msgspec.json.encode({"schema": _SCHEMA, **_item(event)}).decode())


def _text_line(event: "StoryEvent") -> str:
    from unicron.controlplane.cli.story_text import causes
    from unicron.controlplane.replay.phrases import one_line

    when, kind = utc(event.at_ns), f"{event.kind:<8}"
    rest = f"{event.who}  {causes(event.because)}  {_words(event)}"
    return f"{when}  #{event.seq:<5}  {kind}  {one_line(rest)}"
