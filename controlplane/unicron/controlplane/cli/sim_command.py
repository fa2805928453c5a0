"""`unicron sim`: the control plane under random faults on virtual time."""

import sys
import time
from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.output import emit, number, table, width

if TYPE_CHECKING:
    from unicron.controlplane.testing.campaign import Result
    from unicron.controlplane.testing.options import Options

_SHRINK_TRIES = 200
#: How often progress is told: to a person, and to a file.
_PROGRESS_S = (1.0, 15.0)


@click.command()
@click.option("--seed", type=click.IntRange(0), metavar="S", help="Run this seed [default: 0].")
@click.option(
    "--seeds", type=click.IntRange(1), metavar="N", help="Run so many seeds, from --seed on."
)
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, metavar="J")
@click.option("--trace", is_flag=True, help="Print what happened, a line each, in fixed columns.")
@click.option(
    "--run",
    "path",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Run what a failing seed was shrunk to.",
)
@click.option(
    "--keep",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Shrink a failing seed to the faults that matter, and keep it there.",
)
@options.json_option
@options.verbose_option
@click.pass_context
def sim(
    ctx: click.Context,
    seed: int | None,
    seeds: int | None,
    jobs: int,
    trace: bool,
    path: str | None,
    keep: str | None,
    as_json: bool,
) -> None:
    """Run the real engine, fold, decide, shim and agent protocols through random faults.

    Time is virtual and everything follows from the seed: the same seed and commit give the same
    trace, byte for byte. First things go wrong, and the invariants must hold after every event;
    then all is mended, and every task and incident must come to an end; then the log is replayed
    under another PYTHONHASHSEED and every decision made again.

    Exit codes: 10 an invariant was violated, 11 something never ended, 12 the replay differs.
    """
    if path is not None and (seed is not None or seeds is not None):
        raise click.UsageError("--run takes its seed from the file: leave --seed and --seeds out")
    if seeds is not None and trace:
        raise click.UsageError("--trace shows one run: give --seed instead of --seeds")
    if seeds is not None:
        ctx.exit(_many(range(seed or 0, (seed or 0) + seeds), jobs, keep, as_json))
    ctx.exit(_single(_options(seed or 0, path), trace, keep, as_json))


def _options(seed: int, path: str | None) -> "Options":
    from unicron.controlplane.testing import kept
    from unicron.controlplane.testing.seeds import options_of

    return options_of(seed) if path is None else kept.read(path)


# --- One run --------------------------------------------------------------------------------------


def _single(wanted: "Options", trace: bool, keep: str | None, as_json: bool) -> int:
    from unicron.controlplane.testing.audit import Auditor
    from unicron.controlplane.testing.campaign import commit, examine

    source = commit()
    if not as_json:
        emit(f"seed {wanted.seed}, {source}")
    with Auditor() as auditor:
        outcome, result = examine(wanted, auditor)
    if as_json:
        emit(_document(result, source))
    else:
        emit("\n".join([*(outcome.lines if trace else ()), *_about(result)]))
    if result.code and keep is not None:
        _keep(wanted, result, keep)
    return result.code


def _document(result: "Result", source: str) -> str:
    import msgspec

    fields = msgspec.to_builtins(result)
    document = {"schema": "unicron.sim/1", "ok": not result.code, "source": source, **fields}
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _about(result: "Result") -> list[str]:
    fired = ", ".join(f"{kind} {count}" for kind, count in result.fired.items())
    length = f"{result.seconds:.0f} s of virtual time, {number(result.decisions)} decisions"
    return [
        f"events      {number(result.events)} in {length}",
        f"faults      {number(result.faults_fired)} fired: {fired}",
        f"digest      {result.digest}",
        *(_findings(result) or ["+ holds: invariants, liveness, replay"]),
    ]


def _findings(result: "Result") -> list[str]:
    from unicron.controlplane.replay.phrases import one_line

    return [
        f"x {found.name}{f' at #{found.seq}' if found.seq else ''}: {one_line(found.what)}"
        for found in result.violations
    ]


