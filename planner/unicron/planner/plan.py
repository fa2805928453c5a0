"""What a planner answers: who runs which layout on which devices, and what that is worth."""

from __future__ import annotations

import msgspec

from unicron.planner.problem import Layout, Slot


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What one task gets; `layout` None means parked, and then it has no slots.

    The position of a slot is the preferred rank: slots that the task holds already keep their
    order and come first, new ones follow. Each run of `tp` slots is one tensor-parallel group.
    """

    task: str
    layout: Layout | None = None
    slots: tuple[Slot, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One allocation for the whole cluster.

    `source` is the method: "local", "dp" or "cpsat". Values are in thousandths of a weighted
    GFLOP/s: `waf_milli` is the weighted throughput once everything runs, `value_gflops_milli` is
    that less the price of changing over (the objective). `relaxed` names the tasks that should run
    (`min_devices` > 0) and are parked. `statistics` holds only integers, and no clock times.
    """

    source: str
    assignments: tuple[Assignment, ...]
    value_gflops_milli: int
    waf_milli: int
    computed_at: int
    problem_digest: str
    statistics: tuple[tuple[str, int], ...] = ()
    relaxed: tuple[str, ...] = ()


def encode_plan(plan: Plan) -> bytes:
    """The plan as canonical JSON."""
    return msgspec.json.encode(plan, order="deterministic")
