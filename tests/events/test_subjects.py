import pytest

from unicron.events import ConfigError, subjects


def test_trees():
    assert subjects.tree_of(subjects.fact("c", "n1")) == "fact"
    assert subjects.tree_of(subjects.control("c", "task", "t.1")) == "control"
    assert subjects.tree_of(subjects.advisory("c", "connect")) == "advisory"
    for other in ("", "unicron", "unicron.c.fact", subjects.beat("c", "n1"), "x.c.fact.n1"):
        assert not subjects.tree_of(other)


def test_where_a_decision_is_heard():
    for kind, name in (("task", "t"), ("node", "n1.rack2")):
        stored = subjects.control("c", kind, name)
        assert subjects.order_of(stored) == subjects.order("c", kind, name)


@pytest.mark.parametrize("bad", ["", "a.b", "a b", "a*", ">", "-a", "x" * 65, "ü"])
def test_cluster_names_that_can_not_be_part_of_a_subject(bad):
    with pytest.raises(ConfigError) as raised:
        subjects.check_cluster(bad)
    assert raised.value.code == "E-CONFIG-CLUSTER"


def test_ordinary_cluster_names():
    for good in ("demo", "prod-1", "A_b", "7"):
        subjects.check_cluster(good)
