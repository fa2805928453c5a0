import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from unicron.controlplane.cli.main import COMMANDS
from unicron.events import LogBroken, UnicronError

UNICRON = Path(sys.executable).parent / "unicron"


def there(command):
    return importlib.util.find_spec(command.target.partition(":")[0]) is not None


def test_help_names_every_command_and_the_exit_codes(cli):
    done = cli("--help")
    assert done.exit_code == 0
    for name, command in COMMANDS.items():
        assert name in done.stdout
        assert command.about in done.stdout
    assert "Exit codes:" in done.stdout


def test_version(cli):
    done = cli("--version")
    assert (done.exit_code, done.stdout) == (0, f"unicron {version('unicron-controlplane')}\n")


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if there(command)])
def test_every_command_can_be_imported_and_helps(cli, name):
    assert isinstance(COMMANDS[name].load(), click.Command)
    done = cli(name, "--help")
    assert done.exit_code == 0
    assert "--json" in done.stdout


def test_replay_and_audit_are_there():
    assert there(COMMANDS["replay"])
    assert there(COMMANDS["audit"])


def test_a_command_that_was_mistyped(cli):
    done = cli("adit")
    assert done.exit_code == 2
    assert "Did you mean audit?" in done.stderr
    done = cli("wurst")
    assert done.exit_code == 2
    assert f"There are: {', '.join(COMMANDS)}." in done.stderr


def test_no_command_shows_the_help(cli):
    done = cli()
    assert done.exit_code == 2
    assert "Usage: unicron" in done.output


# --- What a failing command says -----------------------------------------------------------------


def test_an_error_is_three_lines_on_stderr(cli):
    done = cli("audit", "--log", ".")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "error: . holds no history files (E-CONFIG-FILE)\n"
        "a history's name ends in .ndjson, or .ndjson.zst\n"
        "try: give the path of one history file\n"
    )


def test_an_error_is_broken_at_the_terminals_width(cli, monkeypatch):
    monkeypatch.setattr("unicron.controlplane.cli.failure.width", lambda stream: 60)
    done = cli("status", "--log", "ftp://somewhere")
    assert done.exit_code == 2
    assert max(map(len, done.stderr.splitlines())) <= 60
    assert "\n  or a history file\n" in done.stderr


@pytest.mark.parametrize("where", [("-vv", "audit"), ("audit", "-vv"), ("-v", "audit", "-vv")])
def test_a_traceback_is_shown_on_demand(cli, where):
    done = cli(*where, "--log", "nowhere")
    assert done.exit_code == 2
    assert "Traceback" in done.stderr
    assert "error: there is no history file nowhere" in done.stderr
    assert "Traceback" not in cli("-v", "audit", "--log", "nowhere").stderr


def test_an_error_as_json_is_the_one_document(cli):
    document = cli.json("audit", "--log", "nowhere", exit_code=2)
    assert document == {
        "schema": "unicron.error/1",
        "ok": False,
        "exit_code": 2,
        "code": "E-CONFIG-FILE",
        "what": "there is no history file nowhere",
        "why": None,
        "fix": "give the path that the export or the demo printed",
        "first_wrong_seq": None,
    }


@pytest.mark.parametrize(
    "error,code",
    [
        (LogBroken("x\x1b[2J\ny", first_wrong=7), 1),
        (UnicronError("x", code="E-NATS-CREDENTIALS"), 4),
        (UnicronError("x"), 1),
    ],
)
def test_whatever_of_ours_is_raised_ends_in_a_code(cli, monkeypatch, error, code):
    def fail(*_):
        raise error

    monkeypatch.setattr("unicron.controlplane.cli.opened.open_log", fail)
    done = cli("audit", "--log", "x")
    assert done.exit_code == code
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "arguments,what,fix",
    [
        (["audit"], "Missing option '--log'.", "unicron audit --help"),
        (["audit", "--nonsense"], "--nonsense", "unicron audit --help"),
        (["audti"], "No such command 'audti'. Did you mean audit?", "unicron --help"),
        (["up", "--cluster", "c"], "give either --nats or --data", "unicron up --help"),
    ],
)
def test_wrong_use_as_json_is_the_one_document(cli, arguments, what, fix):
    plain = cli(*arguments)
    done = cli(*arguments, "--json")
    assert (plain.exit_code, done.exit_code) == (2, 2)
    assert (plain.stdout, done.stderr) == ("", plain.stderr)
    document = json.loads(done.stdout)
    assert (document["schema"], document["ok"], document["exit_code"]) == (
        "unicron.error/1",
        False,
        2,
    )
    assert (document["code"], document["fix"]) == ("E-USAGE", fix)
    assert what in document["what"]


def test_an_interrupt(cli, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("unicron.controlplane.cli.opened.open_log", interrupted)
    assert cli("audit", "--log", "x").exit_code == 130


# --- As a process --------------------------------------------------------------------------------


def run(*arguments, cwd, **environment):
    return subprocess.run(
        [UNICRON, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_exit_codes_of_the_process(log, tmp_path):
    assert run("replay", "--log", log, "--verify", cwd=tmp_path).returncode == 0
    content = (tmp_path / log).read_bytes()
    (tmp_path / "cut.ndjson").write_bytes(content[: content.rindex(b'{"seal"')])
    assert run("replay", "--log", "cut.ndjson", cwd=tmp_path).returncode == 1
    (tmp_path / "half.ndjson").write_bytes(content[:-200])
    assert run("replay", "--log", "half.ndjson", cwd=tmp_path).returncode == 2
    assert run("replay", "--log", "none.ndjson", cwd=tmp_path).returncode == 2
    done = run("replay", "--log", "nats://127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_a_pipe_gets_no_colour_and_may_close(log, tmp_path):
    done = run("audit", "--log", log, cwd=tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    coloured = run("replay", "--log", log, "--verify", cwd=tmp_path, FORCE_COLOR="1")
    assert "\x1b[" in coloured.stdout
    closed = subprocess.run(
        f"{UNICRON} audit --log {log} | head -c 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (closed.returncode, closed.stderr) == (0, "")


def test_a_command_brings_only_what_it_needs(log, tmp_path):
    heavy = {"torch", "ortools", "nats", "anyio", "asyncio", "rich", "textual"}
    code = (
        "import sys; from unicron.controlplane.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    for arguments in (["--help"], ["audit", "--log", log], ["replay", "--log", log, "--verify"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert "click" in done.stderr.split()
        assert not heavy & {*done.stderr.split()}
