"""Facts reach the log in order and once, orders reach the worker, whatever the server does."""

import asyncio
import threading
import time

import pytest

from tests.worker_shim.nats_server import CLUSTER, NatsServer, until
from tests.worker_shim.test_publisher import WORKER, peer_error
from unicron.events import (
    GenerationClosed,
    WorkerPrepared,
    codec,
    subjects,
)
from unicron.events.envelope import Envelope, Source
from unicron.worker_shim.identity import agent_identity
from unicron.worker_shim.thread_transport import ThreadTransport
from unicron.worker_shim.transport import Transport


def order(counter, generation):
    source = Source(who="control/x", incarnation=1, counter=counter)
    return Envelope(
        id=f"control/x:1:{counter}",
        source=source,
        written_at_ns=0,
        term=1,
        body=GenerationClosed(task="t", generation=generation, reason="test"),
    )


def collect(into):
    return lambda sequence, envelope: into.append((sequence, envelope))


def ids(stored):
    return [message_id for message_id, _ in stored]


def expected_ids(count):
    return [f"worker/n1/0:5:{n}" for n in range(1, count + 1)]


@pytest.mark.real
async def test_facts_of_a_thread_are_stored_in_order(log_server):
    transport = ThreadTransport(WORKER, log_server.url, collect([]))
    try:
        for number in range(50):
            assert transport.publish(peer_error(number))
        assert await asyncio.to_thread(transport.flush, 10)
        stored = await log_server.stored(subjects.fact(CLUSTER, "n1"))
        assert ids(stored) == expected_ids(50)
        assert [body["body"]["iteration"] for _, body in stored] == list(range(50))
        assert transport.server_address() == ("127.0.0.1", log_server.port)
    finally:
        transport.close()
    assert "unicron-transport" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.real
async def test_nothing_is_lost_when_the_server_is_killed(log_server):
    transport = ThreadTransport(WORKER, log_server.url, collect([]))
    stop, sent = threading.Event(), [0]

    def publish():
        while not stop.is_set():
            transport.publish(peer_error(sent[0]))
            sent[0] += 1
            time.sleep(0.001)

    writer = threading.Thread(target=publish)
    writer.start()
    try:
        for _ in range(2):
            seen = sent[0]
            await until(lambda seen=seen: sent[0] > seen + 100)
            log_server.kill()
            seen = sent[0]
            await until(lambda seen=seen: sent[0] > seen + 100)
            log_server.start()
        stop.set()
        writer.join(10)
        assert await asyncio.to_thread(transport.flush, 30)
    finally:
        stop.set()
        writer.join(10)
        transport.close()
    stored = await log_server.stored(subjects.fact(CLUSTER, "n1"))
    assert ids(stored) == expected_ids(sent[0])
    assert [body["body"]["iteration"] for _, body in stored] == list(range(sent[0]))


@pytest.mark.real
async def test_it_waits_for_a_server_that_comes_late_and_for_its_stream(folder):
    (folder / "late").mkdir()
    server = NatsServer(folder / "late")
    transport = ThreadTransport(WORKER, server.url, collect([]))
    try:
        assert transport.publish(peer_error(0))
        assert not await asyncio.to_thread(transport.flush, 0.2)
        assert transport.server_address() is None
        server.start()
        assert not await asyncio.to_thread(transport.flush, 0.2)  # no stream yet
        await server.make_stream()
        assert await asyncio.to_thread(transport.flush, 10)
        assert ids(await server.stored()) == expected_ids(1)
    finally:
        transport.close()
        server.kill()


@pytest.mark.real
async def test_orders_come_with_their_sequence(log_server):
    heard = []
    transport = ThreadTransport(WORKER, log_server.url, collect(heard))
    observer = await log_server.connect()
    try:
        await until(transport.server_address)
        first = await log_server.order("task", "t", order(1, 3))
        await log_server.order("task", "other", order(2, 4))
        subject = subjects.order(CLUSTER, "task", "t")
        await observer.publish(subject, b"no event", headers={"Nats-Sequence": "9"})
        await observer.publish(subject, codec.encode(order(3, 5)))  # no sequence
        # The leader says it again, with the sequence it has in the log.
        again = {"Nats-Sequence": str(first)}
        await observer.publish(subject, codec.encode(order(1, 3)), headers=again)
        await until(lambda: len(heard) == 2, what="the order, twice")
        assert [(s, e.body.generation) for s, e in heard] == [(first, 3), (first, 3)]
    finally:
        transport.close()
        await observer.close()


@pytest.mark.real
async def test_it_asks_for_orders_on_every_connect_and_hears_them(log_server):
    heard = []
    await log_server.make_stream("ASKS", ["unicron-ask.>"])
    transport = ThreadTransport(WORKER, log_server.url, collect(heard))
    try:
        for connects in (1, 2):
            asks = await until(
                lambda n=connects: log_server.payloads("ASKS", at_least=n), what="the ask"
            )
            assert asks == [b"worker/n1/0/5"] * connects
            await log_server.order("task", "t", order(connects, connects))
            await until(lambda n=connects: len(heard) == n, what="the order")
            log_server.kill()
            log_server.start()
        await until(lambda: log_server.payloads("ASKS", at_least=3), what="the third ask")
        transport.ask()
        await until(lambda: log_server.payloads("ASKS", at_least=4), what="the ask by hand")
    finally:
        transport.close()


@pytest.mark.real
async def test_a_failing_handler_hurts_nobody(log_server):
    calls = []

    def on_order(sequence, envelope):
        calls.append(sequence)
        raise RuntimeError("handler")

    transport = ThreadTransport(WORKER, log_server.url, on_order)
    try:
        await until(transport.server_address)
        for counter in (1, 2):
            await log_server.order("task", "t", order(counter, counter))
        await until(lambda: len(calls) == 2)
        prepared = WorkerPrepared(
            task="t",
            worker="n1/0",
            incarnation=5,
            parameters=1,
            threads=1,
            torch="",
            megatron="",
            spec_digest="",
        )
        transport.publish(prepared)
        assert await asyncio.to_thread(transport.flush, 10)
    finally:
        transport.close()


@pytest.mark.real
async def test_in_a_loop_of_ones_own(log_server):
    heard = []
    transport = Transport(agent_identity(CLUSTER, "n1", 9), log_server.url, collect(heard))
    running = asyncio.create_task(transport.run())
    transport.publish(peer_error(0))
    assert await transport.flush(10)
    assert ids(await log_server.stored()) == ["agent/n1:9:1"]
    running.cancel()
    await asyncio.wait([running])
    assert not transport.is_connected


@pytest.mark.real
async def test_a_fact_is_in_the_log_once_though_sent_twice(log_server):
    transport = Transport(WORKER, log_server.url, collect([]))
    running = asyncio.create_task(transport.run())
    await until(lambda: transport.is_connected)
    data = b'{"id":"x"}'
    assert await transport._store("x", data) == 1
    assert await transport._store("x", data) == 1
    assert ids(await log_server.stored()) == ["x"]
    running.cancel()
    await asyncio.wait([running])
