"""The shim's protocol: what a worker does next is a function of the newest orders, never of the
order in which they arrived or how often."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unicron.events import GenerationClosed, OrderedMember, TransitionOrdered
from unicron.worker_shim import core

ME, OTHER = "n1/0", "n2/0"


def shim(**state):
    return core.Shim(task="gpt", worker=ME, incarnation=1, **state)


def close(generation, task="gpt"):
    return GenerationClosed(task=task, generation=generation, reason="x")


def order(generation, *, planned=False, people=((ME, 1), (OTHER, 1)), task="gpt"):
    return TransitionOrdered(
        task=task,
        generation=generation,
        planned=planned,
        iteration=-1 if planned else 0,
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=len(people),
        store_address="a",
        store_port=1,
        members=tuple(
            OrderedMember(worker=worker, incarnation=life, node="n", rank=rank, keeps=(), owes=())
            for rank, (worker, life) in enumerate(people)
        ),
        reason="x",
    )


def heard(machine, *orders, term=1):
    for body in orders:
        machine, _ = core.on_order(machine, term, body)
    return machine


def standing(generation):
    """A member that trains in that generation."""
    machine = heard(shim(), order(generation))
    assert core.todo(machine) == core.JOIN
    return core.entering(machine)


# --- Orders -------------------------------------------------------------------------------------


def test_a_new_worker_waits_for_its_first_order():
    assert core.todo(shim()) == core.WAIT
    machine = heard(shim(), order(1))
    assert core.todo(machine) == core.JOIN
    machine = core.entering(machine)
    assert (core.todo(machine), machine.standing, machine.order) == (core.TRAIN, 1, None)


def test_a_close_is_obeyed_at_once():
    machine, shut = core.on_order(standing(1), 1, close(1))
    assert shut == 1
    assert core.must_stop(machine)
    assert core.todo(machine) == core.ANSWER


def test_a_close_is_answered_once():
    machine = core.answered(heard(standing(1), close(1)))
    assert (core.todo(machine), machine.standing) == (core.WAIT, 0)
    again, shut = core.on_order(machine, 1, close(1))
    assert (again, shut) == (machine, None)
    assert core.todo(again) == core.WAIT


def test_who_stands_in_no_generation_answers_a_close_as_well():
    """A joiner says that it holds no state, or which."""
    machine = heard(shim(), close(3))
    assert core.todo(machine) == core.ANSWER
    assert not core.must_stop(machine)
    assert core.todo(core.answered(machine)) == core.WAIT


def test_a_later_close_needs_an_answer_of_its_own():
    machine = core.answered(heard(standing(1), close(1)))
    machine = heard(machine, close(2))
    assert core.todo(machine) == core.ANSWER
    machine = core.answered(machine)
    assert (machine.answered, core.todo(machine)) == (2, core.WAIT)


def test_the_answer_comes_before_the_order():
    machine = heard(standing(1), close(1), order(2))
    assert core.todo(machine) == core.ANSWER
    assert core.todo(core.answered(machine)) == core.JOIN


def test_an_order_of_a_closed_generation_is_refused():
    machine = core.answered(heard(standing(1), close(2)))
    late = heard(machine, order(2))
    assert (late.order, late.refused) == (None, machine.refused + 1)
    assert core.todo(late) == core.WAIT


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_an_order_of_a_generation_that_was_entered_or_left_is_refused(generation):
    machine = heard(standing(3), order(generation))
    assert (machine.order, core.todo(machine)) == (None, core.TRAIN)


def test_an_older_order_does_not_replace_a_newer_one():
    machine = heard(shim(), order(4), order(3))
    assert machine.order.generation == 4


@pytest.mark.parametrize("body", [close(5), order(5)])
def test_a_lower_term_is_refused(body):
    machine = heard(standing(1), order(2, planned=True), term=7)
    after, shut = core.on_order(machine, 6, body)
    assert shut is None
    assert (after.order, after.closed) == (machine.order, machine.closed)
    assert after.refused == machine.refused + 1


def test_a_higher_term_is_remembered():
    machine = heard(standing(1), close(1), term=9)
    assert machine.term == 9


@pytest.mark.parametrize("body", [close(5, task="bert"), order(5, task="bert"), "no order"])
def test_what_is_not_for_this_task_is_ignored(body):
    machine = standing(1)
    assert core.on_order(machine, 99, body) == (machine, None)


def test_a_stale_close_does_not_throw_it_out_of_a_newer_generation():
    """The leader says open orders again; by the time they arrive they may be closed chapters."""
    machine = standing(3)
    after, shut = core.on_order(machine, 1, close(2))
    assert shut is None
    assert (core.todo(after), after.standing) == (core.TRAIN, 3)
    assert not core.must_stop(after)


# --- Places -------------------------------------------------------------------------------------


def test_a_place_is_for_one_life():
    assert core.place(shim(), order(1)).rank == 0
    assert core.place(shim(), order(1, people=[(OTHER, 1), (ME, 1)])).rank == 1
    assert core.place(shim(), order(1, people=[(OTHER, 1), (ME, 2)])) is None


def test_who_is_left_out_waits():
    machine = core.answered(heard(standing(1), close(1)))
    machine = heard(machine, order(2, people=[(OTHER, 1)]))
    assert (core.todo(machine), machine.excluded) == (core.WAIT, 2)
    back = heard(machine, order(3, planned=True))
    assert core.todo(back) == core.JOIN


def test_an_order_that_leaves_it_out_replaces_one_that_wants_it():
    machine = heard(shim(), order(2, planned=True), order(3, people=[(OTHER, 1)]))
    assert (machine.order, core.todo(machine)) == (None, core.WAIT)


# --- Planned transitions ------------------------------------------------------------------------


def test_a_joiner_joins_a_planned_one_at_once():
    assert core.todo(heard(shim(), order(2, planned=True))) == core.JOIN


def test_a_member_trains_on_until_the_boundary():
    machine = heard(standing(1), order(2, planned=True))
    assert (core.todo(machine), machine.newest) == (core.TRAIN, 2)
    assert core.boundary(machine, 2)
    machine = core.left(machine)
    assert core.todo(machine) == core.JOIN
    assert core.entering(machine).standing == 2


def test_the_boundary_is_where_the_vote_says_so():
    """Also for a member that hasn't heard of the order yet; and for nobody if nobody has."""
    machine = standing(1)
    assert machine.newest == 1
    assert not core.boundary(machine, 1)
    assert core.boundary(machine, 2)


