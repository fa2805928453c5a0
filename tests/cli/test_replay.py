import json
from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import golden
from tests.replay import forging
from unicron import events as ev
from unicron.controlplane.core.digest import digest


@pytest.fixture
def forged(story, log):
    """Write the log again with one decision altered and a fresh seal; its sequence."""
    seq = next(r.seq for r in story.log if isinstance(r.envelope.body, ev.GenerationClosed))
    story.log = forging.reforge(
        story.log, forging.at(seq, lambda e: forging.reword(e, reason="\x1b[2Jit wasn't me"))
    )
    header = ev.HistoryHeader(cluster="c", birth="told", version="test")
    ev.write_history(Path(log), header, story.log)
    return seq


def test_a_log_that_holds(cli, log):
    done = cli("replay", "--log", log, "--verify")
    assert done.exit_code == 0
    golden("replay_holds.txt", done.stdout)


def test_folding_only_compares_nothing(cli, log):
    done = cli("replay", "--log", log)
    assert done.exit_code == 0
    assert done.stdout.startswith("folded cluster c up to #")
    assert done.stdout.endswith("next: unicron replay --log log.ndjson --verify\n")


def test_the_state_at_a_sequence(cli, log):
    done = cli("replay", "--log", log, "--until", "#28")
    assert done.exit_code == 0
    golden("replay_until.txt", done.stdout)
    status = cli("status", "--log", log, "--at", 28).stdout
    assert status.partition("\nnext: ")[0] in done.stdout


def test_the_state_up_to_which_a_forged_log_was_folded(cli, log, forged):
    done = cli("replay", "--log", log, "--verify", "--until", forged + 3)
    assert done.exit_code == 1
    assert f"\ncluster c at #{forged - 1}, " in done.stdout


def test_the_state_before_the_first_event(cli, log):
    done = cli("replay", "--log", log, "--until", "0")
    assert done.exit_code == 0
    assert "cluster c at #0 of 41: " in done.stdout
    assert "\nnobody leads" in done.stdout


def test_as_json(cli, log, story):
    document = cli.json("replay", "--log", log, "--verify")
    assert document["schema"] == "unicron.replay/1"
    assert document["ok"] is document["verified"] is True
    assert document["events"] == document["last_seq"] == document["log_events"] == len(story.log)
    assert document["redecided"] == story.decided
    assert document["digest"] == digest(story.state)
    assert document["chain"] == ev.chain_of(story.log).hex()
    assert (document["divergence"], document["state"], document["until"]) == (None, None, None)
    assert cli.json("replay", "--log", log)["verified"] is None


def test_the_state_as_json(cli, log, story):
    document = cli.json("replay", "--log", log, "--until", "28")
    assert document["state"] == msgspec.json.decode(msgspec.json.encode(story.states[28]))
    assert (document["until"], document["events"]) == (28, 28)


def test_a_forged_decision(cli, log, forged):
    done = cli("replay", "--log", log, "--verify")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == (
        f"x diverges at #{forged}: GenerationClosed isn't what decide() gives "
        f"on the state at #{forged - 1}"
    )
    assert lines[1].startswith('  body.reason: "worker n1/1 exited abnormally')
    assert lines[-1] == f"next: unicron replay --log log.ndjson --until {forged - 1}"
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_a_forged_decision_as_json(cli, log, forged):
    document = cli.json("replay", "--log", log, "--verify", exit_code=1)
    assert document["ok"] is document["verified"] is False
    divergence = document["divergence"]
    assert (divergence["seq"], divergence["what"]) == (forged, "decision")
    assert document["last_seq"] == forged - 1


def test_it_holds_up_to_the_forged_decision(cli, log, forged):
    assert cli("replay", "--log", log, "--verify", "--until", forged - 1).exit_code == 0
    assert cli("replay", "--log", log, "--verify", "--until", forged).exit_code == 1
    assert cli("replay", "--log", log).exit_code == 0


@pytest.mark.parametrize("until", ["x", "-1", "1.5", "#"])
def test_what_is_no_sequence(cli, log, until):
    done = cli("replay", "--log", log, f"--until={until}")
    assert done.exit_code == 2
    assert "no sequence" in done.stderr


def test_a_sequence_beyond_the_end(cli, log, story):
    done = cli("replay", "--log", log, "--until", "48,211")
    assert done.exit_code == 2
    assert "the log has no event #48211 (E-REPLAY-UNTIL)" in done.stderr
    assert f"it ends with #{len(story.log)}" in done.stderr


# --- Files that were touched ---------------------------------------------------------------------


def _drop(lines):
    del lines[30]


def _swap(lines):
    lines[30], lines[31] = lines[31], lines[30]


def _add(lines):
    lines.insert(30, lines[29])


def _change(lines):
    lines[30] = lines[30].replace(b'"at_ns":', b'"at_ns":1', 1)


def _cut(lines):
    del lines[30:]


@pytest.mark.parametrize("edit", [_drop, _swap, _add, _change, _cut])
@pytest.mark.parametrize("command", [("replay",), ("replay", "--verify"), ("audit",)])
def test_a_touched_file_is_refused_with_the_first_wrong_sequence(cli, log, edit, command):
    lines = Path(log).read_bytes().splitlines(keepends=True)
    edit(lines)
    Path(log).write_bytes(b"".join(lines))
    done = cli(*command, "--log", log)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: log.ndjson ")
    document = cli.json(*command, "--log", log, exit_code=1)
    assert document["first_wrong_seq"] == 30
    assert document["code"].startswith("E-LOG-")


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"unicron_history":1,"clus', b"hello\n", b"\xff\xfe", b"[1,2]\n"]
)
def test_what_is_no_history_at_all(cli, content):
    Path("odd.ndjson").write_bytes(content)
    done = cli("replay", "--log", "odd.ndjson")
    assert done.exit_code == 2
    assert "no unicron history" in done.stderr


# --- What the log holds besides ------------------------------------------------------------------


def test_gaps_repetitions_and_unreadable_entries_are_listed(cli, story):
    story.counters["agent/n1", 1] += 3
    story.fact("agent/n1", 1, ev.StoreBound(node="n1", address="a", store_port=2))
    story.append_raw("unicron.c.fact.n1", story.log[-1].data)
    rubbish = ev.record(len(story.log) + 1, "unicron.c.fact.n1", b"\x1b[2J", 0)
    story.log.append(rubbish)
    story.history(Path("log.ndjson"))
    done = cli("replay", "--log", "log.ndjson", "--verify")
    assert done.exit_code == 0
    end = len(story.log)
    assert f"duplicates 1: #{end - 1}" in done.stdout
    assert f"gap        #{end - 2}: agent/n1 lacks its 6 to 8" in done.stdout
    assert f"unread     #{end} bytes: " in done.stdout
    assert "\x1b" not in done.stdout
    document = json.loads(cli("replay", "--log", "log.ndjson", "--json").stdout)
    assert document["duplicates"] == [end - 1]
    assert document["gaps"][0]["who"] == "agent/n1"
    assert document["unread"][0]["decision"] is False
