"""Heartbeats, questions and orders over a real server."""

import pytest

from tests.contract.worlds import CLUSTER, DECISION, decision, fact, until
from unicron.controlplane.runtime.natsbus import NatsBus
from unicron.events import Beat, WorkerBeat, encode_beat, subjects

pytestmark = pytest.mark.real

BEAT = Beat(
    node="n1",
    incarnation=1,
    number=4,
    workers=(
        WorkerBeat(
            worker="n1/0",
            incarnation=2,
            alive=True,
            generation=3,
            iteration=10,
            micro_batches_done=2,
            phase="forward",
            collectives=99,
        ),
    ),
)


async def test_beats_and_asks_arrive(nats):
    node = await nats.connection(nats.server.node_url, name="agent/n1/1")
    bus = NatsBus(await nats.connection(), CLUSTER)
    beats, asks = [], []
    await bus.on_beats(beats.append)
    await bus.on_asks(asks.append)
    await node.client.publish(subjects.beat(CLUSTER, "n1"), b"?")
    await node.client.publish(subjects.beat(CLUSTER, "n1"), encode_beat(BEAT))
    await node.client.publish(subjects.ask(CLUSTER, "t"))
    await node.client.publish(subjects.ask(CLUSTER, "n1.rack2"))
    await until(lambda: len(asks) == 2 and beats)
    assert beats == [BEAT]
    assert asks == ["t", "n1.rack2"]
    assert bus.unreadable_beats == 1


async def test_orders_go_out_once_durable_and_again_when_asked(nats):
    log = await nats.open()
    bus = NatsBus(log.connection, CLUSTER)
    node = await nats.connection(nats.server.node_url, name="agent/n1/1")
    heard = []

    async def hear(message):
        heard.append(message)

    await node.client.subscribe(subjects.order(CLUSTER, "task", "t"), cb=hear)
    await node.client.flush()
    await log.append(*fact(1), fence=None)
    outcome = await log.append(*decision(1), fence=0)
    assert await bus.resend(await log.get(outcome.seq))
    await until(lambda: len(heard) == 2)
    first, second = heard
    assert first.subject == second.subject == "unicron-order.demo.task.t"
    assert first.data == second.data == decision(1)[1]
    assert second.headers.items() <= first.headers.items()
    assert second.headers == {
        "Nats-Msg-Id": decision(1)[2],
        "Nats-Stream": subjects.stream_name(CLUSTER),
        "Nats-Subject": DECISION,
        "Nats-Sequence": str(outcome.seq),
    }


async def test_a_broken_connection_is_told_and_beats_go_on_after_it(nats):
    connection = await nats.connection()
    bus, seen, beats = NatsBus(connection, CLUSTER), [], []
    await bus.on_beats(beats.append)
    bus.on_connection(lambda: seen.append("lost"), lambda: seen.append("back"))
    await nats.server.kill()
    await until(lambda: seen == ["lost"])
    await nats.server.start()
    await until(lambda: seen == ["lost", "back"])
    await connection.client.publish(subjects.beat(CLUSTER, "n1"), encode_beat(BEAT))
    await until(lambda: beats == [BEAT])
