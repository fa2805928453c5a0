"""The gradient tree: one bracketing whoever holds what, and assignments that hand out subtrees."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unicron.events.gradient_tree import Node, Tree, assign

SIZES = st.integers(1, 70)


def expression(tree, parts):
    """Fold every part's leaves in the given order, then all roots: the sum as text."""
    texts = {}
    roots = []
    for part in parts:
        held = set()
        for leaf in part:
            texts[tree.canonical(Node(0, leaf))] = str(leaf)
            for left, right, parent in tree.fold(held, Node(0, leaf)):
                texts[parent] = f"({texts.pop(left)}+{texts.pop(right)})"
        roots += held
    for left, right, parent in tree.program(roots):
        texts[parent] = f"({texts.pop(left)}+{texts.pop(right)})"
    (text,) = texts.values()
    return text


def reference(first, end):
    """The definition, recursively: halves at the largest power of two below the length."""
    if end - first == 1:
        return str(first)
    half = 1 << ((end - first - 1).bit_length() - 1)
    return f"({reference(first, first + half)}+{reference(first + half, end)})"


def test_the_documented_example():
    text = expression(Tree(12), [range(12)])
    assert text == "((((0+1)+(2+3))+((4+5)+(6+7)))+((8+9)+(10+11)))"


@given(SIZES, st.integers(1, 9), st.randoms(use_true_random=False))
def test_any_partition_in_any_order_gives_one_expression(leaves, ranks, shuffle):
    ids = list(range(leaves))
    shuffle.shuffle(ids)
    parts = [ids[rank::ranks] for rank in range(ranks)]
    assert expression(Tree(leaves), parts) == reference(0, leaves)


@given(SIZES, st.data())
def test_roots_cover_exactly_their_leaves_and_cannot_be_merged_further(leaves, data):
    chosen = data.draw(st.sets(st.integers(0, leaves - 1)))
    tree = Tree(leaves)
    roots = tree.decompose(chosen)
    assert sorted(chosen) == [leaf for root in roots for leaf in range(*tree.span(root))]
    for root in roots:
        assert tree.canonical(root) == root
        if root != tree.root:
            assert Node(root.level, root.position ^ 1) not in roots


@given(SIZES)
def test_children_are_canonical_halves(leaves):
    tree = Tree(leaves)
    seen, stack = [], [tree.root]
    while stack:
        node = stack.pop()
        halves = tree.children(node)
        assert sum(map(tree.size, halves)) == (tree.size(node) if halves else 0)
        assert all(tree.canonical(half) == half for half in halves)
        if not halves:
            seen.append(tree.span(node))
        stack += halves
    assert sorted(seen) == [(leaf, leaf + 1) for leaf in range(leaves)]


def test_roots_that_do_not_cover_everything_once_are_refused():
    tree = Tree(12)
    with pytest.raises(ValueError, match="cover 12"):
        tree.program(tree.decompose(range(11)))
    with pytest.raises(ValueError, match="cover 12"):
        tree.program([*tree.decompose(range(12)), Node(0, 3)])


@given(SIZES, st.integers(1, 80))
def test_a_fresh_assignment_is_a_partition_as_even_as_possible(leaves, ranks):
    shares = assign(leaves, ranks)
    assert len(shares) == ranks
    assert sorted(leaf for share in shares for leaf in share) == list(range(leaves))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert all(list(share) == sorted(share) for share in shares)


@given(SIZES, st.integers(1, 9), st.randoms(use_true_random=False))
def test_kept_micro_batches_stay_and_new_work_is_even(leaves, ranks, shuffle):
    ids = list(range(leaves))
    shuffle.shuffle(ids)
    kept: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
    for leaf in ids[: shuffle.randint(0, leaves)]:
        kept[shuffle.randrange(ranks)].append(leaf)
    shares = assign(leaves, ranks, kept)
    assert sorted(leaf for share in shares for leaf in share) == list(range(leaves))
    new = [len(shares[rank]) - len(kept[rank]) for rank in range(ranks)]
    assert max(new) - min(new) <= 1
    assert all(set(kept[rank]) <= set(shares[rank]) for rank in range(ranks))


@pytest.mark.parametrize(
    "leaves,ranks,mean,most",
    [(8, 4, 1, 1), (12, 3, 1, 1), (12, 4, 2, 2), (12, 5, 1.4, 2), (24, 5, 1.8, 2), (64, 3, 3, 3)],
)
def test_few_roots_travel(leaves, ranks, mean, most):
    roots = [len(Tree(leaves).decompose(share)) for share in assign(leaves, ranks)]
    assert sum(roots) / ranks <= mean
    assert max(roots) == most


def test_buddies_come_together_after_a_loss():
    kept = {0: [0, 1, 8], 1: [2, 3, 9], 2: [4, 5, 10]}
    shares = assign(12, 3, kept)
    assert shares == ((0, 1, 8, 11), (2, 3, 6, 9), (4, 5, 7, 10))


def test_the_order_of_the_arguments_does_not_matter():
    kept = {rank: random.Random(rank).sample(range(rank * 6, rank * 6 + 6), 3) for rank in range(4)}
    assert assign(24, 4, kept) == assign(24, 4, dict(reversed(kept.items())))


@pytest.mark.parametrize(
    "leaves,ranks,kept",
    [
        (0, 1, {}),
        (4, 0, {}),
        (4, 2, {2: [1]}),
        (4, 2, {0: [4]}),
        (4, 2, {0: [1], 1: [1]}),
        (4, 2, {0: [1, 1]}),
    ],
)
def test_nonsense_is_refused(leaves, ranks, kept):
    with pytest.raises(ValueError, match=r"micro-batch|rank"):
        assign(leaves, ranks, kept)
