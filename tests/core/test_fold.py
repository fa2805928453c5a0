"""The fold: in order, total, once for each event, a function of the history alone."""

import functools
import itertools
import os
import random
import subprocess
import sys

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core import faults
from tests.core.reading import task
from tests.core.story import SPEC, Story, running
from tests.core.world import World
from tests.support.event_strategies import EVENT_TYPES, envelopes, struct
from unicron import events as ev
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.fold import OutOfOrder, fold
from unicron.controlplane.core.orders import open_orders
from unicron.controlplane.core.problem import problem_of
from unicron.controlplane.core.state import ClusterState
from unicron.events import codec

SHORT = msgspec.structs.replace(SPEC, iterations=8)


def night(seed: int, steps: int = 400) -> World:
    """A history with all kinds of events."""
    world = World(seed, [SHORT])
    world.begin(2)
    world.run(steps, faults.anything, 0.05)
    faults.repair(world)
    world.heal()
    return world


def is_rich(world: World) -> bool:
    """It has most kinds of events, repeated ones, and facts that overtook decisions."""
    bodies = {type(r.envelope.body) for r in world.log if r.envelope}
    return len(bodies) > 28 and world.state.duplicates > 1 and world.foreign > 8


@functools.cache
def rich_night() -> World:
    """The first night that is."""
    return next(world for world in map(night, itertools.count()) if is_rich(world))


def entry(seq, envelope, subject="unicron.c.fact.n1"):
    return ev.Recorded(seq=ev.Sequence(seq), subject=subject, data=b"", at_ns=0, entry=envelope)


CONTROL = "unicron.c.control.task.gpt"


def fact(state, seq, who, incarnation, counter, body, **where):
    source = ev.Source(who=who, incarnation=incarnation, counter=counter)
    envelope = ev.Envelope(id=ev.event_id(source), source=source, written_at_ns=0, body=body)
    return fold(state, entry(seq, envelope, **where))


# --- Order, duplicates, lives -------------------------------------------------------------------


@pytest.mark.parametrize("seq", [0, 2, 7])
def test_only_the_next_event_is_folded(seq):
    recorded = msgspec.structs.replace(rich_night().log[0], seq=ev.Sequence(seq))
    with pytest.raises(OutOfOrder, match=f"folded up to 0, then given {seq}"):
        fold(ClusterState(), recorded)


def started(node="n1", store_port=1):
    return ev.AgentStarted(
        node=node, address="a", store_port=store_port, devices=2, device_kind="cpu"
    )


def bound(port):
    return ev.StoreBound(node="n1", address="a", store_port=port)


def test_a_fact_is_folded_once_and_a_missing_one_is_counted():
    state = fact(ClusterState(), 1, "agent/n1", 5, 1, started())
    state = fact(state, 2, "agent/n1", 5, 2, bound(2))
    again = fact(state, 3, "agent/n1", 5, 2, bound(3))
    assert (again.duplicates, again.nodes["n1"].store_port) == (1, 2)
    later = fact(again, 4, "agent/n1", 5, 5, bound(4))
    assert (later.gaps, later.duplicates, later.nodes["n1"].store_port) == (1, 1, 4)
    late = fact(later, 5, "agent/n1", 5, 3, bound(3))  # the missing one, too late
    assert (late.duplicates, late.nodes["n1"].store_port) == (2, 4)


def test_a_new_life_begins_with_its_first_event_or_a_gap():
    state = fact(ClusterState(), 1, "agent/n1", 5, 1, started())
    assert fact(state, 2, "agent/n1", 6, 1, started()).gaps == 0
    assert fact(state, 2, "agent/n1", 6, 2, bound(2)).gaps == 1


def test_an_earlier_life_is_not_heard_any_more():
    """E-03, E-08: identity is name and incarnation, compared for equality, not for size."""
    state = fact(ClusterState(), 1, "agent/n1", 9, 1, started())
    state = fact(state, 2, "agent/n1", 3, 1, started(store_port=2))
    state = fact(state, 3, "agent/n1", 9, 2, bound(7))
    assert state.nodes["n1"].store_port == 2
    assert (state.nodes["n1"].incarnation, state.duplicates) == (3, 1)


