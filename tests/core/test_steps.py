"""What members hold when they stop decides how the iteration ends: nobody's micro-batch is lost or
done twice, and all stand at the same committed iteration afterwards."""

import pytest

from tests.core.reading import hold, of, samples, task
from tests.core.story import running
from unicron import events as ev

ALL = ["n1/0", "n1/1", "n2/0", "n2/1"]


def stopped(dead="n2/1", **answers):
    """The order after `dead` was killed and the others answered (iteration, kept, reduced)."""
    story = running()
    hold(story, "quiesce", *ALL)
    hold(story, "start", dead)
    story.exit(dead)
    story.settle()
    for name, (iteration, kept, reduced) in answers.items():
        worker = f"{name[:2]}/{name[2]}"
        story.quiesce(worker, iteration=iteration, kept=kept, reduced=reduced)
    return of(story.settle(), ev.TransitionOrdered), story


def by_name(order):
    return {m.worker: m for m in order.members}


def test_nobody_has_reduced():
    order, _ = stopped(n10=(5, (0, 1), False), n11=(5, (3, 4, 5), False), n20=(5, (), False))
    assert order.iteration == 5
    assert {m.worker: m.keeps for m in order.members} == {
        "n1/0": (0, 1),
        "n1/1": (3, 4, 5),
        "n2/0": (),
    }
    assert samples(order) == list(range(12))
    # New work is even: seven are left for three.
    assert sorted(len(m.owes) for m in order.members) == [2, 2, 3]
    assert not any(m.step_forward or m.state_from is not None for m in order.members)


def test_only_some_have_reduced():
    """It is reduced again, from what was kept; nothing is computed twice."""
    order, _ = stopped(
        n10=(5, (0, 1, 2), True), n11=(5, (3, 4, 5), True), n20=(5, (6, 7, 8), False)
    )
    assert order.iteration == 5
    assert [len(m.keeps) for m in order.members] == [3, 3, 3]
    assert sorted(m for member in order.members for m in member.owes) == [9, 10, 11]
    assert not any(m.step_forward for m in order.members)


def test_all_have_reduced():
    """Whether they have voted or not: the gradient is complete, so the iteration is committed."""
    order, _ = stopped(n10=(5, (0, 1, 2), True), n11=(5, (3, 4, 5), True), n20=(5, (6, 7, 8), True))
    assert order.iteration == 6
    assert all(m.step_forward and m.keeps == () for m in order.members)
    assert samples(order) == list(range(12))


def test_some_have_stepped():
    """Then everybody had voted: all step forward, and nobody computes that iteration again."""
    order, _ = stopped(n10=(6, (), False), n11=(5, (3, 4, 5), True), n20=(6, (7,), False))
    assert order.iteration == 6
    members = by_name(order)
    assert members["n1/1"].step_forward
    assert members["n1/1"].keeps == ()
    assert not members["n1/0"].step_forward
    assert members["n2/0"].keeps == (7,)
    assert samples(order) == list(range(12))


def test_who_has_fallen_behind_gets_the_state_of_a_donor():
    """A former member that holds an older state takes part, but never holds the others up."""
    order, _ = stopped(n10=(6, (0,), True), n11=(6, (3,), True), n20=(2, (6, 7), False))
    assert order.iteration == 7  # both that have come furthest hold the reduced gradient
    late = by_name(order)["n2/0"]
    assert (late.keeps, late.step_forward) == ((), False)
    donor = order.members[late.state_from]
    assert donor.step_forward


def test_two_who_say_to_hold_the_same_micro_batch():
    """It can't be; should it be all the same, one starts clean and the sum stays right."""
    order, _ = stopped(n10=(5, (0, 1), False), n11=(5, (1, 2), False), n20=(5, (99,), False))
    assert samples(order) == list(range(12))
    clean = [m for m in order.members if m.state_from is not None]
    assert len(clean) == 2
    assert all(order.members[m.state_from].keeps in {(0, 1), (1, 2)} for m in clean)


@pytest.mark.parametrize("reduced", [True, False])
def test_a_second_break_before_the_order_was_carried_out(reduced):
    """Answers of the second close count, whatever the first order said."""
    order, story = stopped(n10=(5, (0, 1), reduced), n11=(5, (3,), reduced), n20=(5, (6,), reduced))
    assert order.iteration == (6 if reduced else 5)
    hold(story, "start", "n2/0")
    story.exit("n2/0")
    story.settle()
    # n1/0 had carried out the order, n1/1 had not heard of it.
    story.quiesce("n1/0", iteration=order.iteration, kept=() if reduced else (0, 1, 2))
    story.quiesce("n1/1", iteration=5, kept=(3,), reduced=reduced)
    again = of(story.settle(), ev.TransitionOrdered)
    assert again.iteration == order.iteration
    assert samples(again) == list(range(12))
    assert by_name(again)["n1/1"].step_forward is reduced
    assert task(story).generation == 3


def test_members_at_different_iterations_break_the_generation():
    story = running()
    hold(story, "ready", *ALL)
    story.exit("n2/1")
    story.settle()
    order = story.log[task(story).order - 1].envelope.body
    for member, iteration in zip(order.members, (1, 2, 1), strict=True):
        story.ready(order, member, iteration)
    made = story.settle()
    assert "different iterations" in of(made, ev.GenerationClosed).reason
    assert "TransitionCompleted" not in {type(b).__name__ for b in made}
