"""Which orders an agent acts on: repeated, late, old, overtaken."""

import msgspec
import pytest

from tests.worker_shim.test_forkserver import spec
from unicron.events import (
    WorkerExited,
    WorkerStarted,
    WorkerStartFailed,
    WorkerStartOrdered,
    WorkerStopOrdered,
)
from unicron.worker_shim import supervision
from unicron.worker_shim.supervision import End, Fork, Life, Publish, Refuse, Table

AGENT = 7
EMPTY = Table(node="n1", devices=2, agent=AGENT)
W = "n1/0"


def start(incarnation=1, device=0, node="n1", worker=None, agent=0):
    return WorkerStartOrdered(
        task="t",
        worker=worker or f"{node}/{device}",
        incarnation=incarnation,
        node=node,
        device=device,
        spec=spec(),
        reason="",
        agent=agent,
    )


def stop(incarnation=1, grace_ms=0):
    return WorkerStopOrdered(
        task="t", worker=W, incarnation=incarnation, node="n1", grace_ms=grace_ms, reason=""
    )


def names(actions):
    """Actions in short: the types, and of facts what matters."""
    said = []
    for action in actions:
        match action:
            case Publish(fact=WorkerStarted() as fact):
                said.append(("started", fact.incarnation, fact.pid))
            case Publish(fact=WorkerStartFailed() as fact):
                said.append(("failed", fact.incarnation))
            case Publish(fact=WorkerExited() as fact):
                end = fact.exit_code if fact.signal is None else -fact.signal
                said.append(("exited", fact.incarnation, end, fact.ordered))
            case Fork(start=begun):
                said.append(("fork", begun.order.incarnation))
            case End():
                said.append(("end", action.pid, action.grace_ms))
            case Refuse():
                said.append("refused")
    return said


def play(table, *steps):
    """Run the steps; the table and what each of them led to."""
    said = []
    for name, *arguments in steps:
        match name:
            case "start":
                table, actions = supervision.start_ordered(table, 10, 1, start(*arguments))
            case "stop":
                table, actions = supervision.stop_ordered(table, 1, stop(*arguments))
            case "forked":
                table, actions = supervision.forked(table, W, *arguments)
            case "unforked":
                table, actions = supervision.fork_failed(table, W, *arguments, "why")
            case "exit":
                incarnation, pid, code = arguments
                table, actions = supervision.exited(
                    table, W, incarnation, pid, code=code, signal=None
                )
            case "unkillable":
                table, actions = supervision.unkillable(table, W, *arguments)
            case "close":
                table, actions = supervision.close(table, *arguments)
        said.append(names(actions))
    return table, said


