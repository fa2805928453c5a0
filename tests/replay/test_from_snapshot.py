"""Replay that begins with a snapshot: what stands before it is believed, all after it judged."""

import pytest

from tests.core.snapshots import snapshot_of
from tests.replay import forging
from tests.replay.histories import night, restless
from unicron import events as ev
from unicron.controlplane import Replayer, decode_snapshot
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.snapshot import encode_snapshot
from unicron.controlplane.replay import replay_once
from unicron.events import ConfigError, LogBroken

NIGHT = night()
LAST = len(NIGHT.log)


def snapshot(story, seq, **other):
    """By way of bytes."""
    return decode_snapshot(encode_snapshot(snapshot_of(story, seq, **other)))


@pytest.mark.parametrize("told, foreign", [(night, False), (lambda: restless(3), True)])
def test_at_every_cut_the_rest_is_judged_as_by_a_full_replay(told, foreign):
    story = told()
    whole = Replayer(story.log).verify()
    overtaken = 0
    for seq in range(1, len(story.log) + 1, 3):
        begun = snapshot(story, seq)
        report = Replayer(story.log, snapshot=begun).verify()
        report.require()
        assert (report.began, report.last_seq) == (seq, whole.last_seq)
        assert (report.digest, report.chain) == (whole.digest, whole.chain)
        decided = [r for r in story.log[seq:] if r.envelope.basis is not None]
        assert report.redecided + report.unjudged == len(decided)
        assert report.unjudged == sum(r.envelope.basis.decided_at < seq for r in decided) <= 1
        assert report.events == len(story.log) - seq
        overtaken += report.unjudged
        assert Replayer(story.log[seq:], snapshot=begun).verify() == report
    assert bool(overtaken) == foreign


def test_what_was_changed_after_the_snapshot_is_found():
    at = next(
        r.seq
        for r in NIGHT.log
        if r.seq > 60 and r.envelope.basis is not None and r.envelope.basis.decided_at >= 60
    )
    forged = forging.reforge(NIGHT.log, forging.at(at, lambda e: forging.replace(e, cause=(1,))))
    full = Replayer(forged).verify().divergence
    assert full.seq == at
    begun = snapshot(NIGHT, 60)
    assert Replayer(forged, snapshot=begun).verify().divergence == full
    assert Replayer(forged[60:], snapshot=begun).verify().divergence == full


def test_what_was_changed_before_it_shows_in_the_chain():
    changed = forging.with_bytes(NIGHT.log, 5, b"1", b"2")
    assert changed != NIGHT.log
    with pytest.raises(LogBroken, match="isn't what the snapshot was made of") as broken:
        Replayer(changed, snapshot=snapshot(NIGHT, 60))
    assert broken.value.code == "E-LOG-CHANGED"
    # Whoever has the rest alone can't see that. A wrong chain shows at the next decision.
    other = snapshot(NIGHT, 60, chain=ev.chain_of(changed[:60]).hex())
    found = Replayer(NIGHT.log[60:], snapshot=other).verify().divergence
    assert (found.what, found.since) == ("chain", 1)


def test_a_state_that_is_not_the_logs_shows_at_the_next_decision():
    state = NIGHT.states[60]
    begun = snapshot(NIGHT, 60, state=replace(state, void=state.void + 1))
    found = Replayer(NIGHT.log, snapshot=begun).verify().divergence
    assert found.what == "state"


def test_a_log_must_be_the_whole_or_the_rest():
    begun = snapshot(NIGHT, 60)
    with pytest.raises(LogBroken) as short:
        Replayer(NIGHT.log[:59], snapshot=begun)
    assert (short.value.code, short.value.first_wrong) == ("E-LOG-SHORT", 60)
    for log in (NIGHT.log[61:], NIGHT.log[50:], NIGHT.log[:20] + NIGHT.log[21:]):
        with pytest.raises(LogBroken):
            Replayer(log, snapshot=begun)
    assert Replayer((), snapshot=begun).replay().digest == digest(NIGHT.states[60])


def test_states_are_those_of_a_full_replay_and_none_is_before_it():
    replayer = Replayer(NIGHT.log, snapshot=snapshot(NIGHT, 60))
    for seq in (60, 61, LAST):
        assert replayer.state_at(seq) == NIGHT.states[seq]
    assert replayer.replay(until=70).last_seq == 70
    for ask in (replayer.state_at, replayer.verify, replayer.replay):
        with pytest.raises(ConfigError, match="#59 stands before the snapshot"):
            ask(59)
        with pytest.raises(ConfigError, match=f"ends with #{LAST}"):
            ask(LAST + 1)


def test_a_report_without_a_snapshot_says_that_all_was_judged():
    report, _ = replay_once(NIGHT.log, verify=True)
    assert (report.began, report.unjudged, report.vouched > 0) == (0, 0, True)
