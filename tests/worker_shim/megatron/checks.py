"""What runs inside a forked member, where torch is: each function gets the member."""

import os
import threading

import torch

from unicron.events.gradient_tree import Node, Tree
from unicron.worker_shim.megatron import cpu_compat
from unicron.worker_shim.megatron.exchange import tree_sum
from unicron.worker_shim.megatron.groups import _find
from unicron.worker_shim.megatron.held import Held
from unicron.worker_shim.megatron.text import Text


def record_patches(member):
    """From now on."""
    member.fired = set()
    assert cpu_compat.apply()
    assert cpu_compat.apply()  # once is enough, twice is harmless
    cpu_compat.record(lambda name, place: member.fired.add((name, place)))


def recorded_patches(member):
    """The (patch, place) pairs that fired."""
    cpu_compat.record(None)
    return sorted(member.fired)


def declared_patches(member):
    return sorted((patch.name, place) for patch in cpu_compat.PATCHES for place in patch.serves)


def resources(member):
    """Descriptors, sockets and threads of this process, once its passing threads have passed."""
    for thread in threading.enumerate():
        if thread.name.startswith(("shut-", "old-groups")):
            thread.join(5)
    targets = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(256) if exists(fd)]
    sockets = sum(target.startswith("socket:") for target in targets)
    return [len(targets), sockets, len(os.listdir("/proc/self/task")), threading.active_count()]


def exists(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def groups_are_current(member):
    """Every place that holds a group holds the present one of its role; how many places."""
    trainer = member.trainer
    places = list(
        _find((trainer._built.ddp, trainer._built.optimizer, trainer._built.config))
    )  # KeyError for a group that isn't one of Megatron's present ones
    assert [(place.key, place.role) for place in places] == [
        (place.key, place.role) for place in trainer._groups._places
    ]
    return len(places)


def spoil_next_transfer(member):
    """Change one byte of the first chunk this member sends."""
    from unicron.worker_shim.megatron import state

    original = state._send

    def send(tensor, peers, tag, group):
        if tag == state._TAG_CHUNK:
            tensor = tensor.clone()
            tensor[0] ^= 1
            state._send = original
            member.kept_alive = tensor
        return original(tensor, peers, tag, group)

    state._send = send


def held_adds_as_the_tree_says(member):
    """Against a plain recursive sum in float32, where the order shows."""
    generator = torch.Generator().manual_seed(5)
    leaves = 11
    gradients = [
        [torch.randn(1000, generator=generator) * 10**power, torch.randn(7, generator=generator)]
        for power in range(leaves)
    ]
    for turn in range(2):  # the second time in buffers used before
        held = Held(leaves) if turn == 0 else held  # noqa: F821
        order = torch.randperm(leaves, generator=generator).tolist()
        for leaf in order[:6]:
            held.add(leaf, [tensor.clone() for tensor in gradients[leaf]])
        assert held.leaves == tuple(sorted(order[:6]))
        for node, sums in held.sums.items():
            for index, tensor in enumerate(sums):
                assert torch.equal(tensor, plain(held.tree, node, gradients, index))
        for leaf in order[6:]:
            held.add(leaf, gradients[leaf])
        assert held.roots == (held.tree.root,)
        held.clear()
        assert held.leaves == ()
    held.add(3, gradients[3])
    try:
        held.add(3, gradients[3])
    except ValueError:
        return
    raise AssertionError("a micro-batch was added twice")


def plain(tree, node, gradients, index):
    halves = tree.children(node)
    if not halves:
        return gradients[tree.span(node)[0]][index]
    left, right = (plain(tree, half, gradients, index) for half in halves)
    return left + right


def tree_sum_reads_only(member):
    """Same result from any set of roots, longer than one block, and the parts are unchanged."""
    generator = torch.Generator().manual_seed(7)
    for leaves in (1, 2, 7, 12):
        tree = Tree(leaves)
        gradients = [[torch.randn(70_001, generator=generator) * 3**leaf] for leaf in range(leaves)]
        expected = plain(tree, tree.root, gradients, 0)
        for ranks in (1, 2, 3, 5):
            roots = [
                node for rank in range(ranks) for node in tree.decompose(range(leaves)[rank::ranks])
            ]
            parts = {node: plain(tree, node, gradients, 0) for node in roots}
            copies = {node: part.clone() for node, part in parts.items()}
            output = torch.full((70_001,), float("nan"))
            tree_sum(tree.program(roots), parts, output)
            assert torch.equal(output, expected)
            assert all(torch.equal(parts[node], copy) for node, copy in copies.items())
    assert Node(0, 0) in parts or leaves > 1


def text_is_a_function_of_its_address(member, path):
    one, two = (Text("", 5, 64, 3) for _ in range(2))
    assert one.digest == two.digest
    tokens, labels = one.micro_batch(3, 7)
    assert tokens.shape == labels.shape == (3, 64)
    assert tokens.dtype == torch.int64
    assert torch.equal(tokens[:, 1:], labels[:, :-1])
    for order in ([(0, 1), (3, 7)], [(3, 7), (0, 1)]):
        got = {address: two.micro_batch(*address)[0] for address in order}
        assert torch.equal(got[3, 7], tokens)
    firsts = {tuple(one.micro_batch(i, m)[0][0].tolist()) for i in range(4) for m in range(12)}
    assert len(firsts) == 48
    assert not torch.equal(Text("", 6, 64, 3).micro_batch(3, 7)[0], tokens)
    words = bytes(tokens.flatten().tolist()).decode(errors="replace")
    assert sum(letter.isprintable() or letter in "\n\t\r" for letter in words) > 0.95 * len(words)

    own = Text(path, 1, 8, 1)
    tokens, _ = own.micro_batch(0, 0)
    with open(path, "rb") as file:
        assert bytes(tokens[0].tolist()) in file.read()
    try:
        Text(path, 1, 10_000_000, 1)
    except ValueError as error:
        assert "too few" in str(error)  # noqa: PT017
    else:
        raise AssertionError("a sequence longer than the text")
