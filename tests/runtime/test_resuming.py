"""Whoever begins from a snapshot knows what folding the whole log tells, and goes on alike."""

import random

import msgspec
import pytest

from tests.core.test_world import MIXES, history
from tests.replay.histories import restless
from unicron import events as ev
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.snapshot import decode_snapshot, encode_snapshot
from unicron.controlplane.runtime.following import Follower
from unicron.controlplane.runtime.memory import MemoryLog, MemoryStream
from unicron.controlplane.runtime.watchman import Watchman
from unicron.controlplane.testing import simulation
from unicron.controlplane.testing.seeds import options_of
from unicron.events import codec, subjects


def follower():
    return Follower(MemoryLog(MemoryStream("c")), Watchman(strict=True), lambda *_: None)


def resumed(other):
    """One that begins from what `other` knows, by way of bytes."""
    snapshot = other.snapshot(birth="b", version="test")
    found = follower()
    found.resume(decode_snapshot(encode_snapshot(snapshot)))
    return found


def known(one):
    """All that decides what it does next. The order of maps is part of it: rules go by it."""
    state, plan = one.state, one.state.plan
    asked = sorted(state.nodes)
    for name in asked:
        one.resender.asked(name)
    return {
        "state": msgspec.json.encode(state),
        "digest": digest(state),
        "basis": one.basis(),
        "control": one.control_seq,
        "waits": one.waits(),
        "next": decide(state),
        "problem": None if plan.answer else one.problems.get(plan.request),
        "orders": one.resender.due(state, 10**9),
        "unread": (one.unread.so_far(), one.unread.due()),
        "snapshot": one.snapshot(birth="b", version="test"),
    }


def check(log, *, stride=1, whole_tails=3):
    """At every `stride`-th cut both know the same, and for some cuts still when the log ends."""
    one = follower()
    chance = random.Random(len(log))
    to_the_end = set(chance.sample(range(1, len(log)), whole_tails))
    problems = losses = unread = 0
    for number, recorded in enumerate(log, 1):
        one._take(recorded)
        if number % stride and number not in to_the_end:
            continue
        problems += known(one)["problem"] is not None
        losses += bool(one.resender.losses)
        unread += bool(one.unread.so_far().first)
        other = resumed(one)
        assert known(other) == known(one), number
        if number not in to_the_end:
            continue
        for later in log[number:]:
            other._take(later)
        whole = follower()
        for every in log:
            whole._take(every)
        assert known(other) == known(whole), number
    return problems, losses, unread


def strange(story):
    """What this version can't read, among the rest."""
    body = {"type": "node.polished.v1", "node": "n1"}
    envelope = {"id": "x", "source": {"who": "x", "incarnation": 1, "counter": 1}}
    data = msgspec.json.encode({**envelope, "written_at_ns": 0, "body": body})
    story.log.append(codec.record(len(story.log) + 1, subjects.fact("c", "n1"), data, 0))
    story.log.append(codec.record(len(story.log) + 1, subjects.fact("c", "n1"), b"?", 0))
    return story


@pytest.mark.parametrize("seed", range(4))
def test_a_restless_night(seed):
    _, losses, unread = check(strange(restless(seed)).log)
    assert losses
    assert unread == 2


@pytest.mark.parametrize("mix", MIXES)
def test_a_world_in_which_anything_may_happen(mix):
    check(history(4, MIXES[mix], rate=0.05).log)


def test_a_simulated_night():
    log = simulation.run(options_of(0)).log
    problems, _, _ = check(log, stride=7)
    assert problems
    assert any(isinstance(r.envelope.body, ev.PlanRequested) for r in log if r.envelope)
