"""Follower, candidate, leader: what is seen, and what follows from it."""

import pytest

from unicron.controlplane.runtime import leadership
from unicron.controlplane.runtime.leadership import Move, Role, Standing
from unicron.controlplane.runtime.ports import Hold
from unicron.events import Term

LIMIT = 2000
ME, OTHER, BEFORE = "a/7", "b/3", "a/2"


def standing(**more):
    return Standing(me=ME, limit_ms=LIMIT, **more)


def follower(hold=None, since_ms=0):
    """Has looked before."""
    return standing(seen=hold, since_ms=since_ms, looked=True)


def leader():
    return standing(role=Role.LEADER, seen=Hold(ME, 4), looked=True, term=Term(9))


def candidate():
    return standing(role=Role.CANDIDATE, seen=Hold(ME, 4), looked=True)


@pytest.mark.parametrize(
    "hold,move",
    [
        pytest.param(Hold(), Move.TAKE, id="there is no lease"),
        pytest.param(Hold("", 5), Move.TAKE, id="it was given back"),
        pytest.param(Hold(BEFORE, 5), Move.TAKE, id="its own earlier life has it"),
        pytest.param(Hold(OTHER, 5), Move.LOOK, id="another one has it"),
        pytest.param(Hold(ME, 5), Move.TAKE, id="it has it, the answer had been lost"),
    ],
)
def test_whoever_begins(hold, move):
    assert leadership.next_move(standing(), 0) is Move.LOOK
    assert leadership.next_move(leadership.looked(standing(), hold, 50), 50) is move


@pytest.mark.parametrize(
    "hold,waits_ms",
    [
        pytest.param(Hold(OTHER, 5), 0, id="nothing has changed for the limit"),
        pytest.param(Hold(OTHER, 6), LIMIT, id="it was renewed"),
        pytest.param(Hold("c/1", 6), LIMIT, id="a third one took it"),
        pytest.param(Hold("", 6), 0, id="it was given back"),
        pytest.param(Hold(), LIMIT, id="its keeper lost it: whoever leads makes it again"),
        pytest.param(Hold(BEFORE, 6), LIMIT, id="another process of its name began later"),
    ],
)
def test_whoever_follows_waits_for_the_limit_by_its_own_clock(hold, waits_ms):
    at = leadership.looked(follower(Hold(OTHER, 5)), hold, LIMIT)
    assert at.role is Role.FOLLOWER
    assert leadership.next_move(at, LIMIT + waits_ms) is Move.TAKE
    if waits_ms:
        assert leadership.next_move(at, LIMIT + waits_ms - 1) is Move.LOOK


def test_a_wait_begins_anew_when_nobody_could_say():
    at = leadership.unanswered(follower(Hold(OTHER, 5)))
    assert leadership.next_move(at, 10 * LIMIT) is Move.LOOK
    at = leadership.looked(at, Hold(OTHER, 5), 10 * LIMIT)
    assert leadership.next_move(at, 11 * LIMIT - 1) is Move.LOOK
    assert leadership.next_move(at, 11 * LIMIT) is Move.TAKE


def test_from_follower_to_leader():
    at = leadership.took(follower(Hold(OTHER, 5)), Hold(ME, 6), LIMIT)
    assert at.role is Role.CANDIDATE
    assert leadership.next_move(at, LIMIT) is Move.TAKE  # renews it
    at = leadership.leads(at, Term(40))
    assert (at.role, at.term) == (Role.LEADER, 40)


def test_whoever_came_too_late_looks_and_follows():
    at = leadership.took(follower(Hold(OTHER, 5)), None, LIMIT)
    assert (at.role, leadership.next_move(at, LIMIT)) == (Role.FOLLOWER, Move.LOOK)


STEPS_DOWN = [
    pytest.param(lambda at: leadership.looked(at, Hold(OTHER, 5), 0), id="sees it with another"),
    pytest.param(lambda at: leadership.looked(at, Hold(BEFORE, 5), 0), id="... of its own name"),
    pytest.param(lambda at: leadership.folded(at, Term(50)), id="folds another's term"),
    pytest.param(leadership.refused, id="is refused by the fence"),
]


@pytest.mark.parametrize("happens", STEPS_DOWN)
def test_the_leader_steps_down(happens):
    at = happens(leader())
    assert (at.role, at.term) == (Role.FOLLOWER, 0)


@pytest.mark.parametrize("happens", STEPS_DOWN[:2])
def test_a_candidate_steps_down_only_for_the_lease(happens):
    assert happens(candidate()).role is Role.FOLLOWER


@pytest.mark.parametrize("happens", STEPS_DOWN[2:])
def test_a_candidate_reads_on(happens):
    assert happens(candidate()) == candidate()


@pytest.mark.parametrize("happens", STEPS_DOWN)
def test_whoever_stepped_down_believes_nothing_it_saw_before(happens):
    """In particular not that the lease is its own."""
    at = happens(leader())
    assert leadership.next_move(at, 0) is Move.LOOK


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(leadership.unanswered, id="no answer"),
        pytest.param(lambda at: leadership.took(at, None, 0), id="a renewal that came too late"),
        pytest.param(lambda at: leadership.folded(at, Term(9)), id="its own term"),
        pytest.param(lambda at: leadership.looked(at, Hold(ME, 5), 0), id="it is its own"),
        pytest.param(lambda at: leadership.looked(at, Hold(), 0), id="it is lost"),
    ],
)
def test_the_leader_leads_on(happens):
    at = happens(leader())
    assert (at.role, at.term) == (Role.LEADER, 9)


def test_the_leader_makes_a_lost_lease_again_at_once():
    at = leadership.looked(leadership.unanswered(leader()), Hold(), 0)
    assert leadership.next_move(at, 0) is Move.TAKE
