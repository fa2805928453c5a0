"""What the demo refuses before it starts anything."""

import importlib.util

import pytest

from unicron.controlplane.local.faults import DEFAULT_FAULTS, KINDS, parse_faults
from unicron.events import ConfigError
from unicron.worker_shim.page import Phase


def test_faults_are_read_as_they_are_written():
    first, second = parse_faults("worker:n2/1@8/forward/2, node:n2@18")
    assert (first.kind, first.target, first.iteration) == ("worker", "n2/1", 8)
    assert (first.phase, first.done) == (Phase.FORWARD, 2)
    assert (second.kind, second.worker, second.done) == ("node", "n2/0", -1)
    assert parse_faults("none") == parse_faults("") == ()
    for kind in KINDS:
        target = "n1" if kind == "node" else "n1/0"
        assert parse_faults(f"{kind}:{target}@3")[0].kind == kind


@pytest.mark.parametrize(
    "text", ["worker", "worker:n2@3", "node:n2/1@3", "fire:n2/1@3", "worker:n2/1@3/lunch", "x@y"]
)
def test_what_is_no_fault_is_refused_with_an_example(text):
    with pytest.raises(ConfigError) as caught:
        parse_faults(text)
    assert caught.value.code == "E-FAULT"


def test_an_unknown_kind_is_answered_with_the_list(cli):
    done = cli("demo", "--faults", "wroker:n2/1@3")
    assert done.exit_code == 2
    assert "there is no fault of kind 'wroker'; worker? (E-FAULT)" in done.stderr
    assert ", ".join(KINDS) in done.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("--faults", "help")])
def test_the_help_has_a_line_for_each_kind_and_the_default(cli, arguments):
    done = cli("demo", *arguments)
    assert done.exit_code == 0
    usual = {fault.kind for fault in parse_faults(DEFAULT_FAULTS)}
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    for kind, known in KINDS.items():
        (line,) = [words for words in lines if words[:1] == [kind]]
        assert " ".join(line[1:]).removeprefix("* ") == known.about
        assert (line[1] == "*") == (kind in usual)
    for fault in DEFAULT_FAULTS.split(","):
        assert [fault] in lines
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_fault_after_the_end(cli):
    done = cli("demo", "--iterations", "5", "--faults", "worker:n2/1@5")
    assert done.exit_code == 2
    assert "E-FAULT" in done.stderr


def test_without_torch_one_line_says_what_to_install(cli, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else find(name)
    )
    done = cli("demo")
    assert done.exit_code == 2
    assert "torch can't be imported (E-NO-TORCH)" in done.stderr
    assert "worker" in done.stderr
