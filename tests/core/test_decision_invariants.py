"""Each invariant of decisions tells, by its name, of a decision that is wrong where it is made."""

import pytest

from tests.core.planting import names, of_node, of_plan, of_state, of_task, of_worker
from tests.core.reading import hold, release
from tests.core.story import Story, running
from tests.core.test_severity import exits
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.invariants import decision_violations
from unicron.controlplane.core.verdict import Verdict


def settled(story: Story) -> list[tuple]:
    """Every decision that is made until there is none, as (state, verdict, state after it); all of
    them right."""
    made = []
    while (verdict := decide(story.state)) is not None:
        at = story.state
        assert decision_violations(at, verdict) == ()
        story.write(verdict, at)
        made.append((at, verdict, story.state))
        story.react(verdict.body)
    return made


def beginning() -> list[tuple]:
    story = Story()
    story.join("n1")
    story.join("n2")
    story.submit()
    return settled(story)


def killed() -> list[tuple]:
    """A worker dies in the middle of an iteration, and comes back."""
    story = running()
    exits(story, "n2/1")
    hold(story, "quiesce", "n1/0", "n1/1", "n2/0")
    made = settled(story)
    release(story, "quiesce", "n1/0", "n1/1", "n2/0")
    for number, name in enumerate(["n1/0", "n1/1", "n2/0"]):
        story.quiesce(name, 5, kept=(number,))
    return made + settled(story)


def powered_off() -> list[tuple]:
    story = running(3)
    story.lose("n2")
    return settled(story)


def ended() -> list[tuple]:
    story = running()
    story.decide_input(ev.TaskFailed(task="gpt", reason="x"))
    return settled(story)


MADE = [*beginning(), *killed(), *powered_off(), *ended()]


def first(kind, **fields):
    """The first decision of that kind with these fields, as (state, body)."""
    for at, verdict, _ in MADE:
        body = verdict.body
        if type(body) is kind and all(getattr(body, k) == v for k, v in fields.items()):
            return at, body
    raise AssertionError(kind)


def told(at, body, incident=None) -> set[str]:
    return names(decision_violations(at, Verdict(body=body, cause=(at.seq,), incident=incident)))


def test_the_examples_have_most_kinds_of_decisions():
    assert len({type(verdict.body) for _, verdict, _ in MADE}) == 12


# --- Why ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [(), (0,), (10_000,)], ids=["none", "zero", "yet to come"])
def test_a_decision_without_a_cause(cause):
    at, body = first(ev.NodeAdmitted)
    verdict = Verdict(body=body, cause=cause)
    assert names(decision_violations(at, verdict)) == {"decisions_name_their_cause"}


@pytest.mark.parametrize(
    "body",
    [
        ev.TaskFailed(task="nobody", reason="x"),
        ev.NodeIsolated(node="n9", reason="x"),
        ev.IncidentResolved(incident="inc-9", outcome="x"),
        ev.WorkerStopOrdered(
            task="gpt", worker="n9/0", incarnation=1, node="n1", grace_ms=0, reason="x"
        ),
        ev.PlanDecided(
            source="local",
            computed_at=1,
            allocations=(
                ev.Allocation(
                    task="nobody",
                    tensor_parallel=1,
                    pipeline_parallel=1,
                    data_parallel=0,
                    slots=(),
                ),
            ),
            value=0,
            waf_milli=0,
            reason="x",
        ),
    ],
    ids=lambda body: type(body).__name__,
)
def test_a_decision_about_what_does_not_exist(body):
    assert told(running().state, body) == {"decisions_name_what_exists"}


def test_a_decision_of_an_incident_that_is_over():
    at, body = first(ev.GenerationClosed)
    ((name, incident),) = at.incidents.items()
    assert told(at, body, name) == set()
    assert told(at, body, "inc-9") == {"decisions_name_their_incident"}
    over = of_state(incidents={name: replace(incident, resolved=ev.Sequence(1))})(at)
    assert told(over, body, name) == {"decisions_name_their_incident"}


# --- Once ---------------------------------------------------------------------------------------


TWICE = "nothing_is_decided_twice"


