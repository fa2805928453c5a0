"""Each invariant of every event tells, by its name, of a wrong state or event."""

import msgspec
import pytest

from tests.core.planting import (
    CONTROL,
    basis,
    folded,
    names,
    noise,
    of_node,
    of_state,
    of_task,
    of_worker,
    recorded,
)
from tests.core.story import running
from tests.core.test_severity import exits
from unicron import events as ev
from unicron.controlplane.core.change import drop, replace
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.invariants import step_violations
from unicron.controlplane.core.state import Cause

STORY = running()
STATE = STORY.state
TASK = STATE.tasks["gpt"]
FACT = ev.WorkerStarted(task="gpt", worker="n1/0", incarnation=1, pid=1)


def test_nothing_is_told_of_a_right_event():
    for before, after, entry in zip(STORY.states, STORY.states[1:], STORY.log, strict=False):
        assert step_violations(before, after, entry) == ()
    assert folded(STATE, noise(STATE)) == set()


def test_a_violation_says_what_and_where():
    (found,) = step_violations(STATE, replace(STATE, seq=STATE.seq + 2), noise(STATE))
    assert found.invariant == "events_come_in_order"
    assert found.seq == STATE.seq + 2
    at = STATE.seq
    assert found.what == f"#{at + 1} was folded on a state at #{at} and gave one at #{at + 2}"


# --- The log ------------------------------------------------------------------------------------


def again(change):
    """A fact is read a second time."""
    heard = next(r for r in STORY.log if isinstance(r.envelope.body, ev.WorkerPrepared))
    entry = replace(heard, seq=ev.Sequence(STATE.seq + 1))
    return names(step_violations(STATE, change(replace(STATE, seq=entry.seq)), entry))


def test_a_repeated_event_that_counts():
    told = {"repeated_events_change_nothing"}
    assert again(lambda s: s) == told
    assert again(of_state(duplicates=STATE.duplicates + 2)) == told
    assert again(of_state(duplicates=STATE.duplicates + 1, leader="x")) == told
    assert again(of_state(duplicates=STATE.duplicates + 1)) == set()
    new = recorded(STATE, FACT, who="worker/new")
    after = replace(STATE, seq=new.seq, duplicates=STATE.duplicates + 1)
    assert names(step_violations(STATE, after, new)) == told


def test_an_earlier_life_that_counts():
    story = running()
    story.join("n1", incarnation=2)
    old = ev.Source(who="agent/n1", incarnation=1, counter=50)
    entry = recorded(story.state, FACT)
    entry = replace(entry, entry=replace(entry.entry, source=old))
    assert folded(story.state, entry) == set()
    after = replace(story.state, seq=entry.seq)
    told = names(step_violations(story.state, after, entry))
    assert told == {"repeated_events_change_nothing"}


@pytest.mark.parametrize(
    "entry",
    [
        recorded(STATE, FACT, subject=CONTROL),
        recorded(STATE, ev.NodeAdmitted(node="n1", incarnation=1)),
        replace(noise(STATE), entry=ev.UnknownEvent(id="x", tag="y")),
    ],
    ids=["wrong tree", "void", "unknown"],
)
def test_an_event_without_effect_that_has_one(entry):
    assert folded(STATE, entry) == set()
    assert folded(STATE, entry, of_state(leader="x")) == {"void_events_change_nothing"}


def test_a_decision_of_an_old_term():
    slow = ev.WorkerSlow(task="gpt", worker="n1/0", incarnation=1, percent=200, evidence="x")
    entry = recorded(STATE, slow, term=STATE.term + 1)
    assert folded(STATE, entry) == {"one_leader_writes"}
    heeded = fold(STATE, recorded(STATE, slow))
    told = names(step_violations(STATE, heeded, entry))
    assert told == {"one_leader_writes", "old_terms_decide_nothing"}


def test_a_term_that_moves_by_itself():
    assert folded(STATE, noise(STATE), of_state(term=ev.Term(STATE.seq))) == {"terms_only_grow"}
    taken = STORY.log[0].envelope.body
    entry = recorded(STATE, taken)
    assert folded(STATE, entry) == set()
    assert folded(STATE, entry, of_state(term=STATE.term)) == {"terms_only_grow"}