# --- Many runs ------------------------------------------------------------------------------------


def _many(seeds: range, jobs: int, keep: str | None, as_json: bool) -> int:
    from unicron.controlplane.testing.campaign import campaign, commit

    source, results, told = commit(), [], time.monotonic()
    if not as_json:
        emit(f"seeds {seeds.start} to {seeds.stop - 1}, {source}")
    for result in campaign(seeds, jobs):
        results.append(result)
        for line in _findings(result):
            click.echo(f"seed {result.seed}: {line}", err=True)
        done = len(results) == len(seeds)
        if not done and time.monotonic() - told > _PROGRESS_S[not sys.stderr.isatty()]:
            told = time.monotonic()
            _progress(len(results), len(seeds), sum(bool(r.code) for r in results))
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    emit(_summary_document(results, source) if as_json else _summary(results))
    bad = [r for r in results if r.code]
    if bad and keep is not None:
        from unicron.controlplane.testing.seeds import options_of

        for result in bad[:3]:
            _keep(options_of(result.seed), result, keep)
    return min((r.code for r in bad), default=0)


def _progress(done: int, total: int, failed: int) -> None:
    text = f"{done} of {total} seeds, {failed} failed"
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", err=True, nl=False)
    else:
        click.echo(text, err=True)


def _summary(results: "list[Result]") -> str:
    runs = len(results)
    events, faults = sum(r.events for r in results), sum(r.faults_fired for r in results)
    kinds: dict[str, list[int]] = {}
    for result in results:
        for kind, count in result.fired.items():
            kinds.setdefault(kind, []).append(count)
    rows = [(kind, number(sum(c)), number(len(c))) for kind, c in sorted(kinds.items())]
    bad = [r for r in results if r.code]
    verdict = (
        [f"x {len(bad)} of {runs} seeds failed; again: unicron sim --seed {bad[0].seed} --trace"]
        if bad
        else [f"+ holds in all {runs} seeds: invariants, liveness, replay"]
    )
    return "\n".join(
        [
            table(("FAULT", "FIRED ", "SEEDS "), rows, width()),
            "",
            f"events      {number(events)}, {number(events // runs)} a seed",
            f"faults      {number(faults)} fired, {number(faults // runs)} a seed",
            *verdict,
        ]
    )


def _summary_document(results: "list[Result]", source: str) -> str:
    import msgspec

    document = {
        "schema": "unicron.sims/1",
        "ok": not any(r.code for r in results),
        "source": source,
        "events": sum(r.events for r in results),
        "faults_fired": sum(r.faults_fired for r in results),
        "seeds": msgspec.to_builtins(results),
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _keep(wanted: "Options", result: "Result", folder: str) -> None:
    """Shrink a failing run, and write it where tests run it again and again."""
    from msgspec.structs import replace

    from unicron.controlplane.testing import kept
    from unicron.controlplane.testing.audit import Auditor
    from unicron.controlplane.testing.campaign import examine
    from unicron.controlplane.testing.shrink import shrink

    names = {found.name for found in result.violations}

    def fails(smaller: "Options") -> bool:
        found = examine(smaller, auditor)[1].violations
        return bool(names & {f.name for f in found})

    # What would have come after it failed can't matter.
    end_ms = int(1000 * result.seconds)
    wanted = replace(wanted, faults=tuple(f for f in wanted.faults if f.at_ms <= end_ms))
    click.echo(f"seed {wanted.seed}: shrinking {len(wanted.faults)} faults …", err=True)
    with Auditor() as auditor:
        least = shrink(wanted, fails, _SHRINK_TRIES)
    path = kept.write(folder, least)
    click.echo(f"seed {wanted.seed}: {len(least.faults)} faults are enough", err=True)
    click.echo(f"next: unicron sim --run {path} --trace", err=True)
