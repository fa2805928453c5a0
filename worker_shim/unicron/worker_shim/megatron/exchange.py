"""The canonical reduction: shards of subtree roots go point to point, sums come back.

Takes the place of ``megatron/core/distributed/distributed_data_parallel.py:finish_grad_sync``.
Each member owns one shard of the buffer. It receives that slice of everybody's roots, adds them
in the order of the tree and sends the sum to all. Bytes per member: (roots + 1) / 2 of a
ring all-reduce's. Roots are only read and only the output is written, so a broken exchange leaves
nothing to repair.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from unicron.events.gradient_tree import Merge, Node, Tree

#: Floats of a shard that are summed at once: intermediate sums stay in the cache.
_BLOCK = 1 << 15

#: Tags of gloo messages: between a pair of members messages of one tag arrive in order.
_TAG_ROOT = 1
_TAG_SUM = 0


class Exchange:
    """Keeps its receive buffers from one reduction to the next."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._space: dict[tuple[int, int], torch.Tensor] = {}

    def all_reduce(
        self,
        roots: Sequence[Sequence[Node]],
        mine: Mapping[Node, torch.Tensor],
        output: torch.Tensor,
        group: Any,
    ) -> None:
        """Fill `output` (1-D) with the sum over the whole tree, on every member of `group`.

        `roots`: the nodes of every rank, which follow from the assignment. `mine`: this rank's,
        each 1-D like `output`. RuntimeError from gloo when a peer is gone.
        """
        me, size = group.rank(), group.size()
        shards = _shards(output.numel(), size)
        begin, end = shards[me]
        others = [(me + step) % size for step in range(1, size)]

        received: list[Any] = []
        pending: list[Any] = []
        try:
            for peer in others:
                into = output[slice(*shards[peer])]
                pending.append(_receive(into, peer, _TAG_SUM, group))
            parts = {node: tensor[begin:end] for node, tensor in mine.items()}
            for peer in others:
                for place, node in enumerate(roots[peer]):
                    parts[node] = self._buffer(peer, place, end - begin, output)
                    received.append(_receive(parts[node], peer, _TAG_ROOT + place, group))
            for peer in others:
                for place, node in enumerate(roots[me]):
                    part = mine[node][slice(*shards[peer])]
                    pending.append(_send(part, peer, _TAG_ROOT + place, group))
            _wait(received)
            merges = self._tree.program(node for nodes in roots for node in nodes)
            tree_sum(merges, parts, output[begin:end])
            pending += [_send(output[begin:end], peer, _TAG_SUM, group) for peer in others]
            _wait(pending)
        finally:
            # A receive that is left pending, kept alive by a traceback, could still write into
            # `output` when that belongs to the next iteration.
            received.clear()
            pending.clear()

    def _buffer(self, peer: int, place: int, length: int, like: torch.Tensor) -> torch.Tensor:
        space = self._space.get((peer, place))
        if space is None or space.numel() < length or space.dtype != like.dtype:
            space = self._space[peer, place] = torch.empty(
                length, dtype=like.dtype, device=like.device
            )
        return space[:length]


def tree_sum(
    merges: Sequence[Merge], parts: Mapping[Node, torch.Tensor], output: torch.Tensor
) -> None:
    """Add `parts` (node -> 1-D tensor, only read) into `output` in the order of `merges`, which
    must be a whole program (`Tree.program`)."""
    if not merges:
        (whole,) = parts.values()
        output.copy_(whole)
        return
    root = merges[-1].parent
    for start in range(0, output.numel(), _BLOCK):
        block = slice(start, start + _BLOCK)
        sums: dict[Node, torch.Tensor] = {}
        for left, right, parent in merges:
            terms = [sums.get(node) for node in (left, right)]
            a, b = (
                parts[node][block] if term is None else term
                for node, term in zip((left, right), terms, strict=True)
            )
            # An intermediate sum is overwritten by the next; a part never is.
            free = next((term for term in terms if term is not None), None)
            into = output[block] if parent == root else free
            sums[parent] = torch.add(a, b) if into is None else torch.add(a, b, out=into)


def gather_exactly(values: torch.Tensor, group: Any) -> torch.Tensor:
    """All-reduce in place of a vector in which each entry is non-zero on one member at most:
    x + 0 is exact, so the order of the additions doesn't matter."""
    dist.all_reduce(values, group=group)
    return values


def _shards(length: int, size: int) -> list[tuple[int, int]]:
    return [(length * rank // size, length * (rank + 1) // size) for rank in range(size)]


def _send(tensor: torch.Tensor, peer: int, tag: int, group: Any) -> Any:
    return dist.isend(tensor, group=group, tag=tag, group_dst=peer) if tensor.numel() else None


def _receive(tensor: torch.Tensor, peer: int, tag: int, group: Any) -> Any:
    return dist.irecv(tensor, group=group, tag=tag, group_src=peer) if tensor.numel() else None


def _wait(works: list[Any]) -> None:
    """Wait for all, dropping each."""
    while works:
        work = works.pop(0)
        if work is not None:
            work.wait()
        del work
