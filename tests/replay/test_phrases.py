from typing import get_args

import pytest
from hypothesis import given

from tests.support.event_strategies import EVENT_TYPES, struct
from unicron import events as ev
from unicron.controlplane.replay import phrases


def test_every_event_has_words():
    assert {*get_args(ev.AnyEvent)} == phrases.WORDED


@pytest.mark.parametrize("event", EVENT_TYPES, ids=lambda e: e.__name__)
def test_words_are_one_printable_line_whatever_the_log_holds(event):
    @given(struct(event))
    def check(body):
        text = phrases.phrase(body)
        assert text == text.strip() != ""
        assert text.isprintable()
        assert phrases.kind(body) in {"observed", "decided", "done"}

    check()


def test_decisions_are_never_done():
    for event in get_args(ev.AnyFact):
        assert phrases._TABLE[event][0] != "decided"


def exited(**end):
    return ev.WorkerExited(
        task="t", worker="n1/1", incarnation=2, **{"exit_code": None, "signal": None, **end}
    )


@pytest.mark.parametrize(
    "end,words",
    [
        ({"signal": 9}, "died: killed by signal 9 (SIGKILL)"),
        ({"signal": 99}, "died: killed by signal 99"),
        ({"exit_code": 1}, "died: exit code 1"),
        ({}, "died: found gone, nobody saw how"),
        ({"exit_code": 0, "ordered": True}, "ended as ordered: exit code 0"),
        (
            {"exit_code": 1, "iteration": 7, "micro_batches_done": 2, "phase": "backward"},
            "died: exit code 1, in iteration 7 (backward) with 2 micro-batches done",
        ),
    ],
)
def test_how_a_worker_ended(end, words):
    body = exited(**{"ordered": False, **end})
    assert phrases.phrase(body) == f"the process of n1/1 (life 2) {words}"


@pytest.mark.parametrize(
    "key,words",
    [
        ("quiesce:gpt:3", "not all of gpt answered that they left generation 3"),
        ("ready:gpt:3", "not all of gpt got ready for generation 3"),
        ("start:n1/1:2", "n1/1 (life 2) is still not ready after its start was ordered"),
        ("stop:n1/1:2", "n1/1 (life 2) is still there after its stop was ordered"),
        ("release:n1/1:2", "n1/1 (life 2) still holds a device that goes to another task"),
        ("confirm:n1:7", "nothing spoke for n1 since #7"),
        ("solve:114", "the planner has not answered #114"),
        ("replan:60", "what #60 called for is still not planned"),
        ("odd", "the wait odd is over"),
    ],
)
def test_waits_that_are_over(key, words):
    body = ev.DeadlinePassed(key=key, limit_ms=80)
    assert phrases.phrase(body) == f"{words}: the limit of 80 ms passed"


def test_connections_of_ours_and_of_others():
    def closed(client):
        return phrases.phrase(
            ev.ConnectionClosed(client=client, server="s", client_number=1, reason="EOF")
        )

    assert closed("worker/n1/0/3") == "the connection of worker n1/0 to the log closed: EOF"
    assert closed("agent/n1/3") == "the connection of the agent of n1 to the log closed: EOF"
    assert closed("cli/reader") == "the connection of cli/reader to the log closed: EOF"
    assert closed("") == "the connection of a client without a name to the log closed: EOF"


def test_hostile_text_stays_on_its_line_and_commands_no_terminal():
    body = ev.ExceptionReported(
        task="t",
        worker="n1/0",
        incarnation=1,
        generation=1,
        iteration=4,
        phase="forward",
        kind="cuda.ecc",
        message="\x1b[2J</script>\nboom",
    )
    assert phrases.phrase(body) == (
        "n1/0 raised cuda.ecc in iteration 4 (forward): [2J</script> boom"
    )


def test_what_we_ordered_ourselves_is_done_not_observed():
    assert phrases.kind(exited(signal=9, ordered=True)) == "done"
    assert phrases.kind(exited(signal=9, ordered=False)) == "observed"


def test_many_names_are_cut_short():
    workers = tuple(f"n{n}/0" for n in range(10))
    assert phrases.names(workers[:6]) == "n0/0, n1/0, n2/0, n3/0, n4/0, n5/0"
    assert phrases.names(workers) == "n0/0, n1/0, n2/0, n3/0, n4/0 and 5 more"


def test_a_line_has_an_end_whatever_the_log_holds():
    told = phrases.one_line("x\n" * 1_000_000)
    assert told.startswith("x x x")
    assert told.endswith("… and 1,996,000 more characters")
    assert len(told) < 5000
