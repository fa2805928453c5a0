import ast
import itertools
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tests.core.story import Story, running
from tests.replay import forging
from tests.replay.histories import joined, killed, night, powered_off, restless
from unicron import events as ev
from unicron.controlplane import core
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import FOLD_VERSION
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.controlplane.replay import ReplayDivergence, Replayer, folding
from unicron.controlplane.replay.judge import INPUTS, Judge
from unicron.events import codec

NIGHT = night()
DECIDED = [r.seq for r in NIGHT.log if r.envelope.basis is not None]


def seq_of(event, log=NIGHT.log):
    """Sequence of the first event of a type."""
    return next(r.seq for r in log if isinstance(r.envelope.body, event))


def diverges(log, *, at, what):
    """The divergence that verification finds, which must be there and of that kind."""
    report = Replayer(log).verify()
    assert report.verified is False
    assert (report.divergence.seq, report.divergence.what) == (at, what)
    assert report.last_seq == at - 1
    with pytest.raises(ReplayDivergence, match=f"#{at}") as raised:
        report.require()
    assert raised.value.divergence == report.divergence
    return report.divergence


@pytest.mark.parametrize("told", [killed, powered_off, joined, night])
def test_an_honest_log_holds(told):
    story = told()
    report = Replayer(story.log).verify()
    report.require()
    assert report.verified is True
    assert report.redecided == story.decided > 10
    assert report.inputs == report.decisions - story.decided
    assert report.digest == digest(story.state)
    assert report.chain == ev.chain_of(story.log).hex()
    assert (report.events, report.last_seq) == (len(story.log), len(story.log))


def test_logs_hold_in_which_facts_land_between_a_decision_and_its_basis():
    reports = [Replayer(restless(seed).log).verify() for seed in range(12)]
    assert [r.divergence for r in reports] == [None] * len(reports)
    for report in reports:
        assert report.foreign >= report.decisions / 10


def test_a_void_decision_holds_and_is_listed():
    story = Story()
    story.join("n1", incarnation=1)
    at = story.state
    verdict = decide(at)
    story.join("n1", incarnation=2)  # the agent started anew before the decision was in the log
    story.write(verdict, at)
    void = len(story.log)
    story.settle()
    report = Replayer(story.log).verify()
    assert report.verified
    assert report.void == (void,)


def test_nothing_waits_longer_than_until_the_next_decision():
    """So a log of any length is verified in the memory that its state takes."""
    log = restless(3).log
    judge = Judge()
    most = 0

    def watched():
        nonlocal most
        for recorded in log:
            most = max(most, len(judge._waiting))
            yield recorded

    assert judge.first_divergence(watched()) is None
    assert not judge._waiting
    control = [0, *(r.seq for r in log if ".control." in r.subject), len(log) + 1]
    assert 1 <= most <= max(b - a for a, b in itertools.pairwise(control))


def test_what_decisions_vouch_for():
    report = Replayer(NIGHT.log).verify()
    assert report.vouched == NIGHT.log[DECIDED[-1] - 1].envelope.basis.decided_at
    assert Replayer(NIGHT.log).replay().vouched == 0


# --- Tampering -----------------------------------------------------------------------------------


def altered(body):
    """The body with its first number, text or list changed."""
    for field in msgspec.structs.fields(body):
        value = getattr(body, field.name)
        if isinstance(value, int) and not isinstance(value, bool):
            return msgspec.structs.replace(body, **{field.name: value + 1})
        if isinstance(value, str):
            return msgspec.structs.replace(body, **{field.name: value + "x"})
    raise AssertionError(body)


@pytest.mark.parametrize("seq", DECIDED)
def test_any_decision_that_was_altered_consistently(seq):
    def alter(envelope):
        return forging.replace(envelope, body=altered(envelope.body))

    forged = forging.swap_in(NIGHT.log, seq, alter)[:seq]
    found = diverges(forged, at=seq, what="decision")
    assert len(found.diff) == 1
    assert found.diff[0].startswith("body.")


def test_an_altered_decision_with_everything_after_it_made_to_fit():
    """The whole log is written anew with right chains and digests: only deciding again tells."""
    seq = seq_of(ev.PlanDecided)

    def alter(envelope):
        return forging.reword(envelope, reason="because I say so")

    forged = forging.reforge(NIGHT.log, forging.at(seq, alter))
    found = diverges(forged, at=seq, what="decision")
    assert found.diff == (
        'body.reason: "gpt grows from 0 to 6 devices" by replay, "because I say so" in the log',
    )


def test_reforging_without_a_change_changes_nothing():
    assert forging.reforge(NIGHT.log, lambda envelope: envelope) == NIGHT.log


@pytest.mark.parametrize("changes", [{"cause": (1,)}, {"incident": None}])
def test_an_altered_cause_or_incident(changes):
    seq = seq_of(ev.IncidentOpened)
    forged = forging.reforge(NIGHT.log, forging.at(seq, lambda e: forging.replace(e, **changes)))
    diverges(forged, at=seq, what="decision")