def test_an_order_that_shims_obey_and_the_fold_does_not():
    closed = ev.GenerationClosed(task="gpt", generation=TASK.generation + 1, reason="x")
    assert folded(STATE, recorded(STATE, closed)) == {"obeyed_orders_are_never_void"}
    assert "one_leader_writes" in folded(STATE, recorded(STATE, closed, term=1_000))
    ordered = next(
        r.envelope.body for r in STORY.log if isinstance(r.envelope.body, ev.TransitionOrdered)
    )
    assert folded(STATE, recorded(STATE, ordered)) == {"obeyed_orders_are_never_void"}


def test_a_decision_that_nothing_overtook_and_that_does_nothing():
    told = {"decisions_that_nothing_overtook_take_effect"}
    admitted = ev.NodeAdmitted(node="n1", incarnation=1)
    assert folded(STATE, recorded(STATE, admitted, basis=basis(STATE))) == told
    overtaken = basis(replace(STATE, seq=STATE.seq - 1))
    assert folded(STATE, recorded(STATE, admitted, basis=overtaken)) == set()
    failed = ev.TaskFailed(task="gpt", reason="x")
    entry = recorded(STATE, failed, basis=basis(STATE))
    assert folded(STATE, entry) == set()
    assert names(step_violations(STATE, replace(STATE, seq=entry.seq), entry)) == told


def test_a_fact_that_decides():
    told = "facts_decide_nothing"
    assert told in folded(STATE, noise(STATE), of_task(phase="closed"))
    assert told in folded(STATE, noise(STATE), of_task(generation=TASK.generation + 1))
    allocation = replace(TASK.allocation, slots=TASK.allocation.slots[:3])
    assert told in folded(STATE, noise(STATE), of_task(allocation=allocation))
    story = running()
    exits(story, "n2/1")
    story.step()
    ((name, incident),) = story.state.incidents.items()
    worse = of_state(incidents={name: replace(incident, severity=1)})
    assert folded(story.state, noise(story.state), worse) == {told}
    other = of_state(incidents={name: incident, "inc-1": replace(incident, incident="inc-1")})
    assert told in folded(story.state, noise(story.state), other)


# --- Nodes and workers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        of_node("n1", status="joining"),
        of_worker("n1/0", status="started"),
        of_task(phase="idle"),
    ],
    ids=["node", "worker", "task"],
)
def test_a_transition_that_is_not_in_the_tables(change):
    assert "statuses_follow_the_tables" in folded(STATE, noise(STATE), change)


@pytest.mark.parametrize("part", ["nodes", "workers", "tasks"])
def test_something_is_forgotten(part):
    rest = drop(getattr(STATE, part), next(iter(getattr(STATE, part))))
    assert "nothing_is_forgotten" in folded(STATE, noise(STATE), of_state(**{part: rest}))


def test_two_lives_of_a_worker_at_once():
    told = "lives_follow_each_other"
    for life in (0, 2):
        assert told in folded(STATE, noise(STATE), of_worker("n1/0", incarnation=life))
    start = ev.WorkerStartOrdered(
        task="gpt", worker="n1/0", incarnation=2, node="n1", device=0, spec=TASK.spec, reason="x"
    )
    assert told in folded(STATE, recorded(STATE, start))
    gone = of_worker("n1/0", status="exited")(STATE)
    assert told not in folded(gone, recorded(gone, start))


@pytest.mark.parametrize(
    "fields", [{"status": "lost"}, {"status": "isolated", "reason": "lost: x"}], ids=str
)
def test_a_worker_on_a_lost_node(fields):
    told = {"lost_nodes_carry_nobody"}
    assert folded(STATE, noise(STATE), of_node("n1", **fields)) == told
    lost = of_node("n1", **fields)(STATE)
    assert folded(lost, noise(lost), of_worker("n1/0", begun=False)) == told
    sick = of_node("n1", status="isolated", reason="sick: x", sick="x")
    assert folded(STATE, noise(STATE), sick) == set()


def test_a_sick_node_that_comes_back_by_itself():
    sick = of_node("n1", status="isolated", reason="sick: x", sick="x")(STATE)
    told = "sick_nodes_stay_apart"
    assert told in folded(sick, noise(sick), of_node("n1", sick=""))
    assert told in folded(sick, noise(sick), of_node("n1", status="healthy"))
    returned = ev.NodeReturned(node="n1", by="x", reason="y")
    assert folded(sick, recorded(sick, returned)) == set()


