"""What a planner answers: who runs which layout on which devices, and what that is worth."""

from __future__ import annotations

import msgspec

from unicron.planner.problem import Layout, Slot


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What one task gets; `layout` None means parked, and then it has no slots. `kind` is that of
    the option, "" where that names none.

    The position of a slot is the preferred rank, in Megatron's default order (tensor parallel
    fastest, then data, then pipeline; see `ranks.py`), so each run of `tp` slots is one tensor
    parallel group, and each run of `tp * dp` one stage of the pipeline. While `tp` and `pp` stay,
    a slot that is kept stays in its stage if the stage has room; replicas that are kept whole keep
    their order and come first, then come those that are mended, then new ones.
    """

    task: str
    layout: Layout | None = None
    kind: str = ""
    slots: tuple[Slot, ...] = ()


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """The worker on `to` gets training state from the one on `origin`; None: from storage.

    Where tensor or pipeline sizes change, one worker may get parts from several origins.
    """

    task: str
    to: Slot
    origin: Slot | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One allocation for the whole cluster.

    `source` is the method: "local", "dp" or "cpsat", or one of the strategies of `strategies.py`.
    Values are in thousandths of a weighted GFLOP/s: `waf_milli` is the weighted throughput once
    everything runs, `value_gflops_milli` is that less the price of changing over (the objective).
    `relaxed` names the tasks whose floor (`min_devices`, `min_gflops`) isn't met. `transfers`
    says where every worker of a task that ran before gets the state from that it needs and doesn't
    hold (see `sources.py`). `statistics` holds only integers, and no clock times.
    """

    source: str
    assignments: tuple[Assignment, ...]
    value_gflops_milli: int
    waf_milli: int
    computed_at: int
    problem_digest: str
    statistics: tuple[tuple[str, int], ...] = ()
    relaxed: tuple[str, ...] = ()
    transfers: tuple[Transfer, ...] = ()


def encode_plan(plan: Plan) -> bytes:
    """The plan as canonical JSON."""
    return msgspec.json.encode(plan, order="deterministic")
