"""Histories of former versions, and of this one, replay for ever.

What "replay" means for a log of another version: its events are read and folded, its chain and its
seal hold, and what it tells is what happened. Its decisions aren't decided again, and its digests
aren't compared, since another logic or another fold gives others: that is what the two versions
are for. For a log of this version both are. So if a history of this version fails here, the same
history now gives another state or another decision: bump FOLD_VERSION or LOGIC_VERSION
(events/README.md) and record this version's with tests/replay/record.py. Never touch a file of a
former version.
"""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.replay import record
from unicron.controlplane.cli.main import main
from unicron.controlplane.core.state import FOLD_VERSION
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.controlplane.replay import Replayer, replay_once
from unicron.events import (
    HistoryReader,
    LeadershipTaken,
    LogBroken,
    PlanSolved,
    chain_of,
    read_history,
)

FOLDER = Path(__file__).parent / "histories"
HISTORIES = sorted(FOLDER.glob("*.ndjson"))
TOUCHED = sorted((FOLDER / "touched").glob("*.ndjson"))
_NAME = re.compile(r"logic(\d+)-fold(\d+)-([a-z-]+)")

#: What each tells: incidents by severity and whom they hit, and how its tasks ended.
TOLD = {
    "demo-kill-exception-lost-node": (
        [(2, "n2/1"), (2, "n1/1"), (1, "n2")],
        {"gpt": ("completed", 24)},
    ),
    "demo-kill-hang-lost-node": (
        [(2, "n2/1"), (2, "n1/1"), (1, "n2")],
        {"gpt": ("completed", 24)},
    ),
    "demo-trade-kill-hang-lost-node": (
        [(2, "n2/1"), (2, "n1/1"), (1, "n2"), (1, "n2")],
        {"gpt": ("completed", 24), "light": ("completed", 24)},
    ),
    "demo-trade": ([(1, "n2"), (1, "n2")], {"gpt": ("completed", 24), "light": ("completed", 24)}),
    "killed-worker": ([(2, "n1/1")], {"gpt": ("completed", 60)}),
    "sick-node": ([(1, "n2")], {"gpt": ("completed", 160)}),
    "lost-node": ([(1, "n2")], {"gpt": ("completed", 100)}),
    "trade": ([(1, "n2"), (1, "n2")], {"gpt": ("completed", 160), "light": ("completed", 300)}),
}


def version_of(path):
    logic, fold, _ = _NAME.fullmatch(path.stem).groups()
    return int(logic), int(fold)


def name_of(path):
    return _NAME.fullmatch(path.stem).group(3)


each = pytest.mark.parametrize("path", HISTORIES, ids=lambda p: p.stem)


@each
def test_it_replays(path):
    """In one pass over the file, as `unicron replay --verify` does it."""
    with path.open("rb") as file:
        reader = HistoryReader(path.name, file, strict=True)
        report, _ = replay_once(
            reader, verify=True, fold_version=reader.header.fold_version or FOLD_VERSION
        )
    assert report.divergence is None
    assert report.events == reader.seal.events > 40
    assert report.chain == reader.seal.chain
    assert (report.unread, report.gaps) == ((), ())
    logic, fold = version_of(path)
    decided = report.redecided + report.other_versions
    assert decided > 10
    again = (logic, fold) == (LOGIC_VERSION, FOLD_VERSION)
    assert report.redecided == (decided if again else 0)
    if fold == FOLD_VERSION:
        assert report.digest == reader.seal.state_digest
        assert report.digests == reader.seal.events // record.DIGEST_EVERY + 1
    else:
        assert report.digests == 0


@each
def test_it_still_tells_what_happened(path):
    history = read_history(path)
    state = Replayer(history.events).state_at(history.seal.last_seq)
    incidents, ends = TOLD[name_of(path)]
    told = sorted(state.incidents.values(), key=lambda i: i.opened)
    assert [(i.severity, i.worker if i.severity > 1 else i.node) for i in told] == incidents
    assert all(i.resolved and i.evidence for i in told)
    assert {t.spec.task: (t.phase, t.iteration) for t in state.tasks.values()} == ends


@each
def test_its_name_says_who_made_it(path):
    history = read_history(path)
    led = {
        (body.logic_version, body.fold_version)
        for body in (r.envelope.body for r in history.events if r.envelope)
        if isinstance(body, LeadershipTaken)
    }
    assert led == {version_of(path)}
    assert history.seal.chain == chain_of(history.events).hex()
    assert path.stat().st_size < 300_000


@each
@pytest.mark.parametrize("command", ["replay", "audit"])
def test_every_command_reads_it(path, command):
    arguments = ["--log", str(path), *(["--verify"] if command == "replay" else [])]
    done = CliRunner().invoke(main, [command, *arguments])
    assert done.exit_code == 0, done.output


def test_there_are_histories_of_the_first_version_and_of_this_one():
    versions = {version_of(path) for path in HISTORIES}
    assert (1, 1) in versions
    assert (LOGIC_VERSION, FOLD_VERSION) in versions, "run: python -m tests.replay.record"


def test_the_oldest_is_of_format_1_and_holds_a_retired_event():
    (path,) = FOLDER.glob("logic1-fold1-*")
    history = read_history(path)
    assert history.header.unicron_history == 1
    raw = [msgspec.json.decode(r.data) for r in history.events]
    old = [e["body"] for e in raw if e.get("body", {}).get("type") == "plan.solved.v1"]
    solved = [r.envelope.body for r in history.events if isinstance(r.envelope.body, PlanSolved)]
    assert len(old) == len(solved) > 0
    assert [s.took_ms for s in solved] == [dict(b["statistics"])["took_ms"] for b in old]


# --- Those that must fail ------------------------------------------------------------------------


def test_one_was_edited_and_one_was_forged():
    assert [path.name.partition("-")[0] for path in TOUCHED] == ["edited", "forged"]


@pytest.mark.parametrize("command", [["replay"], ["replay", "--verify"], ["audit"]], ids=" ".join)
def test_an_edited_one_is_refused_with_its_sequence(command):
    path = TOUCHED[0]
    seq = int(re.fullmatch(r"edited-at-(\d+)", path.stem).group(1))
    with pytest.raises(LogBroken) as raised:
        read_history(path)
    assert raised.value.first_wrong == seq
    done = CliRunner().invoke(main, [*command, "--log", str(path)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"was changed at event {seq} (E-LOG-CHANGED)" in done.stderr


def test_a_forged_one_fails_at_the_decision_after_it():
    """Its checks and its seal fit: only what the leader had read then gives it away."""
    path = TOUCHED[1]
    seq, shown = map(int, re.fullmatch(r"forged-at-(\d+)-shows-at-(\d+)", path.stem).groups())
    assert read_history(path, strict=True).seal.last_seq > shown
    done = CliRunner().invoke(main, ["replay", "--log", str(path), "--verify"])
    assert done.exit_code == 1
    assert done.stdout.startswith(f"x diverges at #{shown}: ")
    divergence = Replayer(read_history(path).events).verify().divergence
    assert (divergence.seq, divergence.what) == (shown, "chain")
    assert divergence.since <= seq < shown
