"""`unicron why`, `events` and `status`: what they print, and what they say to bad input."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import golden
from tests.core.story import running
from tests.replay.histories import night, powered_off
from unicron import events as ev
from unicron.controlplane.cli import output

COMMANDS = (("why", "gpt"), ("events",), ("status",), ("status", "n2"), ("audit",))


@pytest.fixture
def lost(cli):
    """A log in which a node is lost."""
    story = powered_off()
    story.history(Path("lost.ndjson"))
    return story


def test_why_a_node_is_out(cli, lost):
    done = cli("why", "n2", "--log", "lost.ndjson")
    assert done.exit_code == 0
    golden("why_node.txt", done.stdout)


def test_why_a_task_shrank(cli, lost):
    done = cli("why", "gpt", "--log", "lost.ndjson")
    assert done.stdout.startswith("gpt shrinks from 6 to 4 devices with #")
    golden("why_task.txt", done.stdout)


def test_the_cluster_on_one_screen(cli, lost):
    golden("status.txt", cli("status", "--log", "lost.ndjson").stdout)


@pytest.fixture
def measured():
    """gpt trains on four devices, and is timed."""
    story = running()
    story.decide_input(
        ev.TaskMeasured(
            task="gpt",
            generation=1,
            tensor_parallel=1,
            pipeline_parallel=1,
            data_parallel=4,
            device_kind="cpu",
            iteration=50,
            step_us=312_400,
            spread_us=4000,
            samples=7,
            transition_ms=1200,
        )
    )
    return story


def test_what_was_measured_stands_beside_what_is_assumed(cli, measured, tmp_path):
    measured.history(tmp_path / "measured.ndjson")
    lines = cli("status", "--log", "measured.ndjson").stdout.splitlines()
    header = next(line for line in lines if line.startswith("TASK"))
    row = lines[lines.index(header) + 1]
    assert header.split()[6:8] == ["STEP", "ASSUMED"]
    assert "312 ms   7.8 ms" in row
    told = cli("status", "gpt", "--log", "measured.ndjson").stdout
    seq = measured.state.seq
    assert f"312 ms on 4 cpu devices (7.8 ms assumed), measured by #{seq}" in told
    assert "transitions  cost 1.20 s, the newest first" in told
    assert "are made with what is assumed" not in told
    assert "an iteration takes gpt 312 ms on 4 cpu devices, give or take 4 ms" in told
    task = json.loads(cli("status", "--log", "measured.ndjson", "--json").stdout)["tasks"][0]
    assert (task["step_us"], task["assumed_step_us"]) == (312_400, 7887)


def test_figures_that_do_not_count_are_shown_as_such(cli, measured, tmp_path):
    planning = ev.Planning(measured_step_times=False)
    measured.decide_input(ev.ClusterConfigured(planning=planning, by="test", digest="d"))
    measured.history(tmp_path / "measured.ndjson")
    told = cli("status", "gpt", "--log", "measured.ndjson").stdout
    assert "are made with what is assumed: the cluster is configured so" in told


def test_one_node(cli, lost):
    golden("status_node.txt", cli("status", "n2", "--log", "lost.ndjson").stdout)


def test_a_plan_with_what_else_there_was(cli, lost):
    plan = [r.seq for r in lost.log if isinstance(r.envelope.body, ev.PlanDecided)][1]
    golden("status_plan.txt", cli("status", f"#{plan}", "--log", "lost.ndjson").stdout)


def test_the_log_in_words(cli, lost):
    golden("events.txt", cli("events", "--log", "lost.ndjson", "--for", "n2").stdout)


def test_at_an_earlier_sequence(cli, lost):
    opened = next(r.seq for r in lost.log if isinstance(r.envelope.body, ev.IncidentOpened))
    done = cli("status", "--log", "lost.ndjson", "--at", opened)
    line = done.stdout.splitlines()[0]
    assert f"at #{opened} of {len(lost.log)}, " in line
    assert " UTC: 1 incident open" in line
    assert done.stdout.splitlines()[-1] == (
        f"next: unicron audit inc-{opened - 1}-gpt --at {opened} --log lost.ndjson"
    )
    audit = cli("audit", "--log", "lost.ndjson", "--at", opened)
    assert "1 incident, 1 open" in audit.stdout
    assert cli("audit", "--log", "lost.ndjson", "--at", opened - 1).stdout.startswith(
        f"cluster c up to #{opened - 1}: 0 incidents"
    )


# --- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments,schema",
    [
        (("why", "n2"), "unicron.why/1"),
        (("status",), "unicron.status/1"),
        (("status", "n2"), "unicron.status.id/1"),
        (("events", "--for", "gpt"), "unicron.events/1"),
        (("audit",), "unicron.audit.incidents/1"),
        (("audit", "inc"), "unicron.audit.incident/1"),
    ],
)
def test_json_says_what_it_is_and_of_which_log(cli, lost, arguments, schema):
    document = cli.json(*arguments, "--log", "lost.ndjson")
    assert [*document][:4] == ["schema", "cluster", "log", "at_seq"]
    assert document["schema"] == schema
    assert (document["cluster"], document["log"]) == ("c", "lost.ndjson")
    assert document["at_seq"] == len(lost.log)
    assert cli.json(*arguments, "--log", "lost.ndjson") == document


def test_events_as_json_have_their_fields(cli, lost):
    items = cli.json("events", "--log", "lost.ndjson", "--since", 3, "--until", 5)["items"]
    assert [i["seq"] for i in items] == [3, 4, 5]
    for item, recorded in zip(items, lost.log[2:5], strict=True):
        assert item["type"] == recorded.envelope.body.__struct_config__.tag
        assert {*item["fields"]} == {*recorded.envelope.body.__struct_fields__}
        assert item["at"].endswith("Z")


def test_text_and_json_tell_the_same_chain(cli, lost):
    text = cli("why", "n2", "--log", "lost.ndjson").stdout
    document = cli.json("why", "n2", "--log", "lost.ndjson")
    chain = text.partition("WHAT\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^ *#(\d+) ", chain, re.MULTILINE)
    assert [int(seq) for seq in rows] == [link["event"]["seq"] for link in document["links"]]
    assert text.splitlines()[:3] == document["answer"]


# --- Bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["why", "status"])
def test_an_id_that_is_not_there(cli, lost, command):
    done = cli(command, "n9", "--log", "lost.ndjson")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: there is no 'n9' in this log (E-ID-UNKNOWN)",
        "did you mean n3 or n2 or n1?",
        "try: unicron status without an id lists what there is",
    ]
    assert "E-ID-UNKNOWN" in cli("events", "--for", "n9", "--log", "lost.ndjson").stderr


@pytest.mark.parametrize("arguments", [("why", "9999"), ("status", "#9,999")])
def test_an_event_that_is_not_there(cli, lost, arguments):
    done = cli(*arguments, "--log", "lost.ndjson")
    assert done.exit_code == 2
    assert "error: the log has no event #9999 (E-ID-SEQUENCE)\n" in done.stderr


def test_events_from_where_none_are(cli, lost):
    beyond = cli("events", "--log", "lost.ndjson", "--since", 300)
    assert (beyond.exit_code, beyond.stdout) == (2, "")
    assert "error: the log has no event #300 (E-ID-SEQUENCE)\nit ends with #79\n" in beyond.stderr
    then = cli("events", "--log", "lost.ndjson", "--since", 30, "--at", 20)
    assert "what is told of it ends with #20" in then.stderr
    backwards = cli("events", "--log", "lost.ndjson", "--since", 9, "--until", 8)
    assert (backwards.exit_code, backwards.stdout) == (2, "")
    assert "--since 9 comes after --until 8" in backwards.stderr
    assert cli("events", "--log", "lost.ndjson", "--since", 79).exit_code == 0


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_sequence_beyond_the_end(cli, lost, arguments):
    done = cli(*arguments, "--log", "lost.ndjson", "--at", 9999)
    assert done.exit_code == 2
    assert "error: the log has no event #9999 (E-ID-SEQUENCE)\nit ends with #" in done.stderr
    assert cli(*arguments, "--log", "lost.ndjson", "--at", "x").exit_code == 2


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_file_that_is_no_whole_history(cli, lost, arguments):
    data = Path("lost.ndjson").read_bytes()
    for name, content in (
        ("half.ndjson", data[: len(data) // 2]),
        ("text.ndjson", b"hello\n"),
        ("empty.ndjson", b""),
        ("newer.ndjson", data.replace(b'"unicron_history":', b'"unicron_history":9', 1)),
    ):
        Path(name).write_bytes(content)
        done = cli(*arguments, "--log", name)
        assert (done.exit_code in (1, 2), done.stdout) == (True, ""), name
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) <= 3
    assert "there is no history file" in cli(*arguments, "--log", "nowhere").stderr


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_log_without_events_or_with_few(cli, arguments):
    story = running(1)
    story.history(Path("log.ndjson"))
    known = arguments[0] in ("events", "status", "audit") and len(arguments) == 1
    done = cli(*arguments, "--log", "log.ndjson", "--at", 0)
    assert done.exit_code == (0 if known else 2)


def test_a_file_cannot_be_followed(cli, lost):
    done = cli("events", "--follow", "--log", "lost.ndjson")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[0] == "error: lost.ndjson can't be followed (E-CONFIG-FOLLOW)"
    done = cli("events", "--follow", "--until", 3, "--log", "nats://x")
    assert (done.exit_code, "leave out --at and --until" in done.stderr) == (2, True)


# --- Terminals -----------------------------------------------------------------------------------


MODULES = (
    "story_text",
    "incident_list",
    "why_command",
    "events_command",
    "status_command",
    "replay_command",
)
REPLAYS = (("replay", "--verify"), ("replay", "--until", "60"))


@pytest.mark.parametrize("arguments", [*COMMANDS, ("audit", "inc-"), *REPLAYS], ids=" ".join)
def test_80_columns_on_a_terminal_and_whole_lines_in_a_pipe(cli, lost, monkeypatch, arguments):
    whole = cli(*arguments, "--log", "lost.ndjson").stdout
    for name in MODULES:
        monkeypatch.setattr(f"unicron.controlplane.cli.{name}.width", lambda: 80)
    lines = cli(*arguments, "--log", "lost.ndjson").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert max(map(len, whole.splitlines())) > 80
    words = " ".join(" ".join(lines).split())
    assert " ".join(whole.split())[:60] in words


def test_hostile_text_stays_on_its_line_everywhere(cli):
    story = running(1)
    story.raises("n1/1", "software", "\x1b]0;owned\x07\n</script>\r\u202e\x9b2J")
    story.settle()
    story.history(Path("hostile.ndjson"))
    seq = next(r.seq for r in story.log if isinstance(r.envelope.body, ev.ExceptionReported))
    for arguments in (*COMMANDS[:3], ("status", "n1/1"), ("status", seq), ("why", seq)):
        done = cli(*arguments, "--log", "hostile.ndjson")
        assert done.exit_code == 0, done.output
        assert {c for c in done.stdout if not c.isprintable()} == {"\n"}
        told = cli(*arguments, "--log", "hostile.ndjson", "--json").stdout
        assert {c for c in told if not c.isprintable()} == {"\n"}
        json.loads(told)
    fields = cli.json("events", "--log", "hostile.ndjson", "--since", seq, "--until", seq)
    assert fields["items"][0]["fields"]["message"].endswith("\u202e\x9b2J")


def test_json_keeps_what_it_escapes():
    text = "\x1b[2J\u202e\x9b \U0001f600 \U000e0001 é"
    assert json.loads(output.json_text({"x": text}))["x"] == text
    assert output.json_text({"x": text}).isprintable() is False  # its line ends
    assert output.escaped('"\u202e"') == '"\\u202e"'


@pytest.mark.parametrize("command", ["why", "events", "status", "audit"])
def test_help_says_what_for(cli, command):
    done = cli(command, "--help")
    assert done.exit_code == 0
    assert "--at SEQ" in done.stdout
    assert "--json" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_ids_in_commands_to_type_are_quoted(cli):
    """The name of a task is anybody's."""
    story = night()
    story.history(Path("my log.ndjson"))
    last = cli("why", "gpt", "--log", "my log.ndjson").stdout.splitlines()[-1]
    assert last.endswith("--log 'my log.ndjson'")