@pytest.mark.parametrize("kind", sorted({type(v.body).__name__ for _, v, _ in MADE}))
def test_a_decision_that_is_made_again(kind):
    """On the state that it led to."""
    at, verdict, after = next(
        (at, verdict, after) for at, verdict, after in MADE if type(verdict.body).__name__ == kind
    )
    assert TWICE not in told(at, verdict.body)
    assert TWICE in told(after, verdict.body)


@pytest.mark.parametrize(
    "kind,change",
    [
        (ev.GenerationClosed, of_task(phase="closed")),
        (ev.TransitionOrdered, of_task(phase="ordered")),
        (ev.TransitionCompleted, of_task(broken=(ev.Sequence(1),))),
        (ev.NodeLost, of_node("n2", incarnation=2)),
        (ev.NodeAdmitted, of_node("n1", sick="x")),
        (ev.PlanRequested, of_plan(request=ev.Sequence(1))),
        (ev.PlanDecided, of_plan(answer=ev.Sequence(0))),
        (ev.IncidentOpened, of_state(causes=())),
    ],
)
def test_a_decision_that_nothing_calls_for(kind, change):
    at, body = first(kind, **({"source": "dp"} if kind is ev.PlanDecided else {}))
    assert TWICE in told(change(at), body)


def test_an_end_a_drop_and_an_escalation_that_nothing_calls_for():
    over, failed = ended()[0][0], ev.TaskFailed(task="gpt", reason="x")
    assert told(over, failed) == {TWICE}
    assert told(running().state, failed) == set()
    assert told(over, ev.PlanDropped(request=9, reason="x")) == {TWICE}
    at, _ = first(ev.GenerationClosed)
    ((name, _),) = at.incidents.items()
    assert told(at, ev.IncidentEscalated(incident=name, severity=1, reason="x")) == {TWICE}


@pytest.mark.parametrize("severity,over,wrong", [(2, 0, 0), (3, 0, 1), (2, 9, 1)])
def test_an_escalation_of_an_incident_that_is_over_or_that_goes_not_upwards(severity, over, wrong):
    """Evidence that would call for it waits in any case."""
    story = running()
    exits(story, "n2/1")
    cause = replace(story.state.causes[0], severity=severity)
    assert isinstance(story.step(), ev.IncidentOpened)
    ((name, found),) = story.state.incidents.items()
    known = {name: replace(found, severity=3, resolved=over)}
    at = of_state(causes=(cause,), incidents=known)(story.state)
    body = ev.IncidentEscalated(incident=name, severity=severity, reason="x")
    assert told(at, body) == ({TWICE} if wrong else set())


def test_a_start_that_was_heard_is_not_said_again():
    _, body = first(ev.WorkerStartOrdered)
    ordered = next(later for later, *_ in MADE if body.worker in later.workers)
    unheard = of_worker(body.worker, begun=False, status="ordered", order=ev.Sequence(1))(ordered)
    assert told(replace(unheard, term=ev.Term(unheard.seq)), body) == set()
    assert told(replace(unheard, term=ev.Term(1)), body) == {TWICE}
    assert TWICE in told(ordered, body)


# --- Nodes and workers --------------------------------------------------------------------------


def test_a_node_that_is_given_up_on_one_sign():
    at, body = first(ev.NodeLost)
    wrong = "losses_need_two_signs"
    assert told(at, body) == set()
    heard = {k: v for k, v in at.connections.items() if not k.startswith("worker/n2")}
    assert told(replace(at, connections=heard), body) == {wrong}
    assert told(replace(at, connections={}), body) == {wrong}
    silent = of_node("n2", status="suspected")(replace(at, connections={}))
    assert told(silent, body) == {wrong}
    assert told(of_node("n2", status="suspected", confirmed=True)(silent), body) == set()


def test_a_node_that_is_given_up_while_most_are_in_doubt():
    at, body = first(ev.NodeLost)
    doubtful = of_node("n1", status="suspected")(at)
    assert told(doubtful, body) == {"losses_need_two_signs"}


