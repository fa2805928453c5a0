"""Who hands the training state to whom."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unicron.controlplane.core.donors import donors
from unicron.controlplane.core.state import ClusterState, NodeState, WorkerState
from unicron.events import Incarnation, NodeId, Sequence, TaskId, WorkerId

RACKS = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r2", "n5": ""}


def node(name):
    return NodeState(
        node=NodeId(name),
        incarnation=Incarnation(1),
        status="healthy",
        since=Sequence(1),
        address="127.0.0.1",
        store_port=1,
        devices=8,
        device_kind="gpu",
        rack=RACKS[name],
        last_fact=Sequence(1),
    )


STATE = ClusterState(nodes={name: node(name) for name in RACKS})


def worker(name):
    where, _, device = name.partition("/")
    return WorkerState(
        worker=WorkerId(name),
        task=TaskId("gpt"),
        node=NodeId(where),
        device=int(device),
        incarnation=Incarnation(1),
        status="member",
        order=Sequence(1),
    )


def chosen(standing, joining):
    """Who sends it to each of those who join, by name."""
    names = [*standing, *joining]
    stands = [True] * len(standing) + [False] * len(joining)
    found = donors(STATE, [worker(name) for name in names], stands)
    assert found[: len(standing)] == [None] * len(standing)
    return [names[rank] for rank in found[len(standing) :]]


@pytest.mark.parametrize(
    "standing, joining, donor",
    [
        (["n1/0", "n2/0"], "n2/1", "n2/0"),  # the same node
        (["n3/0", "n1/0"], "n2/0", "n1/0"),  # the same rack
        (["n3/0", "n1/0"], "n5/0", "n3/0"),  # no rack is nobody's rack
        (["n1/0"], "n4/0", "n1/0"),  # whoever there is
    ],
)
def test_the_nearest_sends_it(standing, joining, donor):
    assert chosen(standing, [joining]) == [donor]


def test_nobody_feeds_all_that_join():
    assert chosen(["n1/0", "n2/0"], ["n3/0", "n3/1", "n4/0", "n4/1"]).count("n1/0") == 2


def test_nobody_joins():
    assert chosen(["n1/0", "n2/0"], []) == []


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    st.lists(
        st.sampled_from([f"{n}/{d}" for n in RACKS for d in range(3)]), min_size=1, unique=True
    ),
    st.randoms(use_true_random=False),
)
def test_each_joiner_has_a_donor_and_donors_share_the_work(names, chance):
    held = chance.randint(1, len(names))
    standing, joining = names[:held], names[held:]
    found = chosen(standing, joining)
    assert set(found) <= set(standing) and len(found) == len(joining)
    served = [found.count(name) for name in standing]
    assert max(served) - min(served) <= 1
