"""`unicron`: one table of commands, each imported when it is called."""

import sys
from typing import Final

try:
    import click
except ModuleNotFoundError:  # an image for training only: the base has no command line
    sys.stderr.write(
        "error: the command line is not installed (E-CLI-MISSING)\n"
        "try: pip install 'unicron-controlplane[controlplane]'\n"
    )
    raise SystemExit(2) from None

from unicron.controlplane.cli.group import Command, LazyGroup
from unicron.controlplane.cli.options import verbose_option

_CLI = "unicron.controlplane.cli"

#: Command -> where it is and what `unicron --help` says about it.
COMMANDS: Final[dict[str, Command]] = {
    "demo": Command(
        f"{_CLI}.demo_command:demo",
        "Train a real model through crashes and a hang, recover, prove it.",
    ),
    "up": Command(f"{_CLI}.up_command:up", "Run a control plane for a cluster."),
    "audit": Command(
        f"{_CLI}.audit_command:audit", "What happened and what it cost, or the story of one."
    ),
    "why": Command(f"{_CLI}.why_command:why", "Why it is so: causes, back to the first evidence."),
    "events": Command(f"{_CLI}.events_command:events", "The log in words; --follow as it grows."),
    "status": Command(
        f"{_CLI}.status_command:status", "How the cluster stands, or one thing in it."
    ),
    "traceback": Command(
        f"{_CLI}.traceback_command:traceback", "What a worker raised, with its whole traceback."
    ),
    "plan": Command(f"{_CLI}.plan_command:plan", "What to run where, and why: a dry run."),
    "replay": Command(
        f"{_CLI}.replay_command:replay", "Fold a log again; --verify decides again and compares."
    ),
    "sim": Command(
        f"{_CLI}.sim_command:sim", "Run the control plane through random faults, on virtual time."
    ),
    "scenario": Command(
        f"{_CLI}.scenario_command:scenario",
        "Run an incident that was written down as text, on virtual time.",
    ),
}


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"unicron {version('unicron-controlplane')}")
        ctx.exit()


@click.group(
    cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
@verbose_option
def main() -> None:
    """Keep Megatron training tasks running through failures, and tell why.

    LOG is where a log is read from: a history file, a folder that holds one, the data folder of
    `unicron up` while that runs, or the address of a NATS server (nats://host:port). Every command
    has --json and says on failure what to try.

    Exit codes: 0 yes or done, 1 the answer is no, 2 wrong use or unreadable input, 3 out of
    reach, 4 not allowed, 130 interrupted.
    """


if __name__ == "__main__":
    main()
