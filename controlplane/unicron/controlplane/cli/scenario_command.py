"""`unicron scenario`: incidents written down as text, run on virtual time."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.output import emit, number

if TYPE_CHECKING:
    from unicron.controlplane.testing.scenario import Scenario
    from unicron.controlplane.testing.scripted import Report


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--trace/--no-trace",
    default=None,
    help="Print what happened, a line each [default: if there is one FILE].",
)
@click.option(
    "--write",
    is_flag=True,
    help="Write the trace into each FILE below its ---- line, if all else is as it should be.",
)
@options.json_option
@options.verbose_option
@click.pass_context
def scenario(
    ctx: click.Context, paths: tuple[Path, ...], trace: bool | None, write: bool, as_json: bool
) -> None:
    """Run incidents that were written down: what happens to which node or worker and when, and
    what is to come of it.

    A FILE says so in plain sentences, one a line, for example

    \b
      node n1 with 2 devices
      node n2 with 2 devices
      task gpt of 60 iterations, 8 micro-batches
      at 6 s, n1/1 is killed by signal 9
      expect gpt completed
      expect n1/1 starts 2 times

    The real engine, rules and protocols run through it on virtual time; the same file always
    gives the same trace. All sentences: docs/scenarios.md.

    Without --write the trace must be the one below the file's ---- line, if there is one.

    Exit codes: 1 something expected, or the trace, is otherwise, 2 a file can't be read,
    10 an invariant was violated, 11 something never ended, 12 a replay of the log differs.
    """  # noqa: D301
    from unicron.controlplane.testing import scripted

    logging.getLogger("unicron").addHandler(logging.NullHandler())  # the trace says it all
    scenarios = [_read(path) for path in paths]
    reports = []
    shown = len(paths) == 1 if trace is None else trace
    for path, wanted in zip(paths, scenarios, strict=True):
        report = scripted.run(wanted)
        if write and report.held:
            report = _write(path, report)
        reports.append(report)
        if not as_json:
            emit("\n".join(_text(report, trace=shown, verbose=len(paths) == 1, write=write)))
    if as_json:
        emit(_document(reports))
    codes = {report.code for report in reports}
    ctx.exit(next((code for code in (10, 12, 11, 1) if code in codes), 0))


def _read(path: Path) -> "Scenario":
    from unicron.controlplane.testing.scenario import ScenarioError, parse

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} can't be read: {error}", fix="give a text file") from None
    return parse(text, str(path))


def _write(path: Path, report: "Report") -> "Report":
    """The report as it is once its trace has been kept."""
    import msgspec

    path.write_text(report.text, encoding="utf-8")
    return msgspec.structs.replace(
        report, scenario=msgspec.structs.replace(report.scenario, golden=report.golden)
    )


def _text(report: "Report", *, trace: bool, verbose: bool, write: bool) -> list[str]:
    lines = [*report.golden.splitlines(), ""] if trace else []
    if verbose:
        lines += [
            f"+ {f.text}" if not f.found else f"x {f.text}: {f.found}" for f in report.findings
        ]
    wrong = report.failures() if verbose else report.wrong()
    lines += [f"x {line}" for line in wrong]
    if report.scenario.golden:
        lines += report.difference()
    outcome = report.outcome
    length = f"{number(len(outcome.log))} events in {outcome.seconds:.1f} s of virtual time"
    return [
        *lines,
        f"{_verdict(report)}  {report.scenario.path}: {length}{_hint(report, write=write)}",
    ]


def _verdict(report: "Report") -> str:
    """The trace differs if nothing else is wrong."""
    if report.code:
        return click.style("x differs" if report.held else "x fails", fg="red", bold=True)
    return click.style("+ holds", fg="green", bold=True)


def _hint(report: "Report", *, write: bool) -> str:
    if write and not report.held:
        why = "the run failed" if report.failures() else "an expectation isn't met"
        return f"; not written: {why}"
    if report.held and not report.scenario.golden:
        return "; it has no trace yet, keep this one with --write"
    if report.held and not report.same_trace:
        return "; if you can say why the trace is right now, keep it with --write"
    return ""


def _document(reports: "list[Report]") -> str:
    import msgspec

    document = {
        "schema": "unicron.scenarios/1",
        "ok": not any(report.code for report in reports),
        "items": [_item(report) for report in reports],
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _item(report: "Report") -> dict[str, Any]:
    outcome, scenario = report.outcome, report.scenario
    return {
        "file": scenario.path,
        "title": scenario.title,
        "ok": not report.code,
        "exit_code": report.code,
        "events": len(outcome.log),
        "virtual_ms": round(outcome.seconds * 1000),
        "digest": outcome.digest,
        "expectations": [
            {"line": f.line, "text": f.text, "ok": not f.found, "found": f.found or None}
            for f in report.findings
        ],
        "never_happened": [{"line": h.line, "text": h.text} for h in report.undone],
        "violations": outcome.violations,
        "stuck": outcome.stuck or None,
        "divergence": report.divergence or None,
        "same_trace": report.same_trace if scenario.golden else None,
        "trace": report.golden.splitlines(),
    }
