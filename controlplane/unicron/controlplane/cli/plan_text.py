"""A plan for people: who gets what, where it sits, what it is worth, what else there was."""

from dataclasses import dataclass

from unicron.controlplane.cli.output import Cell, duration, hung, number, table
from unicron.planner.explain import words
from unicron.planner.explanation import Explanation, TaskChange
from unicron.planner.outlook import Outlook
from unicron.planner.picture import picture
from unicron.planner.plan import Plan
from unicron.planner.problem import Layout, PlanProblem
from unicron.planner.spares import SpareWorth

#: Width of the picture where there is no terminal to ask.
_PICTURE_COLUMNS = 100
#: Of the further lines of what doesn't fit on one.
_INDENT = 2
#: Cases that may come next, and names of nodes in one of them, that are shown; JSON has all.
_CASES_SHOWN = 20
_NAMES_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Everything the command found out. `spares`: what is gained or lost by leaving a node free,
    the better first. `compared`: strategy and what it gives. `following`: what may come next."""

    problem: PlanProblem
    plan: Plan
    told: Explanation
    took_ms: int
    spares: tuple[SpareWorth, ...] = ()
    compared: tuple[tuple[str, Plan], ...] = ()
    following: tuple[Outlook, ...] = ()


def lines(answer: Answer, columns: int | None) -> list[str]:
    """The answer: tasks, a tally, the picture, why, and how other strategies compare."""
    told = answer.told
    about = words(told)
    # The first line and one for each task are the table; the rest is why.
    why = about[1 + len(told.tasks) :]
    return [
        _tasks(told, columns),
        "",
        hung(_tally(answer), _INDENT, columns),
        "",
        *map(_plain, picture(answer.problem, answer.plan, columns or _PICTURE_COLUMNS)),
        "",
        *(
            hung(_plain(line), _INDENT, columns)
            for line in (_worth(answer), *why, *_spares(answer))
        ),
        *_compared(answer, columns),
        *_following(answer, columns),
    ]


def _plain(line: str) -> str:
    """Names of the problem stand in it: they neither command the terminal nor break the line."""
    return "".join(c if c.isprintable() else " " for c in line)


def _tasks(told: Explanation, columns: int | None) -> str:
    rows = []
    for task in told.tasks:
        mark, colour = _mark(task)
        rows.append(
            (
                Cell(mark, colour),
                task.task,
                _arrow(number(task.devices_before), number(task.devices_after)),
                _arrow(_layout(task.before), _layout(task.after)),
                task.kind_after or task.kind_before or "-",
                _tera(task.waf_after_milli),
                _notes(task, told),
            )
        )
    header = ("", "TASK", "DEVICES", "LAYOUT", "KIND", "WEIGHTED TFLOP/s ", "CHANGE")
    return table(header, rows, columns)


def _mark(task: TaskChange) -> tuple[str, str]:
    if task.after is None:
        return ("x", "red") if task.before is not None else ("-", "")
    if not task.changed:
        return ("=", "")
    if task.devices_after > task.devices_before:
        return ("+", "green")
    return ("~", "yellow")


def _arrow(before: str, after: str) -> str:
    return after if before == after else f"{before} -> {after}"


def _layout(layout: Layout | None) -> str:
    """As people write it: ``tp8 pp4 dp16``."""
    return "parked" if layout is None else f"tp{layout.tp} pp{layout.pp} dp{layout.dp}"


def _tera(milli: int) -> str:
    """Weighted TFLOP/s with three significant digits at least."""
    value = milli / 1_000_000
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 or not value else 4
    return f"{value:,.{digits}f}"


def _notes(task: TaskChange, told: Explanation) -> str:
    if task.task in told.relaxed:
        return "below its minimum: not all can be met"
    if not task.changed:
        return "stays as it is" if task.after is not None else "stays parked"
    parts = ["hit"] if task.hit else []
    parts += [
        f"{number(many)} {word}"
        for many, word in (
            (task.kept, "kept"),
            (task.gained, "gained"),
            (task.released, "released"),
            (task.lost, "lost"),
        )
        if many
    ]
    if task.transition_ms:
        parts.append(f"stands still {duration(task.transition_ms)}")
    return ", ".join(parts)


def _tally(answer: Answer) -> str:
    told = answer.told
    changed = sum(task.changed for task in told.tasks)
    parked = sum(task.after is None for task in told.tasks)
    moved = sum(task.gained for task in told.tasks if task.before is not None)
    best = {True: ", no plan is better", False: ", a better one may exist", None: ""}
    return (
        f"tally: {changed} changed, {len(told.tasks) - changed} unchanged, {parked} parked, "
        f"{number(moved)} devices moved  "
        f"({told.source}, {duration(answer.took_ms)}{best[told.optimal]})"
    )


def _worth(answer: Answer) -> str:
    told = answer.told
    share = (
        f" ({100 * told.waf_after_milli / told.waf_before_milli - 100:+.1f} %)"
        if told.waf_before_milli
        else ""
    )
    return (
        f"weighted throughput {_tera(told.waf_before_milli)} -> {_tera(told.waf_after_milli)} "
        f"TFLOP/s{share}; changing over costs {_tera(told.change_cost_milli)} of it, spread over "
        f"{duration(answer.problem.expected_run_ms)}"
    )


def _spares(answer: Answer) -> list[str]:
    """Whether a node is left free on purpose, and what that is worth."""
    if len(answer.spares) < 2:
        return []
    best, other = answer.spares
    spare = best.spare or other.spare
    gain = _tera(best.total_milli - other.total_milli)
    now = _tera(abs(best.now_milli - other.now_milli))
    after = _tera(abs(best.after_milli - other.after_milli))
    if best.spare:
        said = (
            f"spare: {spare} is left free, {now} TFLOP/s less now and {after} more after the next "
            f"failure; over both it is worth {gain} more"
        )
    else:
        word = "more" if other.after_milli > best.after_milli else "less"
        said = (
            f"spare: leaving {spare} free would bring {now} TFLOP/s less now and {after} {word} "
            f"after the next failure; over both {gain} less"
        )
    return [said]


def _compared(answer: Answer, columns: int | None) -> list[str]:
    if not answer.compared:
        return []
    best = answer.plan.value_gflops_milli
    rows = []
    for name, plan in (("this plan", answer.plan), *answer.compared):
        share = f"{100 * plan.value_gflops_milli / best:.1f} %" if best else "-"
        running = [f"{a.task} {len(a.slots)}" for a in plan.assignments if a.slots]
        sizes = ", ".join(running) if running else "no task runs"
        note = f"; below the minimum: {', '.join(plan.relaxed)}" if plan.relaxed else ""
        rows.append(
            (name, _tera(plan.waf_milli), _tera(plan.value_gflops_milli), share, sizes + note)
        )
    header = ("STRATEGY", "WEIGHTED TFLOP/s ", "LESS CHANGES ", "OF THIS PLAN ", "DEVICES")
    return ["", table(header, rows, columns)]


def _following(answer: Answer, columns: int | None) -> list[str]:
    """What would be done next, the worst losses first."""
    if not answer.following:
        return []
    losses = [case for case in answer.following if case.event == "loss"]
    others = [case for case in answer.following if case.event != "loss"]
    shown = [*losses[:_CASES_SHOWN], *others[:_CASES_SHOWN]]
    rows = [
        (
            _event(case),
            "?" if case.waf_milli is None else _tera(case.waf_milli),
            "?" if case.change_milli is None else _signed(case.change_milli),
            _then(case),
        )
        for case in shown
    ]
    lines = ["", table(("IF", "WEIGHTED TFLOP/s ", "CHANGE ", "THEN"), rows, columns)]
    if len(shown) < len(answer.following):
        lines.append(f"and {number(len(answer.following) - len(shown))} more cases: --json")
    return lines


def _event(case: Outlook) -> str:
    if case.event == "join":
        return f"a node of {case.names[0] or 'no kind'} joins"
    if case.event == "finish":
        return f"{case.names[0]} ends"
    names = ", ".join(case.names[:_NAMES_SHOWN])
    if len(case.names) == 1:
        return f"{names} fails"
    if len(case.names) > _NAMES_SHOWN:
        return f"one of {number(len(case.names))} fails: {names}, ..."
    return f"one of {names} fails"


def _then(case: Outlook) -> str:
    if case.waf_milli is None:
        return "was not worked out"
    sizes = [f"{task} {before} -> {after or 'parked'}" for task, before, after in case.sizes]
    return ", ".join(sizes) or "no task changes its size"


def _signed(milli: int) -> str:
    return ("+" if milli > 0 else "-" if milli < 0 else "") + _tera(abs(milli))