def test_a_leaver_knows_it_by_its_vote():
    machine = heard(standing(1), order(2, planned=True, people=[(OTHER, 1)]))
    assert (machine.newest, core.todo(machine)) == (2, core.TRAIN)
    assert core.boundary(machine, machine.newest)
    assert core.todo(core.left(machine)) == core.WAIT


def test_a_member_whose_generation_broke_does_not_switch():
    """There is no boundary any more: members may stand at different places. The close comes."""
    machine = core.broke(heard(standing(1), order(2, planned=True)))
    assert core.todo(machine) == core.WAIT
    machine = heard(machine, close(2))
    assert core.todo(machine) == core.ANSWER
    machine = core.answered(machine)
    assert core.todo(machine) == core.WAIT  # the planned order was closed with it
    assert core.todo(heard(machine, order(3))) == core.JOIN


def test_a_planned_order_that_is_closed_stops_the_old_generation_too():
    machine = heard(standing(1), order(2, planned=True), close(2))
    assert core.must_stop(machine)
    assert (machine.order, core.todo(machine)) == (None, core.ANSWER)


def test_entering_ends_a_break():
    machine = core.broke(standing(1))
    assert core.todo(machine) == core.WAIT
    machine = core.entering(heard(core.answered(heard(machine, close(1))), order(2)))
    assert core.todo(machine) == core.TRAIN


# --- Any order of arrival -----------------------------------------------------------------------

STORY = [
    close(1),
    order(2, people=[(OTHER, 1)]),
    order(3, planned=True),
    close(3),
    order(4, people=[(ME, 1)]),
]


def view(machine):
    return core.todo(machine), machine.closed, machine.order


@pytest.mark.parametrize("end", range(1, len(STORY) + 1))
@pytest.mark.parametrize("start", [shim(), standing(1)], ids=["new", "member"])
def test_orders_may_arrive_in_any_order(start, end):
    expected = view(heard(start, *STORY[:end]))
    found = {repr(view(heard(start, *some))) for some in permutations(STORY[:end])}
    assert found == {repr(expected)}


@given(st.lists(st.sampled_from(STORY), min_size=5, max_size=20))
def test_orders_may_arrive_again_and_again(orders):
    machine = heard(standing(1), *STORY, *orders)
    assert view(machine) == view(heard(standing(1), *STORY))
    answered = core.answered(machine)
    assert view(heard(answered, *orders)) == view(answered)
    entered = core.entering(answered)
    assert core.todo(heard(entered, *orders)) == core.TRAIN


@given(st.lists(st.sampled_from([*STORY, "answer", "enter", "break", "leave"]), max_size=30))
def test_generations_and_answers_only_grow(steps):
    """Whatever the training thread does in between."""
    machine, answers = shim(), []
    for step in steps:
        before = machine
        if step == "answer" and core.todo(machine) == core.ANSWER:
            answers.append(machine.closed)
            machine = core.answered(machine)
        elif step == "enter" and core.todo(machine) == core.JOIN:
            machine = core.entering(machine)
            assert machine.standing > before.standing
        elif step == "break" and core.todo(machine) == core.TRAIN:
            machine = core.broke(machine)
        elif step == "leave" and machine.newest > machine.standing > 0:
            machine = core.left(machine)
        elif not isinstance(step, str):
            machine = heard(machine, step)
        assert machine.closed >= before.closed
        assert machine.answered >= before.answered
        assert machine.answered <= machine.closed
        if machine.order is not None:
            assert machine.order.generation > max(machine.closed, machine.standing)
    assert len(answers) == len(set(answers))
