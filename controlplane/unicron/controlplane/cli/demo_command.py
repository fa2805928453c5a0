"""``unicron demo``: the main job, from the first fault to the comparison of the final states."""

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

import click

from unicron.controlplane.cli.options import json_option, verbose_option
from unicron.controlplane.cli.output import emit, hung, width
from unicron.controlplane.local.faults import DEFAULT_FAULTS, listed, parse_faults
from unicron.events import ConfigError

_TARGETS = frozenset({"n1", "n2", "n1/0", "n1/1", "n2/0", "n2/1"})
_HOW = (
    "A fault reads KIND:TARGET@ITERATION[/PHASE[/DONE]]; several are separated by commas, and each "
    "comes when the one before is over. TARGET: a worker (n1/0, n1/1, n2/0, n2/1) or, for the kind "
    "node, a node (n1, n2). PHASE: forward (if none is given), backward, reduction, vote, voted, "
    "step or committed. DONE: micro-batches of the iteration that the target has finished. With "
    "`none` nothing happens, so that you can do the killing: `unicron: worker ...` are the titles "
    "in ps."
)


def _blocks() -> list[str]:
    """The kinds, and the default."""
    return "\n".join(listed()).split("\n\n")


def _help_faults(ctx: click.Context, _: click.Parameter, value: str) -> str:
    if value.strip() == "help" and not ctx.resilient_parsing:
        emit("\n".join([hung(_HOW, 0, width() or 80), "", *listed()]))
        ctx.exit()
    return value


@click.command(epilog="\n\n".join([_HOW, *(f"\b\n{block}" for block in _blocks())]))
@click.option("--iterations", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--seed", type=int, default=1234, show_default=True, help="Of model and data order.")
@click.option(
    "--faults",
    default=DEFAULT_FAULTS,
    callback=_help_faults,
    metavar="FAULTS",
    help="What is to happen, where and when, `none`, or `help`: see below. Node n3 joins anyway.",
)
@click.option(
    "--log",
    "log_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("unicron-demo.ndjson"),
    show_default=True,
    help="Where the event log is written, for unicron replay and unicron audit.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep all files of the run (logs, journals, pages, the event log) in this directory.",
)
@click.option("--nats", "url", help="A running NATS server instead of one of the demo's own.")
@click.option("--port", type=int, help="Port of the demo's own server; a free one if not given.")
@click.option("--cluster", default="demo", show_default=True, help="Name of the demo's cluster.")
@json_option
@verbose_option
def demo(
    iterations: int,
    seed: int,
    faults: str,
    log_path: Path,
    keep: Path | None,
    url: str | None,
    port: int | None,
    cluster: str,
    as_json: bool,
) -> None:
    """Train two real GPTs with megatron-core on this machine's CPUs through a killed worker, one
    that hangs, one that raises, a lost node and a joining one; then train them undisturbed and
    compare bit for bit. The lighter one gives a device to the heavier one when the node is lost,
    and both grow when the other joins.

    Prints what happens as it happens, then a timeline of each incident, what each fault was and
    what it cost, the tasks and losses beside those of undisturbed runs, and the verdict. With
    --json the last line is one JSON object. Exit code 0 only if everything held.
    """
    _require_training()
    from unicron.controlplane.local.demo import DemoOptions

    wanted = parse_faults(faults)
    _require_place(log_path, keep)
    for fault in wanted:
        if fault.target not in _TARGETS:
            raise ConfigError(
                f"there is no {fault.target} to be hit by a fault",
                why="the heavier task starts on these; the lighter one and node n3 aren't for that",
                fix="choose n1, n2, n1/0, n1/1, n2/0 or n2/1",
                code="E-FAULT",
            )
        if fault.iteration >= iterations:
            raise ConfigError(
                f"the fault in iteration {fault.iteration} comes after the end",
                why=f"the run has {iterations} iterations, counted from 0",
                fix="give more --iterations or other --faults",
                code="E-FAULT",
            )
    if keep is not None and log_path == Path("unicron-demo.ndjson"):
        log_path = keep / "log.ndjson"
    options = DemoOptions(
        iterations=iterations,
        seed=seed,
        faults=wanted,
        log_path=log_path,
        keep=keep,
        url=url,
        port=port,
        cluster=cluster,
    )
    sys.exit(_run(options, as_json=as_json))


def _require_place(log_path: Path, keep: Path | None) -> None:
    """Before anything is started: what will be written can be written."""
    why = ""
    try:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = str(error)
    folder = log_path.absolute().parent
    if not why and not os.access(folder, os.W_OK):
        why = f"{folder} can't be written to, or isn't there"
    if why:
        raise ConfigError(
            "the demo's result has no place", why=why, fix="choose another --log or --keep"
        )


def _require_training() -> None:
    missing = [m for m in ("torch", "megatron") if importlib.util.find_spec(m) is None]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} can't be imported",
            why="the demo trains for real",
            fix="pip install 'unicron-controlplane[controlplane,worker]'",
            code="E-NO-TORCH",
        )