def test_another_decision_in_its_place():
    seq = seq_of(ev.IncidentOpened)
    alarm = ev.TaskFailed(task="gpt", reason="no")
    forged = forging.swap_in(NIGHT.log, seq, lambda e: forging.replace(e, body=alarm))[:seq]
    found = diverges(forged, at=seq, what="decision")
    assert "decide() gives IncidentOpened" in found.message
    assert "the log has TaskFailed" in found.message


def test_a_decision_that_nothing_called_for():
    story = killed()
    verdict = core.verdict.Verdict(body=ev.TaskFailed(task="gpt", reason="no"))
    story.write(verdict, story.state)
    found = diverges(story.log, at=len(story.log), what="decision")
    assert found.expected == "nothing"


def test_an_altered_state_digest():
    seq = seq_of(ev.GenerationClosed)
    wrong = "0" * 64
    forged = forging.swap_in(NIGHT.log, seq, lambda e: forging.rebase(e, state_digest=wrong))
    found = diverges(forged, at=seq, what="state")
    assert found.actual == wrong
    assert found.expected == digest(NIGHT.states[seq - 1])


def test_an_altered_chain():
    seq = seq_of(ev.GenerationClosed)
    forged = forging.swap_in(NIGHT.log, seq, lambda e: forging.rebase(e, chain="0" * 64))
    assert diverges(forged, at=seq, what="chain").expected == NIGHT.chains[seq - 1].hex()


def test_an_altered_fact_shows_in_the_next_decision():
    seq = seq_of(ev.WorkerExited)
    forged = forging.swap_in(NIGHT.log, seq, lambda e: forging.replace(e, written_at_ns=1))
    found = diverges(forged, at=seq + 1, what="chain")
    assert f"#{seq}" in found.why


@pytest.mark.parametrize("seq", DECIDED[::7])
def test_a_missing_basis(seq):
    forged = forging.swap_in(NIGHT.log, seq, lambda e: forging.replace(e, basis=None))
    diverges(forged, at=seq, what="basis")


@pytest.mark.parametrize("event", [ev.TaskSubmitted, ev.PlanSolved])
def test_an_input_with_a_basis(event):
    seq = seq_of(event)
    basis = ev.Basis(decided_at=seq - 1, chain="", state_digest="", logic_version=LOGIC_VERSION)
    forged = forging.swap_in(NIGHT.log, seq, lambda e: forging.replace(e, basis=basis))
    diverges(forged, at=seq, what="basis")


@pytest.mark.parametrize("shift", [-1, 1, 10_000])
def test_a_basis_before_the_decision_before_or_not_before_itself(shift):
    seq = seq_of(ev.GenerationClosed)  # the incident was opened right before it
    forged = forging.swap_in(
        NIGHT.log, seq, lambda e: forging.rebase(e, decided_at=seq - 1 + shift)
    )
    diverges(forged, at=seq, what="fence")


@pytest.mark.parametrize("term", [0, 2])
def test_a_decision_of_another_term(term):
    seq = seq_of(ev.IncidentOpened)
    forged = forging.swap_in(NIGHT.log, seq, lambda e: forging.replace(e, term=term))
    diverges(forged, at=seq, what="term")


@pytest.mark.parametrize("event", [ev.TaskSubmitted, ev.DeadlinePassed])
@pytest.mark.parametrize("term", [0, 2, 999])
def test_an_input_of_another_term(event, term):
    """Nobody who leads wrote it: it is void, but it has no business there."""
    seq = seq_of(event)
    forged = forging.swap_in(NIGHT.log, seq, lambda e: forging.replace(e, term=term))
    diverges(forged, at=seq, what="term")


def test_another_logic_version_than_the_leader_named():
    """Otherwise a forged decision could keep itself from being decided again."""
    seq = seq_of(ev.IncidentOpened)
    forged = forging.swap_in(NIGHT.log, seq, lambda e: forging.rebase(e, logic_version=7))
    diverges(forged, at=seq, what="version")


def test_a_decision_of_an_unknown_type_is_not_skipped():
    seq = seq_of(ev.IncidentOpened)
    forged = forging.with_bytes(NIGHT.log, seq, b"incident.opened.v1", b"incident.opened.v9")
    found = diverges(forged, at=seq, what="newer")
    assert "incident.opened.v9" in found.message
    assert "newer version" in found.why


def test_a_decision_with_a_field_of_its_own():
    seq = seq_of(ev.IncidentOpened)
    forged = forging.with_bytes(NIGHT.log, seq, b'"severity"', b'"sev":0,"severity"')
    assert "sev" in diverges(forged, at=seq, what="event").message


def test_a_decision_that_was_written_as_a_fact():
    seq = seq_of(ev.IncidentOpened)
    log = list(NIGHT.log)
    log[seq - 1] = codec.record(seq, "unicron.c.fact.n1", log[seq - 1].data, 0)
    diverges(log, at=seq, what="subject")