def test_what_an_earlier_life_left_counts_if_it_comes_first():
    """Why an agent delivers it before it says that it has started; else it is heard no more."""
    before = fact(ClusterState(), 1, "agent/n1", 9, 1, started())
    left = fact(before, 2, "agent/n1", 9, 2, bound(7))
    assert (left.nodes["n1"].store_port, left.duplicates) == (7, 0)
    now = fact(left, 3, "agent/n1", 12, 1, started(store_port=2))
    again = fact(now, 4, "agent/n1", 9, 2, bound(7))  # sent twice, by two agents
    assert (again.nodes["n1"], again.duplicates) == (now.nodes["n1"], 1)


def test_what_was_dropped_changes_nothing_and_leaves_no_gap():
    state = fact(ClusterState(), 1, "agent/n1", 5, 1, started())
    dropped = ev.FactsDropped(who="agent/n1", incarnation=5, after=1, count=7)
    after = fact(state, 2, "agent/n1", 5, 2, dropped)
    assert after.nodes["n1"] == msgspec.structs.replace(state.nodes["n1"], last_fact=2)
    later = fact(after, 3, "agent/n1", 5, 3, bound(4))
    assert (later.gaps, later.duplicates, later.void, later.unknown) == (0, 0, 0, 0)


def test_a_fact_about_an_earlier_life_of_a_worker_changes_nothing():
    story = running()
    story.exit("n2/1")
    story.settle()
    before = story.state
    for number, kind in enumerate((ev.MemberReady, ev.MemberFinished, ev.WorkerExited)):
        fields = {
            "task": ev.TaskId("gpt"),
            "worker": ev.WorkerId("n2/1"),
            "incarnation": ev.Incarnation(1),
        }
        fields |= {
            ev.MemberReady: {"generation": 1, "iteration": 1},
            ev.MemberFinished: {"generation": 1, "iteration": 100, "state_digest": ""},
            ev.WorkerExited: {"exit_code": 1, "signal": None, "ordered": False},
        }[kind]
        who = "agent/n2" if kind is ev.WorkerExited else f"operator/{number}"
        story.fact(who, 1, kind(**fields))
    assert story.state.tasks == before.tasks
    assert story.state.workers == before.workers
    assert story.state.causes == ()


def test_a_member_fact_of_an_old_generation_changes_nothing():
    story = running()
    story.exit("n2/1")
    story.settle()
    before = story.state.tasks
    worker = {"task": "gpt", "worker": ev.WorkerId("n1/0"), "incarnation": 1, "generation": 1}
    for body in (
        ev.MemberReady(iteration=1, **worker),
        ev.MemberCommitted(iteration=9, **worker),
        ev.MemberFinished(iteration=100, state_digest="", **worker),
        ev.MemberQuiesced(iteration=1, phase="", kept=(), reduced=True, voted=True, **worker),
    ):
        story.fact("worker/n1/0", 1, body)
    assert story.state.tasks == before


def test_connections_are_counted_by_their_server():
    """A report that is late or comes again doesn't reopen what has closed."""
    story = Story()
    story.join("n1")

    def report(kind, server, number):
        body = kind(client="agent/n1/1", server=server, client_number=number, **extra[kind])
        state = story.state
        source = ev.Source(who=f"server/{server}", incarnation=0, counter=0)
        envelope = ev.Envelope(id="x", source=source, written_at_ns=0, body=body)
        return fold(state, entry(state.seq + 1, envelope))

    extra = {ev.ConnectionOpened: {}, ev.ConnectionClosed: {"reason": ""}}
    for kind, server, number, expected in [
        (ev.ConnectionOpened, "s", 50, "s/50"),
        (ev.ConnectionClosed, "s", 49, "s/50"),
        (ev.ConnectionClosed, "s", 50, "-s/50"),
        (ev.ConnectionOpened, "s", 50, "-s/50"),
        (ev.ConnectionOpened, "s", 12, "-s/50"),
        (ev.ConnectionOpened, "t", 3, "t/3"),
        (ev.ConnectionClosed, "s", 50, "t/3"),
    ]:
        story.state = report(kind, server, number)
        assert story.state.connections == {"agent/n1/1": expected}


