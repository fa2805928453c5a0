"""`unicron plan`: what to run where, for a problem in a file."""

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.output import emit, json_text, width
from unicron.controlplane.cli.target import write_whole
from unicron.events import ConfigError

if TYPE_CHECKING:
    from unicron.controlplane.cli.plan_text import Answer
    from unicron.planner import Plan, PlanProblem

_STRATEGIES = ("equal", "weighted", "sized", "current")


@click.command()
@click.argument("file", metavar="PROBLEM", type=click.Path(path_type=Path))
@click.option("--fail", "failing", multiple=True, metavar="NODE", help="... if NODE fails.")
@click.option("--drain", multiple=True, metavar="NODE", help="... if NODE is to be emptied.")
@click.option("--join", multiple=True, metavar="KIND:N", help="... if N nodes of KIND join.")
@click.option("--finish", multiple=True, metavar="TASK", help="... if TASK ends.")
@click.option(
    "--method",
    type=click.Choice(("cpsat", "dp", "local")),
    default="cpsat",
    show_default=True,
    help="The best plan; the one that is there at once after a failure; or changing only what "
    "was hit.",
)
@click.option(
    "--compare",
    multiple=True,
    type=click.Choice((*_STRATEGIES, "all")),
    help="Also what dividing the devices equally, by weight, by the tasks' sizes, or leaving "
    "them would come to.",
)
@click.option(
    "--next",
    "following",
    is_flag=True,
    help="Also what would be done if, after that, any one node fails or joins or a task ends.",
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the plan there."
)
@options.json_option
@options.verbose_option
def plan(
    file: Path,
    failing: tuple[str, ...],
    drain: tuple[str, ...],
    join: tuple[str, ...],
    finish: tuple[str, ...],
    method: str,
    compare: tuple[str, ...],
    following: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """What to run where: sizes, layouts and places of all tasks, and why.

    PROBLEM is a TOML or JSON file: the nodes, the tasks and what they could run. For example

    \b
      [[nodes]]
      node = "a[01-16]"        # sixteen nodes
      kind = "h100"
      devices = 8
      rack = "r1"
      [[tasks]]
      task = "llama"
      weight = 1.5
      min_devices = 16
      training = {global_batch = 512}
      model = {layers = 32, hidden = 4096, heads = 32, sequence = 4096, vocabulary = 32000}

    --fail, --drain, --join and --finish ask what would become of it. All fields, and what can be
    written shorter: docs/planner.md.

    Exit codes: 1 not every task gets what it must have, 2 the problem contradicts itself.
    """  # noqa: D301
    from unicron.planner import BadProblem

    _refuse_overwriting(file, out)
    try:
        problem = _asked(file, failing, drain, join, finish)
        answer = _answer(problem, method, _wanted(compare), following=following)
    except BadProblem as error:
        raise ConfigError(
            f"{error.field}: {error.reason}", fix=error.fix, code="E-PLAN-PROBLEM"
        ) from error
    if out is not None:
        _write(out, answer.plan)
    if as_json:
        emit(json_text(_document(answer)))
    else:
        from unicron.controlplane.cli.plan_text import lines

        emit("\n".join(lines(answer, width())))
    if answer.plan.relaxed:
        raise SystemExit(1)


def _wanted(compare: tuple[str, ...]) -> tuple[str, ...]:
    return _STRATEGIES if "all" in compare else tuple(dict.fromkeys(compare))


def _asked(
    file: Path,
    failing: tuple[str, ...],
    drain: tuple[str, ...],
    join: tuple[str, ...],
    finish: tuple[str, ...],
) -> "PlanProblem":
    """The problem in the file, after what is supposed to have happened. Raises BadProblem."""
    from unicron.planner import read_problem, whatif

    problem = read_problem(file)
    if failing:
        problem = whatif.failed(problem, *failing)
    if drain:
        problem = whatif.drained(problem, *drain)
    for name in finish:
        problem = whatif.finished(problem, name)
    for words in join:
        kind, number = _joining(words)
        problem = whatif.joined(problem, kind, number)
    return problem


def _joining(words: str) -> tuple[str, int]:
    kind, colon, number = words.rpartition(":")
    if not colon:
        return words, 1
    if not number.isascii() or not number.isdigit() or not 0 < int(number[:7]) <= 100_000:
        raise click.BadParameter(f"--join {words}: write KIND:N, such as h100:2")
    return kind, int(number)


def _answer(
    problem: "PlanProblem", method: str, compared: tuple[str, ...], *, following: bool
) -> "Answer":
    from unicron.controlplane.cli.plan_text import Answer
    from unicron.planner import Planner, outlook
    from unicron.planner.explanation import explanation
    from unicron.planner.spares import SpareWorth, with_spare
    from unicron.planner.strategies import STRATEGIES

    solve = Planner(method).solve  # type: ignore[arg-type]
    begun = time.monotonic_ns()
    spares: tuple[SpareWorth, ...] = ()
    if problem.repair_ms and method != "local":
        spares = with_spare(problem, solve)
    plan = spares[0].plan if spares else solve(problem)
    took_ms = (time.monotonic_ns() - begun) // 1_000_000
    return Answer(
        problem=problem,
        plan=plan,
        told=explanation(problem, plan),
        took_ms=took_ms,
        spares=spares,
        compared=tuple((name, STRATEGIES[name](problem)) for name in compared),
        following=outlook(problem, plan) if following else (),
    )


def _refuse_overwriting(file: Path, out: Path | None) -> None:
    with contextlib.suppress(OSError):  # what isn't there, or can't be looked at, is said later
        if out is not None and out.is_file() and out.samefile(file):
            raise ConfigError(
                f"--out {out} is the problem itself",
                why="the plan would take its place",
                fix="give another name",
                code="E-PLAN-WRITE",
            )


def _write(path: Path, plan: "Plan") -> None:
    from unicron.planner import encode_plan

    try:
        write_whole(os.path.abspath(path), encode_plan(plan) + b"\n")
    except OSError as error:
        raise ConfigError(
            f"{path} can't be written",
            why=error.strerror or str(error),
            fix="give another name",
            code="E-PLAN-WRITE",
        ) from error


def _document(answer: "Answer") -> dict[str, object]:
    import msgspec

    def allocation(plan: "Plan") -> dict[str, object]:
        return {
            "waf_milli": plan.waf_milli,
            "value_milli": plan.value_gflops_milli,
            "relaxed": plan.relaxed,
            "devices": {a.task: len(a.slots) for a in plan.assignments},
        }

    return {
        "schema": "unicron.plan/1",
        "took_ms": answer.took_ms,
        "plan": msgspec.to_builtins(answer.plan),
        "explanation": msgspec.to_builtins(answer.told),
        "spares": [
            {
                "spare": each.spare or None,
                "now_milli": each.now_milli,
                "after_failure_milli": each.after_milli,
                "total_milli": each.total_milli,
            }
            for each in answer.spares
        ],
        "compared": {name: allocation(plan) for name, plan in answer.compared},
        "next": msgspec.to_builtins(answer.following),
    }
