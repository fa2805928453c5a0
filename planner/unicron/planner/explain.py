"""Why this plan, in words: for the engineer who asks the morning after.

It tells what the objective saw, in its own unit: weighted GFLOP/s. `explanation.py` has the same as
data, and more of it.
"""

from __future__ import annotations

from typing import cast

import msgspec

from unicron.planner.explanation import Bound, Explanation, RunnerUp, TaskChange, explanation
from unicron.planner.plan import Plan
from unicron.planner.problem import Layout, PlanProblem

Data = dict[str, object]

#: So many of the things that bind are named; the rest is counted.
_BOUNDS_SHOWN = 4


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The unit in which a plan's figures are said: thousandths of GFLOP/s over `divisor`."""

    unit: str
    divisor: int

    def bare(self, milli: int) -> str:
        """With what decimals it needs, three at most: ``400``, ``0.125``."""
        sign, whole = ("-", -milli) if milli < 0 else ("", milli)
        thousandths = (1000 * whole + self.divisor // 2) // self.divisor
        whole, rest = divmod(thousandths, 1000)
        return f"{sign}{whole:,}{f'.{rest:03}'.rstrip('0') if rest else ''}"

    def full(self, milli: int) -> str:
        """With the unit."""
        return f"{self.bare(milli)} {self.unit}"

    def change(self, before: int, after: int) -> str:
        """From one to another."""
        return f"{self.bare(before)} -> {self.full(after)}"


def scale_of(told: Explanation) -> Scale:
    """GFLOP/s for a few, TFLOP/s for what clusters make."""
    most = max(told.waf_before_milli, told.waf_after_milli)
    if most < 10_000_000:
        return Scale(unit="GFLOP/s", divisor=1_000)
    return Scale(unit="TFLOP/s", divisor=1_000_000)


def explain(problem: PlanProblem, plan: Plan, *, alternatives: bool = True) -> tuple[str, ...]:
    """Lines for people; the plan must pass `check` for the problem. Without `alternatives` nothing
    is solved anew, and what else there was isn't said."""
    return words(explanation(problem, plan, alternatives=alternatives))


def explain_data(problem: PlanProblem, plan: Plan) -> Data:
    """The same as plain data: integers and names (`*_milli`: thousandths of weighted GFLOP/s)."""
    return cast("Data", msgspec.to_builtins(explanation(problem, plan)))


def words(told: Explanation) -> tuple[str, ...]:
    """An explanation in lines."""
    scale = scale_of(told)
    head = (
        f"plan by {told.source} at sequence {told.computed_at}: weighted throughput "
        f"{scale.change(told.waf_before_milli, told.waf_after_milli)}, changes cost "
        f"{scale.bare(told.change_cost_milli)}"
    )
    lines = [head, *(task_words(task, scale) for task in told.tasks)]
    if told.failure_milli is not None:
        share = _percent(told.failure_milli, told.waf_before_milli)
        lines.append(
            f"what failed costs {scale.full(told.failure_milli)}{share} as long as it is away"
            if told.failure_milli > 0
            else "what failed costs no throughput once the changes are made"
        )
    lines.append(_bound_words(told))
    gains = [
        f"{price.devices} of {price.kind or 'no kind'} +{scale.bare(price.gain_milli)}"
        for price in told.shadow_prices
    ]
    if gains:
        lines.append(f"more devices would bring, in {scale.unit}: {', '.join(gains)}")
    lines.append(_runner_up_words(told.runner_up, scale))
    return tuple(lines)


def task_words(told: TaskChange, scale: Scale) -> str:
    """What becomes of one task."""
    if not told.changed:
        if told.after is None:
            return f"{told.task}: stays parked"
        return f"{told.task}: goes on as it is, {layout_words(told.after, told.kind_after)}"
    parts = [
        f"{number} {word}"
        for number, word in (
            (told.kept, "kept"),
            (told.gained, "gained"),
            (told.lost, "lost"),
            (told.released, "released"),
        )
        if number
    ]
    devices = f" (devices: {', '.join(parts)})" if parts else ""
    text = (
        f"{told.task}: {'hit, ' if told.hit else ''}"
        f"{layout_words(told.before, told.kind_before)} -> "
        f"{layout_words(told.after, told.kind_after)}{devices}, "
        f"{scale.change(told.waf_before_milli, told.waf_after_milli)}, "
        f"change costs {scale.bare(told.cost_milli)}"
    )
    if told.worth_milli is not None:
        text += f"; worth {scale.bare(told.worth_milli)} more than leaving it as it is"
    return text


def layout_words(layout: Layout | None, kind: str = "") -> str:
    """``tp 2 pp 1 dp 4 on h100``, or ``parked``."""
    if layout is None:
        return "parked"
    place = f" on {kind}" if kind else ""
    return f"tp {layout.tp} pp {layout.pp} dp {layout.dp}{place}"


def bound_words(bound: Bound) -> str:
    """One thing that binds."""
    match bound.what:
        case "devices":
            return f"{bound.used} of {bound.limit} devices of {bound.name or 'no kind'} are used"
        case "quota":
            return f"the quota of {bound.name}: {bound.used} of {bound.limit} devices"
        case "largest":
            return f"{bound.name} has its largest layout, {_devices(bound.limit)}"
        case "floor":
            return f"{bound.name} may not get fewer than {_devices(bound.limit)}"
        case _:
            return f"{bound.name} is to be emptied, {_devices(bound.limit)}"


def _bound_words(told: Explanation) -> str:
    used = f"{told.devices_used} of {told.devices_healthy} devices used"
    if told.relaxed:
        names = ", ".join(told.relaxed)
        if told.source == "local":
            return f"bound by: only what is held was considered, {names} below the minimum ({used})"
        return f"bound by: minimums can't all be met, {names} below the minimum ({used})"
    if told.source == "local":
        return f"bound by: only hit tasks may change, and only on devices they hold ({used})"
    if told.spares:
        free = ", ".join(told.spares)
        return f"bound by: {free} is left free, to stand in when another node fails ({used})"
    if not told.bounds:
        return f"bound by: no layout on offer makes idle devices worth their change ({used})"
    shown = [bound_words(bound) for bound in told.bounds[:_BOUNDS_SHOWN]]
    if len(told.bounds) > _BOUNDS_SHOWN:
        shown.append(f"and {len(told.bounds) - _BOUNDS_SHOWN} more")
    return f"bound by: {'; '.join(shown)} ({used})"


def _runner_up_words(other: RunnerUp | None, scale: Scale) -> str:
    if other is None:
        return "runner-up: none was found"
    sizes = ", ".join(
        f"{task} {mine} laid out otherwise"
        if mine == theirs
        else f"{task} {mine} -> {theirs or 'parked'}"
        for task, mine, theirs in other.changes
    )
    below = f", with {', '.join(other.relaxed)} below the minimum" if other.relaxed else ""
    more = "less" if other.loss_milli >= 0 else "more"
    return f"runner-up: {sizes}; worth {scale.full(abs(other.loss_milli))} {more}{below}"


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def _percent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f} %)" if whole else ""
