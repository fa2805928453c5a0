"""Which part of the model the worker of a rank holds.

Ranks are counted in Megatron's default order (`tp-cp-ep-dp-pp`, with cp = ep = 1): tensor parallel
fastest, then data parallel, then pipeline. So with `Layout(tp, pp, dp)`

    rank = tensor + tp * (replica + dp * stage)

and the slots of an assignment stand in this order: first stage 0 of all replicas, then stage 1.
Replicas hold the same state, so what a rank holds is its *shard*: (tensor, stage).
"""

from __future__ import annotations

from typing import TypeAlias

from unicron.planner.problem import Layout

#: Tensor parallel rank and pipeline stage.
Shard: TypeAlias = tuple[int, int]


def shard_of(layout: Layout, rank: int) -> Shard:
    """What this rank holds; `rank` is below `layout.devices`."""
    return rank % layout.tp, rank // (layout.tp * layout.dp)


def overlapping(new: Layout, shard: Shard, old: Layout) -> tuple[Shard, ...]:
    """The shards of the old layout that make up one of the new layout, ascending.

    Both cut layers and tensors into even parts, so shard i of n is the interval [i/n, (i+1)/n).
    """
    tensor, stage = shard
    return tuple(
        (t, p) for p in _cover(stage, new.pp, old.pp) for t in _cover(tensor, new.tp, old.tp)
    )


def _cover(index: int, new: int, old: int) -> range:
    """Which of `old` equal parts meet part `index` of `new` equal ones."""
    return range(index * old // new, -(-(index + 1) * old // new))