def test_a_worker_that_starts_where_it_may_not():
    at, body = first(ev.WorkerStartOrdered, incarnation=2)
    wrong = "workers_start_on_free_devices"
    for status in ("failed", "stopping", "member"):
        assert told(of_worker(body.worker, status=status)(at), body) == {wrong}
    assert told(of_node(body.node, status="isolated")(at), body) == {wrong}
    assert told(of_node(body.node, given_up=(body.device,))(at), body) == {wrong}
    assert told(of_task(allocation=None)(at), body) == {wrong}


def test_a_member_that_is_stopped():
    state = running().state
    stop = ev.WorkerStopOrdered(
        task="gpt", worker="n1/0", incarnation=1, node="n1", grace_ms=0, reason="x"
    )
    assert told(state, stop) == {"members_are_not_stopped"}
    assert told(of_worker("n1/0", status="failed")(state), stop) == set()
    assert told(of_task(phase="closed")(state), stop) == set()


def test_the_last_copy_of_a_state_is_stopped_for_another_task():
    state = running().state
    stop = ev.WorkerStopOrdered(
        task="gpt", worker="n1/0", incarnation=1, node="n1", grace_ms=0, reason="x"
    )
    closed = of_task(phase="closed")(state)
    for name in ("n1/1", "n2/0", "n2/1"):
        assert told(closed, stop) == set()
        closed = of_worker(name, status="exited")(closed)
    assert told(closed, stop) == {"last_copies_are_kept"}
    assert told(of_worker("n1/0", status="failed")(closed), stop) == set()
    assert told(of_node("n1", status="isolated")(closed), stop) == set()
    nowhere = replace(closed.tasks["gpt"].allocation, slots=())
    assert told(of_task(allocation=nowhere)(closed), stop) == set()


# --- Plans --------------------------------------------------------------------------------------


def test_a_plan_that_gives_a_device_twice():
    at, body = first(ev.PlanDecided, source="dp")
    (given,) = body.allocations
    wrong = "plans_give_a_device_once"
    assert told(at, replace(body, allocations=(given, given))) == {wrong}
    other = replace(at.tasks["gpt"], spec=replace(at.tasks["gpt"].spec, task="bert"))
    both = replace(at, tasks={**at.tasks, "bert": replace(other, allocation=given)})
    assert told(both, body) == {wrong}
    over = replace(at, tasks={**at.tasks, "bert": replace(other, allocation=given, phase="failed")})
    assert told(over, body) == set()
    assert wrong in told(of_node("n1", given_up=(0,))(at), body)


def test_a_plan_that_does_not_fit_its_task():
    at, body = first(ev.PlanDecided, source="dp")
    (given,) = body.allocations
    small = replace(body, allocations=(replace(given, slots=given.slots[:1]),))
    assert told(at, small) == {"plans_fit_their_tasks"}
    spec = replace(at.tasks["gpt"].spec, max_devices=1)
    assert told(of_task(spec=spec)(at), body) == {"plans_fit_their_tasks"}


@pytest.mark.parametrize("asked", [{"device_kinds": ("h100",)}, {"avoid": (ev.NodeId("n1"),)}])
def test_a_plan_that_gives_a_task_what_it_must_not_use(asked):
    at, body = first(ev.PlanDecided, source="dp")
    spec = replace(at.tasks["gpt"].spec, **asked)
    assert told(of_task(spec=spec)(at), body) == {"plans_fit_their_tasks"}


def test_a_plan_that_mixes_kinds():
    at, body = first(ev.PlanDecided, source="dp")
    names = sorted({node for node, _ in body.allocations[0].slots})
    assert len(names) > 1
    other = replace(at.nodes[names[0]], device_kind="t4")
    mixed = replace(at, nodes={**at.nodes, other.node: other})
    assert told(mixed, body) == {"plans_fit_their_tasks"}


@pytest.mark.parametrize("fields", [{"blame": "x"}, {"closes": limits.FAULT_GENERATIONS_MAX + 1}])
def test_a_task_out_of_budget_that_is_ordered(fields):
    at, body = first(ev.TransitionOrdered)
    assert told(of_task(**fields)(at), body) == {"tasks_out_of_budget_are_not_ordered"}
