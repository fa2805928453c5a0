"""The gradients a member has computed in this iteration, added up as far as the tree allows."""

from collections.abc import Sequence

import torch

from unicron.events.gradient_tree import Node, Tree


class Held:
    """Partial sums of gradients: node of the tree -> one 1-D tensor per gradient buffer.

    A binary counter: at most 1 + log2(micro-batches per rank) sums with a fresh assignment, more
    after losses. Tensors are used again from one iteration to the next. What is held is only read
    by a reduction, so a broken reduction is simply done again.
    """

    def __init__(self, micro_batches: int) -> None:
        self.tree = Tree(micro_batches)
        self.sums: dict[Node, list[torch.Tensor]] = {}
        self._nodes: set[Node] = set()
        self._spare: list[list[torch.Tensor]] = []

    @property
    def roots(self) -> tuple[Node, ...]:
        """The nodes held, from left to right."""
        return tuple(sorted(self.sums, key=self.tree.span))

    @property
    def leaves(self) -> tuple[int, ...]:
        """The micro-batches they cover, ascending."""
        return tuple(leaf for root in self.roots for leaf in range(*self.tree.span(root)))

    def add(self, micro_batch: int, gradients: Sequence[torch.Tensor]) -> None:
        """Fold in one micro-batch. `gradients`: the buffers with its gradient alone; they are
        copied or added, and free again afterwards. ValueError if it is held already."""
        if micro_batch in self.leaves:
            raise ValueError(f"micro-batch {micro_batch} is held already")
        node = self.tree.canonical(Node(0, micro_batch))
        merges = self.tree.fold(self._nodes, node)
        if not merges:
            self.sums[node] = self._copy(gradients)
            return
        # The first sibling's tensors receive the sum: x + y == y + x bit for bit.
        carried: list[torch.Tensor] | None = None
        for left, right, parent in merges:
            sibling = right if left == node else left
            total = self.sums.pop(sibling)
            for into, more in zip(total, carried or gradients, strict=True):
                into.add_(more)
            if carried is not None:
                self._spare.append(carried)
            carried, node = total, parent
        assert carried is not None
        self.sums[node] = carried

    def clear(self) -> None:
        """Forget everything; the memory is kept."""
        self._spare += self.sums.values()
        self.sums.clear()
        self._nodes.clear()

    def _copy(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        into = self._spare.pop() if self._spare else [torch.empty_like(g) for g in gradients]
        for copy, gradient in zip(into, gradients, strict=True):
            copy.copy_(gradient)
        return into
