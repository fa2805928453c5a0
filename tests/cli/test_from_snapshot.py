"""`unicron replay --from-snapshot` on history files; on a live log it is in test_up_snapshots."""

import os
from pathlib import Path

import pytest

from tests.core.snapshots import snapshot_of
from tests.core.story import running
from unicron.controlplane.core.snapshot import encode_snapshot
from unicron.controlplane.core.state import FOLD_VERSION

AT = 30


@pytest.fixture
def kept(log, story):
    """A snapshot of the log of the story."""
    Path("c.snapshot").write_bytes(encode_snapshot(snapshot_of(story, AT, birth="told")))
    return "c.snapshot"


def test_what_comes_after_it_is_verified(cli, log, kept, story):
    whole = cli.json("replay", "--log", log, "--verify")
    found = cli.json("replay", "--log", log, "--verify", "--from-snapshot", kept)
    assert (found["ok"], found["verified"], found["began"]) == (True, True, AT)
    assert (found["digest"], found["chain"]) == (whole["digest"], whole["chain"])
    assert found["events"] == whole["events"] - AT
    assert found["log_events"] == whole["log_events"] == len(story.log)
    assert 0 < found["redecided"] < whole["redecided"]
    assert whole["began"] == 0


def test_it_says_that_what_is_before_it_was_not_judged(cli, log, kept):
    shown = cli("replay", "--log", log, "--verify", "--from-snapshot", kept).stdout
    assert shown.startswith(f"+ holds for cluster c from the snapshot of #{AT} up to #")
    assert f"snapshot   #{AT}; what stands up to it wasn't judged" in shown


def test_up_to_an_event_after_it(cli, log, kept, story):
    found = cli.json("replay", "--log", log, "--from-snapshot", kept, "--until", AT + 5)
    assert (found["last_seq"], found["events"]) == (AT + 5, 5)
    shown = cli("replay", "--log", log, "--from-snapshot", kept, "--until", AT + 5)
    assert shown.exit_code == 0
    refused = cli("replay", "--log", log, "--from-snapshot", kept, "--until", AT - 1)
    assert refused.exit_code == 2
    assert f"#{AT - 1} stands before the snapshot" in refused.stderr
    refused = cli("replay", "--log", log, "--from-snapshot", kept, "--until", 99_999)
    assert refused.exit_code == 2
    assert f"give a sequence from {AT} to {len(story.log)}" in refused.stderr


def test_a_log_that_is_shorter_or_another_one_is_refused(cli, story, kept):
    story.log = story.log[: AT - 1]
    story.history(Path("short.ndjson"))
    short = cli("replay", "--log", "short.ndjson", "--from-snapshot", kept)
    assert (short.exit_code, "E-LOG-SHORT" in short.stderr) == (1, True)
    running(3).history(Path("other.ndjson"))
    other = cli("replay", "--log", "other.ndjson", "--from-snapshot", kept)
    assert (other.exit_code, "E-LOG-CHANGED" in other.stderr) == (1, True)


@pytest.mark.parametrize(
    "other, code",
    [
        ({"cluster": "d"}, "E-LOG-CLUSTER"),
        ({"birth": "other"}, "E-LOG-BIRTH"),
        ({"fold_version": FOLD_VERSION - 1}, "E-SNAPSHOT"),
    ],
)
def test_a_snapshot_that_does_not_fit_is_refused(cli, log, story, other, code):
    made = snapshot_of(story, AT, **{"birth": "told", **other})
    Path("c.snapshot").write_bytes(encode_snapshot(made))
    refused = cli("replay", "--log", log, "--from-snapshot", "c.snapshot")
    assert (refused.exit_code, f"({code})" in refused.stderr) == (2, True)
    assert "leave out --from-snapshot" in refused.stderr


def test_a_snapshot_that_is_none_is_refused(cli, log):
    Path("bad.snapshot").write_text("unicron-snapshot 1")
    os.mkfifo("pipe.snapshot")  # nobody writes into it
    with open("huge.snapshot", "wb") as file:
        file.truncate(1 << 40)
    for name, code in (
        ("bad.snapshot", "E-SNAPSHOT"),
        ("none", "E-CONFIG-FILE"),
        (".", "E-SNAPSHOT"),
        ("pipe.snapshot", "E-SNAPSHOT"),
        ("huge.snapshot", "E-SNAPSHOT"),
    ):
        refused = cli("replay", "--log", log, "--from-snapshot", name)
        assert (refused.exit_code, code in refused.stderr) == (2, True)


def test_the_newest_is_kept_by_a_control_plane_only(cli, log):
    refused = cli("replay", "--log", log, "--from-snapshot", "newest")
    assert refused.exit_code == 2
    assert "newest goes with the log of a control plane" in refused.stderr


def test_an_export_is_of_the_whole_log(cli, log, kept):
    refused = cli("replay", "--log", log, "--from-snapshot", kept, "--export", "x.ndjson")
    assert refused.exit_code == 2
    assert "leave out --from-snapshot" in refused.stderr
    assert not Path("x.ndjson").exists()