def test_foreign_clients_are_not_remembered():
    story = Story()
    for client in ("", "nats-cli", "agent", "worker/n1/0/1", "agent/n1/x"):
        body = ev.ConnectionOpened(client=client, server="s", client_number=1)
        story.fact("server/s", 0, body)
    assert story.state.connections == {"agent/n1/x": "s/1"}


def test_nothing_is_decided_before_somebody_leads():
    body = ev.TaskSubmitted(spec=SPEC, by="x")
    state = fact(ClusterState(), 1, "control/i0", 1, 1, body, subject=CONTROL)
    assert (state.tasks, state.void) == ({}, 1)


def test_a_decision_under_a_nodes_subject_is_none():
    """A node's credentials can command nobody; nor can it use up the leader's numbers."""
    story = running()
    term, number = story.state.term, story.state.sources["control/i1"].counter + 1
    body = ev.NodeIsolated(node="n2", reason="says n1")
    source = ev.Source(who="control/i1", incarnation=1, counter=number)
    envelope = ev.Envelope(id="x", source=source, written_at_ns=0, body=body, term=term)
    state = fold(story.state, entry(story.state.seq + 1, envelope))
    assert (state.nodes, state.sources) == (story.state.nodes, story.state.sources)
    assert state.void == 1
    state = fold(story.state, entry(story.state.seq + 1, envelope, subject=CONTROL))
    assert state.nodes["n2"].status == "isolated"


def test_what_is_not_understood_is_counted_and_kept_from_leading():
    newer = b'{"id":"x","body":{"type":"fan.slow.v1"}}'
    state = ClusterState()
    for seq, subject in enumerate(("unicron.c.fact.n1", "unicron.c.control.node.n1"), 1):
        state = fold(state, codec.record(seq, subject, newer, 0))
    assert (state.unknown, state.unknown_decisions) == (2, 1)
    state = fold(state, codec.record(3, "unicron.c.fact.n1", b"no event", 0))
    assert (state.unknown, state.unknown_decisions, state.seq) == (3, 1, 3)


def test_what_is_not_understood_is_no_gap_and_counts_once():
    """But nobody hears a node that speaks as the control plane."""

    def fact(counter, who="agent/n1"):
        source = ev.Source(who=who, incarnation=1, counter=counter)
        body = ev.AgentStopped(node="n1", reason="x")
        return ev.Envelope(id=f"{counter}", source=source, written_at_ns=0, body=body)

    def said(envelope, newer):
        data = codec.encode(envelope)
        return data.replace(b"agent.stopped.v1", b"fan.slow.v1") if newer else data

    state = ClusterState()
    told = [(fact(1), False), (fact(2), True), (fact(2), True), (fact(3), False)]
    told.append((fact(9, "control/a"), True))
    for seq, (envelope, newer) in enumerate(told, 1):
        state = fold(state, codec.record(seq, "unicron.c.fact.n1", said(envelope, newer), 0))
    assert (state.unknown, state.duplicates, state.gaps) == (2, 1, 0)
    assert {who: source.counter for who, source in state.sources.items()} == {"agent/n1": 3}


def test_an_incident_is_not_resolved_over_newer_evidence():
    """The evidence came between the decision's basis and the decision."""
    story = running()
    story.exit("n2/1")
    while type(decide(story.state).body) is not ev.IncidentResolved:
        story.react(story.step())
    at, verdict = story.state, decide(story.state)
    story.exit("n1/1")
    story.write(verdict, at)
    assert story.state.void == 1
    assert task(story).incident == "inc-38-gpt"
    story.settle()
    assert [i.outcome != "" for i in story.state.incidents.values()] == [True]
    assert len(next(iter(story.state.incidents.values())).evidence) == 2


# --- Laws ---------------------------------------------------------------------------------------


BODIES = st.one_of([envelopes(struct(kind)) for kind in EVENT_TYPES])
NAMES = ("task", "worker", "incarnation", "node", "device", "generation")
NAMES += ("key", "incident", "request")
APPLIED: set[str] = set()


