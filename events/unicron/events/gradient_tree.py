"""The canonical sum of an iteration's gradients, and who computes which part of it.

The sum is a fixed binary tree over the micro-batch ids 0 .. M-1 of the global batch. Node
(level l, position i) covers the leaves [i * 2**l, (i + 1) * 2**l) cut at M; its value is left +
right, or left alone where right is empty. M = 12:
``((((0+1)+(2+3))+((4+5)+(6+7)))+((8+9)+(10+11)))``.
Only M matters, never how many ranks there are or who holds what; floating-point addition commutes
bit for bit, so only the bracketing counts. A rank adds up the complete subtrees it owns; what is
left over are its *roots*, and only these travel.

This is pure arithmetic and part of the meaning of an order: control plane and shims must come to
the same assignment from the same order, so it lives with the events.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple


class Node(NamedTuple):
    """A subtree: `level` 0 is a leaf, `position` counts from the left on that level."""

    level: int
    position: int


class Merge(NamedTuple):
    """One addition: `parent` = `left` + `right`."""

    left: Node
    right: Node
    parent: Node


class Tree:
    """The tree over `leaves` micro-batches. ValueError when there are none."""

    def __init__(self, leaves: int) -> None:
        if leaves < 1:
            raise ValueError(f"a gradient tree needs at least one micro-batch, not {leaves}")
        self.leaves = leaves
        self._top = (leaves - 1).bit_length()
        self.root = Node(self._top, 0)

    def span(self, node: Node) -> tuple[int, int]:
        """First leaf under `node`, and one past its last."""
        first = node.position << node.level
        return first, min(self.leaves, (node.position + 1) << node.level)

    def size(self, node: Node) -> int:
        """Number of leaves under `node`; 0 when it lies beyond the last leaf."""
        first, end = self.span(node)
        return max(0, end - first)

    def children(self, node: Node) -> tuple[Node, ...]:
        """The two canonical nodes whose sum `node` is; nothing for a leaf."""
        while node.level > 0:
            left = Node(node.level - 1, 2 * node.position)
            right = Node(node.level - 1, 2 * node.position + 1)
            if self.size(right):
                return left, right
            node = left  # nothing on the right: the same value one level down
        return ()

    def canonical(self, node: Node) -> Node:
        """The highest node with the same value: up through parents that have no right child."""
        while node.level < self._top and node.position % 2 == 0:
            if self.size(Node(node.level, node.position + 1)):
                break
            node = Node(node.level + 1, node.position // 2)
        return node

    def fold(self, held: set[Node], node: Node) -> list[Merge]:
        """Put `node` into `held` (canonical nodes, changed in place), as a binary counter adds:
        merge with the sibling as long as it is there. Returns the merges in their order."""
        merges = []
        node = self.canonical(node)
        while node != self.root:
            sibling = Node(node.level, node.position ^ 1)
            if sibling not in held:
                break
            held.remove(sibling)
            parent = Node(node.level + 1, node.position // 2)
            left, right = sorted((node, sibling))
            node = self.canonical(parent)
            # Named by its canonical form, so that a reader of merges never meets two names.
            merges.append(Merge(left, right, node))
        held.add(node)
        return merges

    def decompose(self, leaves: Iterable[int]) -> tuple[Node, ...]:
        """The roots of a set of leaves: the fewest whole subtrees that cover exactly them, from
        left to right."""
        held: set[Node] = set()
        for leaf in sorted(leaves):
            self._check(leaf)
            self.fold(held, Node(0, leaf))
        return tuple(sorted(held, key=self.span))

    def program(self, roots: Iterable[Node]) -> tuple[Merge, ...]:
        """The merges that turn `roots` (all ranks' together) into the whole sum. ValueError when
        they do not cover every leaf exactly once."""
        ordered = sorted((self.canonical(root) for root in roots), key=self.span)
        covered = [leaf for root in ordered for leaf in range(*self.span(root))]
        if covered != list(range(self.leaves)):
            raise ValueError(f"roots {ordered} do not cover {self.leaves} micro-batches once each")
        held: set[Node] = set()
        return tuple(merge for root in ordered for merge in self.fold(held, root))

    def _check(self, leaf: int) -> None:
        if not 0 <= leaf < self.leaves:
            raise ValueError(f"micro-batch {leaf} is not one of 0 .. {self.leaves - 1}")


def assign(
    micro_batches: int, ranks: int, kept: Mapping[int, Sequence[int]] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Micro-batches of each rank, ascending: those it keeps and its share of the others.

    New work is as even as possible (the last to finish sets the pace; among equals who has less
    in all gets more). It is handed out in whole subtrees, the largest first, and to a rank that
    holds the sibling if there is one, so that few roots travel. `kept`: rank -> micro-batches whose
    gradients it has already. Every rank computes the same answer from the same arguments.
    """
    tree = Tree(micro_batches)
    given = _given(tree, ranks, kept or {})
    done = {leaf for leaves in given for leaf in leaves}
    free = set(tree.decompose(leaf for leaf in range(micro_batches) if leaf not in done))
    owed = _quotas(given, micro_batches - len(done))
    while any(owed):
        rank = max(range(ranks), key=lambda rank: (owed[rank], -rank))
        node = _pick(tree, free, owed[rank], given[rank])
        free.remove(node)
        given[rank].extend(range(*tree.span(node)))
        owed[rank] -= tree.size(node)
    return tuple(tuple(sorted(leaves)) for leaves in given)


def _given(tree: Tree, ranks: int, kept: Mapping[int, Sequence[int]]) -> list[list[int]]:
    if ranks < 1:
        raise ValueError(f"an assignment needs at least one rank, not {ranks}")
    seen: set[int] = set()
    for rank, leaves in kept.items():
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} keeps micro-batches but there are {ranks} ranks")
        tree.decompose(leaves)  # refuses what is out of range
        if len(set(leaves)) != len(leaves) or seen & set(leaves):
            raise ValueError(f"a micro-batch is kept twice: {dict(kept)}")
        seen |= set(leaves)
    return [list(kept.get(rank, ())) for rank in range(ranks)]


def _quotas(given: Sequence[Collection[int]], todo: int) -> list[int]:
    """How many new micro-batches each rank gets."""
    share, rest = divmod(todo, len(given))
    first = sorted(range(len(given)), key=lambda rank: (len(given[rank]), rank))[:rest]
    return [share + (rank in first) for rank in range(len(given))]


def _pick(tree: Tree, free: set[Node], owed: int, holds: Sequence[int]) -> Node:
    """The largest subtree of `free` for a rank that owes `owed` leaves; splits a larger one (in
    `free`, in place) rather than hand out crumbs."""
    wanted = 1 << (owed.bit_length() - 1)
    while True:
        fitting = [node for node in free if tree.size(node) <= owed]
        larger = [node for node in free if tree.size(node) > owed]
        best = max((tree.size(node) for node in fitting), default=0)
        if best >= wanted or not larger:
            roots = tree.decompose(holds)
            return min(
                (node for node in fitting if tree.size(node) == best),
                key=lambda node: (
                    Node(node.level, node.position ^ 1) not in roots,
                    tree.span(node),
                ),
            )
        node = min(larger, key=tree.span)
        free.remove(node)
        free.update(tree.children(node))
