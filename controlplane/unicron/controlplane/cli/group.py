"""A click group that imports a command when it is called and ends with the right exit code."""

import difflib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from unicron.controlplane.cli import failure, options
from unicron.events import UnicronError


@dataclass(frozen=True, slots=True)
class Command:
    """`target` is ``module:attribute``; `about` is its line in the group's help."""

    target: str
    about: str

    def load(self) -> click.Command:
        """Import it."""
        module, _, attribute = self.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), self.target
        return command


class LazyGroup(click.Group):
    """Commands come from `table`. What a command raises becomes a message and an exit code."""

    def __init__(self, *args: Any, table: Mapping[str, Command], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self.table.get(cmd_name)
        return found.load() if found is not None else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.table, n=1)
            hint = f" Did you mean {near[0]}?" if near else f"\nThere are: {', '.join(self.table)}."
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.about) for name, command in self.table.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UnicronError as error:
            ctx.exit(
                failure.report(
                    error, as_json=options.wants_json(ctx), verbosity=options.verbosity(ctx)
                )
            )

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run and exit, with the codes that the whole command line shares."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except click.Abort:
            sys.exit(failure.INTERRUPTED)
        except click.ClickException as error:
            given = kwargs.get("args", args[0] if args else None)
            words = sys.argv[1:] if given is None else given
            sys.exit(failure.report_usage(error, as_json="--json" in words))
        sys.exit(code if isinstance(code, int) else 0)
