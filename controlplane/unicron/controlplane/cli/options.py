"""Options that mean the same in every command."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_JSON: Final = "unicron.json"
_VERBOSITY: Final = "unicron.verbosity"


def _note_json(ctx: click.Context, _: click.Parameter, wanted: bool) -> bool:
    ctx.meta[_JSON] = wanted
    return wanted


def _note_verbosity(ctx: click.Context, _: click.Parameter, level: int) -> int:
    ctx.meta[_VERBOSITY] = max(level, verbosity(ctx))
    return level


def _log(_: click.Context, __: click.Parameter, log: str) -> str:
    if not log:  # a variable that isn't set, most likely
        raise click.BadParameter("it is empty: give a history file, a folder or an address")
    return log


def wants_json(ctx: click.Context) -> bool:
    """Was --json given to the command?"""
    return bool(ctx.meta.get(_JSON, False))


def verbosity(ctx: click.Context) -> int:
    """How often -v was given, to the group or to the command."""
    level = ctx.meta.get(_VERBOSITY, 0)
    assert isinstance(level, int)
    return level


def json_option(command: F) -> F:
    """--json, as argument `as_json`."""
    return click.option(
        "--json", "as_json", is_flag=True, callback=_note_json, help="Print one JSON document."
    )(command)


def verbose_option(command: F) -> F:
    """-v and -vv, for `verbosity(ctx)`."""
    return click.option(
        "-v",
        "--verbose",
        count=True,
        expose_value=False,
        callback=_note_verbosity,
        help="Say more; twice: show where an error was raised.",
    )(command)


def log_options(command: F) -> F:
    """--log and --cluster, as arguments `log` and `cluster`."""
    cluster = click.option(
        "--cluster",
        metavar="NAME",
        help="The cluster whose log it must be; with an address: whose to read [default: demo].",
    )
    log = click.option(
        "--log",
        "log",
        required=True,
        callback=_log,
        metavar="LOG",
        help="A history file (or its folder, or - for stdin), the data folder of a `unicron up` "
        "that runs, or nats://host:port.",
    )
    return log(cluster(command))


def at_option(command: F) -> F:
    """--at, as argument `at`."""
    return click.option(
        "--at",
        callback=sequence,
        metavar="SEQ",
        help="Read the log up to there only: what could be told then.",
    )(command)


def sequence(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Callback for an option that takes a sequence as it is printed: 48211, #48211, #48,211."""
    if value is None:
        return None
    text = value.removeprefix("#").replace(",", "")
    if not text.isascii() or not text.isdigit():
        raise click.BadParameter(f"{value!r} is no sequence: give a number such as 48211")
    return int(text)
