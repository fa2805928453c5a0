"""Who hands its state to whom when those who hold it and those who are to train differ."""

from tests.core.reading import hold, members, of, samples, task
from tests.core.story import SPEC, Story, running
from tests.core.test_plan import OTHER, allocate
from tests.core.test_severity import ALL
from tests.core.test_steps import by_name, stopped
from unicron import events as ev
from unicron.controlplane.core.change import replace


def broken(micro_batches):
    """n2/1 no longer belongs to the task when its generation breaks; nobody has answered yet."""
    story = Story()
    story.join("n1")
    story.join("n2")
    story.settle()
    story.submit(replace(SPEC, micro_batches=micro_batches, max_devices=4))
    story.settle()
    hold(story, "quiesce", *ALL)
    hold(story, "stop", *ALL)
    hold(story, "ready", *ALL)
    story.exit("n2/0")
    hold(story, "start", "n2/0")
    story.settle()
    allocate(story, "gpt", ["n1/0", "n1/1"])
    return story


def test_who_holds_the_newest_state_hands_it_over_before_it_leaves():
    story = broken(micro_batches=12)
    for name, iteration in (("n1/0", 5), ("n1/1", 5), ("n2/1", 7)):
        story.quiesce(name, iteration=iteration)
    order = of(story.settle(), ev.TransitionOrdered)
    found = by_name(order)
    assert set(found) == {"n1/0", "n1/1", "n2/1"}
    assert order.iteration == 7
    donor = found["n2/1"].rank
    assert [found[n].state_from for n in ("n1/0", "n1/1")] == [donor, donor]
    assert samples(order) == list(range(12))


def test_there_are_never_more_members_than_micro_batches():
    """One of those who stay waits until the other has the state."""
    story = broken(micro_batches=4)
    story.state = replace(
        story.state,
        tasks={"gpt": replace(task(story), spec=replace(task(story).spec, micro_batches=2))},
    )
    for name, iteration in (("n1/0", 5), ("n1/1", 5), ("n2/1", 7)):
        story.quiesce(name, iteration=iteration)
    order = of(story.settle(), ev.TransitionOrdered)
    assert len(order.members) == 2
    assert "n2/1" in by_name(order)
    assert samples(order) == [0, 1]


def test_who_is_close_enough_does_not_wait_for_the_one_that_leaves():
    """They hold the reduced gradient of the iteration that it has committed."""
    story = broken(micro_batches=12)
    for name in ("n1/0", "n1/1"):
        story.quiesce(name, iteration=6, reduced=True)
    story.quiesce("n2/1", iteration=7)
    order = of(story.settle(), ev.TransitionOrdered)
    assert set(by_name(order)) == {"n1/0", "n1/1"}
    assert order.iteration == 7
    assert all(m.step_forward for m in order.members)


def test_the_one_that_stands_furthest_starts_clean_if_what_it_kept_is_wrong():
    order, _ = stopped(n10=(4, (), False), n11=(5, (99,), False), n20=(4, (), False))
    found = by_name(order)
    assert order.iteration == 5
    assert (found["n1/1"].state_from, found["n1/1"].keeps) == (None, ())
    assert {found[n].state_from for n in ("n1/0", "n2/0")} == {found["n1/1"].rank}
    assert samples(order) == list(range(12))


def test_a_task_of_few_micro_batches_is_moved_one_by_one():
    story = Story()
    story.join("n1", devices=2)
    story.submit(replace(SPEC, micro_batches=2))
    story.settle()
    assert set(members(story)) == {"n1/0", "n1/1"}
    story.join("n2")
    story.settle()
    allocate(story, "gpt", ["n2/0", "n2/1"])
    orders = [b for b in story.settle() if isinstance(b, ev.TransitionOrdered)]
    assert all(len(o.members) <= 2 for o in orders)
    assert set(members(story)) == {"n2/0", "n2/1"}


def test_one_task_that_has_to_wait_does_not_hold_up_another():
    """The first one's joiner is still warming up."""
    story = running()
    story.submit(OTHER)
    story.settle()
    story.solve = lambda: None
    allocate(story, "gpt", ["n1/0"])
    allocate(story, "bert", ["n2/0"])
    story.settle()
    hold(story, "start", "n1/1")
    allocate(story, "gpt", ["n1/0", "n1/1"])
    allocate(story, "bert", ["n2/0", "n2/1"])
    story.settle()
    assert members(story) == ["n1/0"]
    assert set(members(story, "bert")) == {"n2/0", "n2/1"}