@pytest.mark.parametrize(
    "steps,said",
    [
        pytest.param(
            [("start", 1), ("start", 1), ("forked", 1, 50), ("start", 1), ("forked", 1, 50)],
            [[("fork", 1)], [], [("started", 1, 50)], [], []],
            id="a repeated order starts nothing twice",
        ),
        pytest.param(
            [("start", 1), ("forked", 1, 50), ("exit", 1, 50, 7), ("exit", 1, 50, None)],
            [[("fork", 1)], [("started", 1, 50)], [("exited", 1, 7, False)], []],
            id="an end seen twice is said once",
        ),
        pytest.param(
            [("start", 3), ("forked", 3, 50), ("exit", 3, 50, 7), ("start", 3), ("start", 2)],
            [[("fork", 3)], [("started", 3, 50)], [("exited", 3, 7, False)], [], ["refused"]],
            id="what has ended isn't started again, nor what is older",
        ),
        pytest.param(
            [("start", 1), ("exit", 1, 50, 7), ("forked", 1, 50)],
            [[("fork", 1)], [("started", 1, 50), ("exited", 1, 7, False)], []],
            id="an end that overtakes the fork server's answer",
        ),
        pytest.param(
            [("start", 1), ("unforked", 1), ("start", 1), ("start", 2)],
            [[("fork", 1)], [("failed", 1)], [], [("fork", 2)]],
            id="a fork that failed is said, and a newer one may come",
        ),
        pytest.param(
            [("start", 1), ("forked", 1, 50), ("start", 2), ("start", 2), ("exit", 1, 50, None)],
            [
                [("fork", 1)],
                [("started", 1, 50)],
                [("end", 50, 0)],
                [],
                [("exited", 1, None, True), ("fork", 2)],
            ],
            id="a newer incarnation waits until the older one is killed",
        ),
        pytest.param(
            [("start", 1), ("start", 2), ("forked", 1, 50), ("exit", 1, 50, None)],
            [
                [("fork", 1)],
                [],
                [("started", 1, 50), ("end", 50, 0)],
                [("exited", 1, None, True), ("fork", 2)],
            ],
            id="also if the older one was only being forked",
        ),
        pytest.param(
            [("start", 1), ("forked", 1, 50), ("start", 2), ("start", 3), ("exit", 1, 50, None)],
            [
                [("fork", 1)],
                [("started", 1, 50)],
                [("end", 50, 0)],
                [("failed", 2), ("end", 50, 0)],
                [("exited", 1, None, True), ("fork", 3)],
            ],
            id="of two that wait only the newest begins",
        ),
        pytest.param(
            [("start", 1), ("forked", 1, 50), ("start", 2), ("unkillable", 1), ("exit", 1, 50, 0)],
            [
                [("fork", 1)],
                [("started", 1, 50)],
                [("end", 50, 0)],
                [("failed", 2)],
                [("exited", 1, 0, True)],
            ],
            id="one that can't be killed keeps the device",
        ),
        pytest.param(
            [("start", 1), ("forked", 1, 50), ("stop", 1, 300), ("stop", 1, 0), ("stop", 1, 300)],
            [
                [("fork", 1)],
                [("started", 1, 50)],
                [("end", 50, 300)],
                [("end", 50, 0)],
                [("end", 50, 0)],
            ],
            id="a stop can be hastened but not softened",
        ),
        pytest.param(
            [("start", 1), ("stop", 1, 300), ("forked", 1, 50), ("exit", 1, 50, 0), ("stop", 1)],
            [
                [("fork", 1)],
                [],
                [("started", 1, 50), ("end", 50, 300)],
                [("exited", 1, 0, True)],
                [],
            ],
            id="a stop while it is being forked",
        ),
        pytest.param(
            [("stop", 2), ("start", 2), ("start", 1), ("start", 3)],
            [[], [("failed", 2)], [("failed", 1)], [("fork", 3)]],
            id="a stop that comes before its start",
        ),
        pytest.param(
            [("start", 2), ("forked", 2, 50), ("stop", 1)],
            [[("fork", 2)], [("started", 2, 50)], []],
            id="a stop of an older incarnation spares the newer one",
        ),
        pytest.param(
            [("start", 1), ("forked", 1, 50), ("start", 2), ("stop", 2), ("exit", 1, 50, None)],
            [
                [("fork", 1)],
                [("started", 1, 50)],
                [("end", 50, 0)],
                [("failed", 2)],
                [("exited", 1, None, True)],
            ],
            id="a stop of the one that waits",
        ),
        pytest.param(
            [
                ("start", 1),
                ("forked", 1, 50),
                ("start", 2),
                ("close", 400),
                ("exit", 1, 50, 0),
                ("start", 3),
            ],
            [
                [("fork", 1)],
                [("started", 1, 50)],
                [("end", 50, 0)],
                [("end", 50, 0)],
                [("exited", 1, 0, True)],
                [("failed", 3)],
            ],
            id="closing ends all and starts nothing more",
        ),
    ],
)
def test_orders_and_ends(steps, said):
    _, heard = play(EMPTY, *steps)
    assert heard == said


@pytest.mark.parametrize(
    "order,word",
    [
        (start(device=2), "no device 2"),
        (start(device=1, worker="n1/0"), "isn't the worker of device 1"),
    ],
)
def test_what_cannot_be_started_is_said(order, word):
    table, actions = supervision.start_ordered(EMPTY, 10, 1, order)
    assert names(actions) == [("failed", 1)]
    assert word in actions[0].fact.error
    assert actions[0].cause == (10,)
    assert not supervision.living(table)


def test_orders_of_another_node_or_an_older_term_are_refused():
    table, _ = supervision.start_ordered(EMPTY, 10, 7, start())
    for order in (start(incarnation=2), start(device=1)):
        after, actions = supervision.start_ordered(table, 11, 6, order)
        assert names(actions) == ["refused"] and after == table
    after, actions = supervision.stop_ordered(table, 6, stop())
    assert names(actions) == ["refused"] and after == table
    after, actions = supervision.start_ordered(table, 11, 8, start(node="n2"))
    assert names(actions) == ["refused"] and after == table  # nor does its term count


def test_an_order_to_another_life_of_the_agent_is_refused():
    table, actions = supervision.start_ordered(EMPTY, 10, 1, start(agent=AGENT - 1))
    assert names(actions) == ["refused"] and table.slots == {}
    assert "is for agent 6, not us" in actions[0].reason
    _, actions = supervision.start_ordered(EMPTY, 10, 1, start(agent=AGENT))
    assert names(actions) == [("fork", 1)]


def test_every_fact_names_the_order_it_answers():
    table, _ = supervision.start_ordered(EMPTY, 10, 1, start())
    table, actions = supervision.forked(table, W, 1, 50)
    assert actions[0].cause == (10,)
    table, actions = supervision.exited(table, W, 1, 50, code=None, signal=9)
    assert actions[0].cause == (10,)
    assert table.slots[W].life is Life.GONE


def test_the_table_given_is_never_changed():
    table, _ = supervision.start_ordered(EMPTY, 10, 1, start())
    before = msgspec.json.encode(table)
    supervision.forked(table, W, 1, 50)
    supervision.stop_ordered(table, 1, stop())
    supervision.start_ordered(table, 11, 1, start(incarnation=2))
    supervision.close(table, 0)
    assert msgspec.json.encode(table) == before
    assert EMPTY.slots == {} and EMPTY.stopped == {}
