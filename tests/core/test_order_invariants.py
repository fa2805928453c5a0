"""Each invariant of orders to form a generation tells, by its name, of an order that is wrong."""

import pytest

from tests.core.planting import of_node, of_state, of_task, of_worker
from tests.core.test_decision_invariants import first, told
from unicron import events as ev
from unicron.controlplane.core.change import replace

AT, ORDER = first(ev.TransitionOrdered, generation=2, iteration=5)


def ordered(*members, at=AT, **fields) -> set[str]:
    """What is told of the order after the break, with other members or fields."""
    return told(at, replace(ORDER, **({"members": members} if members else {}), **fields))


def changed(place, **fields) -> tuple:
    """The members, one of them changed. They are n1/0, n2/0 and n1/1."""
    return tuple(replace(m, **fields) if m.rank == place else m for m in ORDER.members)


def test_the_order_after_a_break_is_right():
    assert ordered() == set()
    assert [(m.worker, m.keeps) for m in ORDER.members] == [
        ("n1/0", (0,)),
        ("n2/0", (2,)),
        ("n1/1", (1,)),
    ]


def test_an_order_before_all_have_answered():
    name = ORDER.members[2].worker
    answers = {k: a for k, a in AT.tasks["gpt"].answers.items() if k != name}
    assert "orders_wait_for_all_answers" in ordered(at=of_task(answers=answers)(AT))


def test_an_order_before_who_failed_must_go():
    assert ordered(at=of_worker("n2/1", status="failed")(AT)) == {"orders_wait_for_all_answers"}


@pytest.mark.parametrize(
    "change",
    [
        of_worker("n1/0", incarnation=2),
        of_worker("n1/0", status="stopping"),
        of_worker("n1/0", task="bert"),
    ],
)
def test_an_order_to_somebody_who_is_not_there(change):
    assert "ordered_members_are_present" in ordered(at=change(AT))


def test_an_order_with_the_wrong_node():
    assert ordered(*changed(0, node="n2")) == {"ordered_members_are_present"}


def test_an_order_to_members_that_run_different_software():
    at = of_worker(ORDER.members[0].worker, spec_digest="other")(AT)
    assert ordered(at=at) == {"members_run_one_software"}


def test_an_order_with_wrong_ranks():
    wrong = "ordered_ranks_count_from_zero"
    assert wrong in ordered(*changed(2, rank=3))
    assert wrong in ordered(*changed(2, worker="n1/0"))
    assert ordered(data_parallel=4) == {wrong}


def test_an_order_with_a_store_of_nobody():
    wrong = {"stores_are_on_a_members_node"}
    assert ordered(store_port=77) == wrong
    assert ordered(at=of_state(nodes={})(AT)) >= wrong
    lost = AT
    for name in ("n1", "n2"):
        lost = of_node(name, status="lost")(lost)
    assert ordered(at=lost) == wrong


@pytest.mark.parametrize("owes", [(3,), (), (0, 3, 6, 9, 12)], ids=["too few", "none", "too many"])
def test_an_order_that_does_not_hand_out_every_sample_once(owes):
    assert ordered(*changed(0, owes=owes)) == {"orders_hand_out_every_sample_once"}


def test_a_planned_order_that_hands_out_samples():
    at, body = first(ev.TransitionOrdered, planned=True)
    one = replace(body.members[0], owes=(1,))
    assert told(at, body) == set()
    wrong = {"orders_hand_out_every_sample_once"}
    assert told(at, replace(body, members=(one, *body.members[1:]))) == wrong


def test_an_order_to_keep_what_nobody_holds():
    wrong = "members_keep_only_what_they_hold"
    swapped = (
        replace(ORDER.members[0], keeps=(2,)),
        replace(ORDER.members[1], keeps=(0,)),
        ORDER.members[2],
    )
    assert ordered(*swapped) == {wrong}
    assert wrong in ordered(iteration=4)


def test_an_order_whose_members_stand_apart():
    wrong = "ordered_members_reach_one_iteration"
    assert ordered(*changed(1, step_forward=True)) == {wrong}
    assert wrong in ordered(iteration=6)
    answers = dict(AT.tasks["gpt"].answers)
    behind = replace(answers["n1/1"], iteration=4, reduced=True)
    at = of_task(answers={**answers, "n1/1": behind})(AT)
    assert wrong in ordered(at=at)
    assert wrong not in ordered(*changed(2, step_forward=True), at=at)
    assert wrong in ordered(*changed(2, step_forward=True, state_from=0), at=at)


def test_an_order_with_a_donor_that_has_nothing():
    wrong = "donors_have_state"
    assert ordered(*changed(1, keeps=(), owes=(1, 4, 7, 10), state_from=1)) >= {wrong}
    assert wrong in ordered(*changed(1, state_from=9))
    assert wrong in ordered(*changed(1, state_from=-1))
    assert ordered(at=of_worker("n1/0", joined_at=-1)(AT)) == {wrong}


def test_an_order_that_gives_up_a_committed_iteration():
    answers = dict(AT.tasks["gpt"].answers)
    ahead = replace(answers["n1/1"], iteration=6)
    at = of_task(answers={**answers, "n1/1": ahead})(AT)
    assert "no_committed_iteration_is_given_up" in ordered(at=at)