@pytest.mark.parametrize("seq", [1, 61])
def test_an_event_that_the_fold_stumbles_over(monkeypatch, seq):
    """The fold is total over what we write; what else there may be must not end in a traceback."""

    def stumbling(state, recorded):
        if recorded.seq == seq:
            raise KeyError("gone")
        return fold(state, recorded)

    monkeypatch.setattr(folding, "fold", stumbling)
    assert "KeyError" in diverges(NIGHT.log, at=seq, what="fold").why
    with pytest.raises(ReplayDivergence, match="the fold can't take this event"):
        Replayer(NIGHT.log).replay()


# --- Other versions ------------------------------------------------------------------------------


def of_version(log, **versions):
    """The log as a leader of other versions would have written it, with a decision of its own."""
    logic = {k: v for k, v in versions.items() if k == "logic_version"}
    other = seq_of(ev.IncidentOpened, log)
    number = 0

    def change(envelope):
        nonlocal number
        number += 1
        if isinstance(envelope.body, ev.LeadershipTaken):
            return forging.reword(envelope, **versions)
        if number == other:
            envelope = forging.reword(envelope, what="said otherwise")
        return forging.rebase(envelope, **logic) if envelope.basis else envelope

    return forging.reforge(log, change)


def test_decisions_of_another_logic_version_are_folded_and_counted():
    report = Replayer(of_version(NIGHT.log, logic_version=LOGIC_VERSION + 1)).verify()
    report.require()
    assert (report.redecided, report.other_versions) == (0, NIGHT.decided)


def test_their_digests_are_compared_within_one_fold_version_only():
    seq = seq_of(ev.GenerationClosed)

    def forge(envelope):
        return forging.rebase(envelope, state_digest="0" * 64)

    newer_logic = of_version(NIGHT.log, logic_version=LOGIC_VERSION + 1)
    diverges(forging.swap_in(newer_logic, seq, forge)[:seq], at=seq, what="state")
    newer_fold = of_version(
        NIGHT.log, logic_version=LOGIC_VERSION + 1, fold_version=FOLD_VERSION + 1
    )
    assert Replayer(forging.swap_in(newer_fold, seq, forge)[:seq]).verify().verified


# --- What can't be read, what is missing ---------------------------------------------------------


def test_facts_that_cannot_be_read_are_reported_and_change_nothing():
    story = running(1)
    story.log.append(codec.record(len(story.log) + 1, "unicron.c.fact.n1", b"rubbish", 0))
    newer = story.log[-2].data.replace(b"transition.completed.v1", b"worker.glowed.v1")
    story.log.append(codec.record(len(story.log) + 1, "unicron.c.fact.n1", newer, 0))
    report = Replayer(story.log).verify()
    assert report.verified
    assert [(u.seq, u.tag, u.decision) for u in report.unread] == [
        (len(story.log) - 1, "", False),
        (len(story.log), "worker.glowed.v1", False),
    ]


def test_a_source_that_skipped_numbers_and_one_that_repeats_itself():
    story = running(1)
    story.counters["agent/n1", 1] += 3
    story.fact("agent/n1", 1, ev.StoreBound(node="n1", address="a", store_port=2))
    story.append_raw("unicron.c.fact.n1", story.log[-1].data)
    report = Replayer(story.log).verify()
    assert report.verified
    (gap,) = report.gaps
    assert (gap.seq, gap.who, gap.first, gap.last) == (len(story.log) - 1, "agent/n1", 4, 6)
    assert report.duplicates == (len(story.log),)


@pytest.mark.parametrize("events", [NIGHT.log[1:], NIGHT.log[:5] + NIGHT.log[6:], NIGHT.log[::-1]])
def test_a_log_with_a_hole_is_not_folded(events):
    with pytest.raises(ev.LogBroken) as raised:
        Replayer(events)
    assert raised.value.first_wrong in {1, 6}


# --- Time travel ---------------------------------------------------------------------------------


def test_the_state_at_any_sequence():
    replayer = Replayer(NIGHT.log)
    assert [replayer.state_at(seq) for seq in range(len(NIGHT.log) + 1)] == NIGHT.states


def test_verification_up_to_a_sequence():
    forged = forging.swap_in(NIGHT.log, 61, lambda e: forging.rebase(e, state_digest="0" * 64))
    assert Replayer(forged).verify(60).verified
    assert not Replayer(forged).verify(61).verified


def test_a_sequence_beyond_the_end():
    replayer = Replayer(NIGHT.log)
    for ask in (replayer.state_at, replayer.replay, replayer.verify):
        for seq in (-1, len(NIGHT.log) + 1):
            with pytest.raises(ev.ConfigError, match="no event"):
                ask(seq)


# --- The table of inputs -------------------------------------------------------------------------


def test_inputs_and_what_decide_makes_are_all_decisions_and_disjoint():
    """Read from the rules' own sources: what they build can't be an input."""
    names = {decision.__name__ for decision in get_args(ev.AnyDecision)}
    built = set()
    for rules in Path(core.__path__[0]).glob("rules_*.py"):
        for node in ast.walk(ast.parse(rules.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                built.add(node.func.id)
    inputs = {event.__name__ for event in INPUTS}
    assert inputs <= names
    assert names - inputs == built & names