class _Stopped(Exception):
    """A signal asked us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def _run(options: object, *, as_json: bool) -> int:
    from unicron.controlplane.local import processes

    processes.become_subreaper()
    try:
        return asyncio.run(_supervised(options, as_json=as_json))
    except _Stopped as stopped:
        with contextlib.suppress(OSError):  # SIGHUP: the terminal has gone
            click.echo(f"stopped by {stopped}: everything was ended and removed", err=True)
        return 128 + stopped.number
    finally:
        processes.end_all()


async def _supervised(options: object, *, as_json: bool) -> int:
    """Run the demo; SIGINT, SIGTERM and SIGHUP end it and all its processes, at any moment. Under
    nohup SIGHUP stays ignored."""
    import unicron.controlplane.cli.demo_report as report
    from unicron.controlplane.local.demo import Demo, DemoOptions

    assert isinstance(options, DemoOptions)
    screen = _Screen(options.iterations)
    running = asyncio.ensure_future(Demo(options, screen.say, screen.progress).run())
    asked: list[int] = []

    def stop(number: int) -> None:
        if not asked:
            asked.append(number)
            running.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    try:
        result = await running
    except asyncio.CancelledError:
        raise _Stopped(asked[0] if asked else signal.SIGINT) from None
    except Exception:
        if asked:  # whatever broke while it was ended
            raise _Stopped(asked[0]) from None
        raise
    finally:
        screen.close()
    emit(report.text(result))
    if as_json:
        emit(report.as_json(result))
    return 0 if result.ok else 1


class _Screen:
    """Lines on stdout as things happen; a moving count of iterations on a terminal's stderr."""

    def __init__(self, iterations: int) -> None:
        self._iterations = iterations
        self._start = time.monotonic()
        self._live = sys.stderr.isatty()
        self._shown = ("", 0)
        self._told = 0.0

    def say(self, line: str) -> None:
        """One thing that happened."""
        self._clear()
        told = f"{time.monotonic() - self._start:7.2f} s  {line}"
        click.echo(hung(told, 11, width()))
        sys.stdout.flush()

    def progress(self, what: str, done: int) -> None:
        """Iterations committed so far."""
        if (what, done) == self._shown:
            return
        self._shown = (what, done)
        text = f"{what}: iteration {done} of {self._iterations}"
        if self._live:
            click.echo(f"\r{text:<60}", nl=False, err=True)
        elif time.monotonic() - self._told > 10:
            self._told = time.monotonic()
            click.echo(text, err=True)

    def _clear(self) -> None:
        if self._live:
            with contextlib.suppress(OSError):
                click.echo("\r" + " " * 60 + "\r", nl=False, err=True)

    def close(self) -> None:
        """Leave the terminal's line clean."""
        self._clear()