def place_for(kind, rng):
    """A state, and names of what is there: those that an event of this kind had in it, if any."""
    world = rich_night()
    reals = [r for r in world.log if r.envelope and type(r.envelope.body) is kind]
    if reals and rng.random() < 0.7:
        real = rng.choice(reals)
        body = real.envelope.body
        names = {n: getattr(body, n) for n in NAMES if hasattr(body, n)}
        return world.states[real.seq - 1], names
    state = rng.choice(world.states)
    names = {"key": rng.choice([*sorted(deadlines(state)), "none:x:1"])}
    if state.workers:
        worker = state.workers[rng.choice(sorted(state.workers))]
        names |= {n: getattr(worker, n) for n in NAMES if hasattr(worker, n)}
        names["generation"] = state.tasks[worker.task].generation
    return state, names


def named(envelope, names, term):
    body = envelope.body
    fields = {f.name for f in msgspec.structs.fields(type(body))}
    body = msgspec.structs.replace(body, **{k: v for k, v in names.items() if k in fields})
    return msgspec.structs.replace(envelope, body=body, term=term)


@pytest.mark.parametrize("kind", EVENT_TYPES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_fold_takes_any_event_and_decide_any_state(kind, data):
    """Whatever can be decoded, in order: no exception, and something can be said about the state
    that it leads to."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    others = data.draw(st.lists(BODIES, max_size=2))
    state, names = place_for(kind, rng)
    for envelope in [data.draw(envelopes(struct(kind))), *others]:
        before = state
        encoded = codec.encode(named(envelope, names, state.term))
        decision = isinstance(envelope.body, ev.Decision)
        subject = CONTROL if decision else "unicron.c.fact.n1"
        recorded = codec.record(state.seq + 1, subject, encoded, 0)
        state = fold(before, recorded)
        assert state.seq == before.seq + 1
        same = msgspec.structs.replace(
            before, seq=state.seq, sources=state.sources, void=state.void, gaps=state.gaps
        )
        if state != same:
            APPLIED.add(type(envelope.body).__name__)
    decide(state)
    open_orders(state)
    digest(state)


def test_random_events_did_change_states():
    """So the property above isn't empty."""
    if not APPLIED:
        pytest.skip("the property above wasn't run")
    assert len(APPLIED) > 30, sorted(APPLIED)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_state_read_back_goes_on_as_the_one_written(seed):
    """Prefix law: a snapshot at any place and the rest give what the whole gives; and a state
    decides the same after it was written and read."""
    world = rich_night() if seed == 1 else night(seed)
    decoder = msgspec.json.Decoder(ClusterState)
    for cut in range(0, len(world.log), 7):
        state = decoder.decode(msgspec.json.encode(world.states[cut], order="deterministic"))
        assert digest(state) == digest(world.states[cut])
        assert decide(state) == decide(world.states[cut])
        assert deadlines(state) == deadlines(world.states[cut])
        assert problem_of(state) == problem_of(world.states[cut])
        for recorded in world.log[cut : cut + 60]:
            state = fold(state, recorded)
        assert digest(state) == digest(world.states[min(cut + 60, len(world.log))])


def test_redelivery_of_anything_at_any_time_changes_nothing():
    world = rich_night()
    for end in range(1, len(world.log), 5):
        state = world.states[end]
        for recorded in world.log[:end]:
            if recorded.envelope is None:
                continue
            again = fold(state, msgspec.structs.replace(recorded, seq=state.seq + 1))
            assert (
                msgspec.structs.replace(again, seq=state.seq, duplicates=state.duplicates) == state
            ), recorded.envelope.body
            known = recorded.envelope.source.counter > 0
            assert again.duplicates == state.duplicates + known


def test_handlers_never_change_what_they_are_given():
    """E-12: replaying twice gives the same states."""
    state, world = ClusterState(), rich_night()
    for recorded, expected in zip(world.log, world.states[1:], strict=True):
        state = fold(state, recorded)
        assert state == expected


def digests() -> str:
    return f"{digest(rich_night().state)} {digest(night(5, 120).state)}"


PROGRAM = "from tests.core.test_fold import digests; print(digests(), end='')"


def test_the_digest_does_not_depend_on_the_hash_seed():
    found = {digests()}
    for seed in ("0", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        found.add(done.stdout)
    assert len(found) == 1