# --- Evidence and incidents ---------------------------------------------------------------------


def hit():
    """A worker died, the incident is open; the state, and the incident."""
    story = running()
    exits(story, "n2/1")
    story.step()
    ((_, incident),) = story.state.incidents.items()
    return story.state, incident


def test_a_node_that_is_not_blamed_for_whom_nobody_can_stop():
    stopped = ev.WorkerStopOrdered(
        task="gpt", worker="n1/0", incarnation=1, node="n1", grace_ms=0, reason="x"
    )
    stopping = fold(STATE, recorded(STATE, stopped))
    entry = recorded(stopping, ev.DeadlinePassed(key="stop:n1/0:1", limit_ms=1), counter=10_000)
    told = "who_outlives_its_stop_makes_its_node_sick"
    assert told not in folded(stopping, entry)
    assert told in folded(stopping, entry, of_node("n1", sick=""))


def test_evidence_of_two_incidents():
    state, incident = hit()
    other = replace(incident, incident="inc-2", opened=ev.Sequence(state.seq + 1))
    change = of_state(incidents={incident.incident: incident, "inc-2": other})
    assert "evidence_belongs_to_one_incident" in folded(state, noise(state), change)
    change = of_state(incidents={**state.incidents, "inc-2": replace(other, task="bert")})
    assert "evidence_belongs_to_one_incident" not in folded(state, noise(state), change)


def test_evidence_out_of_nothing():
    state, incident = hit()
    more = replace(incident, evidence=(*incident.evidence, ev.Sequence(1)))
    told = folded(state, noise(state), of_state(incidents={incident.incident: more}))
    assert told == {"evidence_comes_from_the_log"}
    cause = Cause(at=ev.Sequence(3), severity=2, what="x", task="gpt")
    assert folded(STATE, noise(STATE), of_state(causes=(cause,))) == {"evidence_comes_from_the_log"}


def test_evidence_that_is_dropped():
    story = running()
    exits(story, "n2/1")
    state = story.state
    assert state.causes
    told = folded(state, noise(state), of_state(causes=()))
    assert told == {"no_evidence_is_dropped"}
    assert folded(state, recorded(state, ev.TaskFailed(task="gpt", reason="x"))) == set()


def test_an_incident_with_two_lives():
    state, incident = hit()
    name, told = incident.incident, "incidents_have_one_life"

    def planted(before, **fields):
        before = replace(state, incidents={name: before})
        after = of_state(incidents={name: replace(before.incidents[name], **fields)})
        return folded(before, noise(before), after)

    over = replace(incident, resolved=ev.Sequence(state.seq))
    assert told in planted(over, resolved=ev.Sequence(0))
    assert told in planted(over, what="otherwise")
    assert told in planted(incident, severity=3)
    assert told in planted(incident, evidence=())
    opened = recorded(state, ev.IncidentOpened(incident="inc-9", severity=1, what="x"))
    assert told in folded(state, opened)


def test_two_open_incidents_of_a_task():
    state, incident = hit()
    told = "one_open_incident_per_task"
    assert told in folded(state, noise(state), of_task(incident="inc-9"))
    assert told in folded(state, noise(state), lambda s: of_task(incident=None)(touched(s)))
    over = replace(incident, resolved=ev.Sequence(state.seq + 1))
    assert told in folded(state, noise(state), of_state(incidents={over.incident: over}))
    strange = replace(incident, task="nobody")
    assert told in folded(state, noise(state), of_state(incidents={strange.incident: strange}))


def touched(state):
    """All incidents are looked at again."""
    copies = {k: msgspec.structs.replace(i) for k, i in state.incidents.items()}
    return replace(state, incidents=copies)


@pytest.mark.parametrize(
    "fields",
    [
        {"answer": ev.Sequence(2)},
        {"request": ev.Sequence(9), "answer": ev.Sequence(8)},
        {"answered": (TASK.allocation,)},
        {"wanted": ev.Sequence(10_000)},
    ],
    ids=["no request", "older than the request", "unasked", "yet to come"],
)
def test_an_answer_that_nobody_asked_for(fields):
    plan = replace(STATE.plan, **fields)
    told = folded(STATE, noise(STATE), of_state(plan=plan))
    assert told == {"answers_are_to_the_open_request"}
