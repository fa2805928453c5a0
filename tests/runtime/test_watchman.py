"""The running instance watches its invariants: it stops on a wrong state and goes on later."""

import logging

import anyio
import pytest

from tests.core.story import Story, running
from tests.runtime.test_engine import _ordered, _World
from unicron import events as ev
from unicron.controlplane.core import decide
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.verdict import Verdict
from unicron.controlplane.runtime import duties
from unicron.controlplane.runtime.watchman import InvariantViolated, Watchman
from unicron.events import subjects


def test_a_wrong_state_is_told_by_name_and_only_on_duty():
    story = running()
    before, after, recorded = story.states[-2], story.state, story.log[-1]
    wrong = replace(after, term=ev.Term(after.term + 100))
    watchman = Watchman(strict=False)
    watchman.folded(before, wrong, recorded)  # history: it can't be helped any more
    watchman.on_duty = True
    watchman.folded(before, after, recorded)
    with pytest.raises(InvariantViolated) as caught:
        watchman.folded(before, wrong, recorded)
    assert f"at #{after.seq}: " in str(caught.value)
    assert caught.value.violations[0].invariant in str(caught.value)
    assert "a bug of Unicron" in str(caught.value)


def test_a_decision_that_nobody_who_leads_has_written_is_no_bug_of_ours():
    """Whoever has all rights on the log can write one."""
    story = running()
    before, log = story.state, list(story.log)
    envelope = replace(log[0].entry, id="x", term=ev.Term(999))
    source = replace(envelope.source, who="control/z", counter=1)
    alarm = replace(
        envelope, source=source, body=ev.AlarmRaised(code="E-X", message="x"), basis=None
    )
    subject = subjects.control("c", "cluster", "c")
    recorded = ev.record(before.seq + 1, subject, ev.encode(alarm), 0)
    watchman = Watchman(strict=False)
    watchman.on_duty = True
    with pytest.raises(InvariantViolated) as caught:
        watchman.folded(before, fold(before, recorded), recorded)
    assert caught.value.violations[0].invariant == "one_leader_writes"
    assert "goes past the fence" in str(caught.value)
    assert "a bug of Unicron" not in str(caught.value)


def test_what_waits_without_a_limit_is_logged_once_and_stops_only_a_strict_one(caplog):
    story = Story()
    story.join("n1")  # nobody admits it
    watchman = Watchman(strict=False)
    with caplog.at_level(logging.ERROR):
        watchman.rests(story.state)
        watchman.rests(story.state)
    assert len([r for r in caplog.records if "nobody admits it" in r.getMessage()]) == 1
    with pytest.raises(InvariantViolated, match="nobody admits it"):
        Watchman(strict=True).rests(story.state)


async def test_an_engine_whose_rules_go_wrong_stops_before_it_writes_and_goes_on_later(monkeypatch):
    """Planted: a rule starts a worker on a device twice."""
    world = _World()
    good = decide.decide

    def bad(state):
        verdict = good(state)
        if verdict is None or not isinstance(verdict.body, ev.WorkerStartOrdered):
            return verdict
        other = ev.WorkerStartOrdered(
            **{f: getattr(verdict.body, f) for f in verdict.body.__struct_fields__}
            | {"incarnation": ev.Incarnation(7)}
        )
        return Verdict(body=other, cause=verdict.cause, incident=verdict.incident)

    with monkeypatch.context() as patch:
        patch.setattr(duties, "decide", bad)
        with pytest.raises(BaseExceptionGroup) as caught:
            async with anyio.create_task_group() as group:
                group.start_soon(world.engine.run)
                await world.begin()
                await world.until(_ordered)
    assert caught.group_contains(InvariantViolated)
    bodies = [r.envelope.body for r in world.stream.entries if r.envelope is not None]
    assert not any(isinstance(b, ev.WorkerStartOrdered) for b in bodies)
    world.engine = world.instance("a")
    async with anyio.create_task_group() as group:
        group.start_soon(world.engine.run)
        await world.until(_ordered)
        group.cancel_scope.cancel()
