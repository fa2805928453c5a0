"""What only a real server can do to us: lose answers, die, forget, lie about duplicates."""

import asyncio
import json
import subprocess
import sys

import pytest

from tests.contract.worlds import (
    CLUSTER,
    DECISION,
    decision,
    fact,
    lose_answers,
    take,
    until,
)
from unicron.controlplane.runtime.outcomes import Accepted, Conflict, Unknown
from unicron.events import (
    ConfigError,
    ConnectionClosed,
    ConnectionOpened,
    LogBroken,
    LogError,
    LogMismatch,
    LogUnreachable,
    subjects,
)

pytestmark = pytest.mark.real
STREAM = subjects.stream_name(CLUSTER)


class Answer:
    """A server's reply that a test made up."""

    def __init__(self, **content):
        self.data = json.dumps(content).encode()


def answer_once(connection, reply, *, send=False):
    """The next request under the log's subjects is answered with `reply`; `send` it as well."""
    ask = connection.request

    async def request(subject, data, **options):
        if not subject.startswith("unicron."):
            return await ask(subject, data, **options)
        connection.request = ask
        if send:
            await ask(subject, data, **options)
        return reply

    connection.request = request


def wrong_last_sequence(code):
    return Answer(error={"code": 400, "err_code": code, "description": "wrong last sequence"})


# --- Outcomes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [True, False])
async def test_a_lost_answer_is_settled_by_trying_again_under_the_same_id(nats, stored):
    log = await nats.open()
    lose_answers(log.connection, 2, stored=stored)
    assert await log.append(*fact(1), fence=None) == Accepted(seq=1, duplicate=stored)
    lose_answers(log.connection, 2, stored=stored)
    assert await log.append(*decision(1), fence=0) == Accepted(seq=2, duplicate=stored)
    assert await log.last_seq() == 2


@pytest.mark.parametrize("code", [10071, 10164])
async def test_both_codes_of_a_held_fence_are_read_back(nats, code):
    log, rival = await nats.open(), await nats.open()
    answer_once(log.connection, wrong_last_sequence(code), send=True)
    assert await log.append(*decision(1), fence=0) == Accepted(seq=1, duplicate=True)
    await rival.append(*decision(1, "b"), fence=1)
    answer_once(log.connection, wrong_last_sequence(code))
    assert await log.append(*decision(2), fence=1) == Conflict(last_seq=2)


async def test_a_fence_that_held_against_nobody_yet_is_tried_again(nats):
    """With replicas the winner may not be committed when the loser is told."""
    log = await nats.open()
    answer_once(log.connection, wrong_last_sequence(10164))
    assert await log.append(*decision(1), fence=0) == Accepted(seq=1)


async def test_a_duplicate_that_does_not_stand_there_is_not_believed(nats):
    log = await nats.open(limit_s=0)
    await log.append(*fact(1), fence=None)
    answer_once(log.connection, Answer(stream=STREAM, seq=1, duplicate=True))
    assert isinstance(await log.append(*fact(2), fence=None), Unknown)
    assert await log.append(*fact(2), fence=None) == Accepted(seq=2)


async def test_unavailable_for_now_is_tried_again_and_a_refusal_is_not(nats):
    log = await nats.open()
    error = {"code": 503, "err_code": 10008, "description": "temporarily unavailable"}
    answer_once(log.connection, Answer(error=error))
    assert await log.append(*fact(1), fence=None) == Accepted(seq=1)
    refusal = {"code": 400, "err_code": 10130, "description": "no thanks"}
    answer_once(log.connection, Answer(error=refusal))
    with pytest.raises(LogError, match="no thanks"):
        await log.append(*fact(2), fence=None)


async def test_an_event_too_large_for_the_server_is_refused_with_its_size(nats):
    log = await nats.open()
    with pytest.raises(LogError) as raised:
        await log.append(*fact(1, "x" * 9_000_000), fence=None)
    assert raised.value.code == "E-LOG-TOO-LARGE"
    assert await log.append(*fact(1), fence=None) == Accepted(seq=1)


async def test_a_nodes_credentials_write_facts_and_no_decisions(nats):
    log = await nats.open(limit_s=0)
    node = await nats.connection(nats.server.node_url, name="agent/n1/1")
    await node.client.publish(fact(1)[0], fact(1)[1])
    await node.client.flush()
    await until_last_seq(log, 2)  # its connect advisory and its fact
    with pytest.raises(ConfigError) as raised:
        await node.request(DECISION, decision(1)[1], limit_s=0.3)
    assert raised.value.code == "E-NATS-PERMISSION"
    assert await log.last_control_seq() == 0


async def until_last_seq(log, seq):
    while await log.last_seq() < seq:
        await asyncio.sleep(0.005)


# --- Reading on through everything ---------------------------------------------------------------


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(nats):
    """Writer and reader live through two kill -9 of the server on the same port and store."""
    log, reader = await nats.open(), await nats.open()
    tail, acknowledged, read = reader.read(1), {}, []

    async def write():
        for counter in range(1, 121):
            # Facts and decisions alternate, so that the fence is in play too.
            if counter % 3:
                outcome = await log.append(*fact(counter), fence=None)
                expected = fact(counter)[2]
            else:
                fence = await last_control(log)
                outcome = await log.append(*decision(counter), fence=fence)
                expected = decision(counter)[2]
            assert isinstance(outcome, Accepted)
            acknowledged[outcome.seq] = expected

    async def follow():
        async for entry in tail:
            read.append(entry)  # noqa: PERF401 - others watch it grow

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        writing = group.create_task(write())
        for reached in (40, 80):
            await until(lambda reached=reached: len(acknowledged) >= reached)
            await nats.server.kill()
            await nats.server.start()
        await writing
        await until(lambda: len(read) >= max(acknowledged))
        await tail.aclose()
        await following
    assert [e.seq for e in read] == list(range(1, len(read) + 1))
    by_seq = {e.seq: e.id for e in read}
    assert {seq: by_seq[seq] for seq in acknowledged} == acknowledged
    ours = [e.id for e in read if e.id.startswith(("agent", "control"))]
    assert len(ours) == len(set(ours)) == 120
    assert tail.reopened >= 1  # the second kill may come while it opens anew after the first


async def last_control(log):
    while True:
        try:
            return await log.last_control_seq()
        except LogUnreachable:
            await asyncio.sleep(0.05)


async def test_lost_deliveries_are_fetched_again(nats):
    log, reader = await nats.open(), await nats.open()
    tail = reader.read(1)
    await log.append(*fact(1), fence=None)
    assert (await anext(tail)).seq == 1
    for counter in range(2, 6):
        await log.append(*fact(counter), fence=None)
    await until(lambda: len(tail._arrived) == 4)
    del tail._arrived[1]  # as a slow consumer's queue would
    assert [e.seq for e in await take(tail, 4)] == [2, 3, 4, 5]
    assert tail.reopened == 1


async def test_a_lost_last_delivery_is_noticed_by_the_heartbeat(nats):
    log, reader = await nats.open(), await nats.open()
    tail = reader.read(1)
    waiting = asyncio.create_task(anext(tail))
    await until(lambda: tail._consumer and tail.reopened == 0)
    queue = tail._subscription._pending_queue
    put = queue.put_nowait
    queue.put_nowait = lambda message: None if message.data else put(message)
    await log.append(*fact(1), fence=None)
    assert (await waiting).seq == 1
    assert tail.reopened == 1


async def test_a_slow_reader_slows_the_server_and_loses_nothing(nats):
    """40 MB wait for a reader that hasn't begun to take them."""
    log, reader = await nats.open(), await nats.open()
    tail = reader.read(1)
    await fill_quickly(log, batches=5, count=1000, size=8000)
    first = await anext(tail)
    await asyncio.sleep(0.5)
    held = len(tail._arrived)
    assert held < 4999
    assert [e.seq for e in [first, *await take(tail, 4999)]] == list(range(1, 5001))
    assert tail.reopened == 0


async def fill_quickly(log, *, batches, count, size):
    """Atomic batches: one flush to disk for each."""
    client, subject = log.connection.client, fact(1)[0]
    for batch in range(batches):
        for number in range(1, count + 1):
            headers = {"Nats-Batch-Id": f"b{batch}", "Nats-Batch-Sequence": str(number)}
            if number == count:
                headers["Nats-Batch-Commit"] = "1"
                await client.request(subject, b"x" * size, headers=headers, timeout=20)
            else:
                await client.publish(subject, b"x" * size, headers=headers)


async def test_a_tail_leaves_no_consumer_behind(nats):
    log = await nats.open()
    await log.append(*fact(1), fence=None)
    tail = log.read(1)
    await anext(tail)
    assert await consumers(log) == 1
    await tail.aclose()
    assert await consumers(log) == 0


async def consumers(log):
    info = await log.connection.api(f"STREAM.INFO.{STREAM}", None, dict)
    return info["state"]["consumer_count"]


async def test_removed_events_are_a_gap(nats):
    log = await nats.open()
    for counter in range(1, 6):
        await log.append(*fact(counter), fence=None)
    info = await log.connection.api(f"STREAM.INFO.{STREAM}", None, dict)
    limited = info["config"] | {"max_msgs": 2, "discard": "old"}
    await log.connection.api(f"STREAM.UPDATE.{STREAM}", limited, dict)
    with pytest.raises(LogBroken) as raised:
        await anext(log.read(1))
    assert raised.value.code == "E-LOG-GAP"
    assert raised.value.first_wrong == 1
    assert (await anext(log.read(4))).seq == 4
    with pytest.raises(LogMismatch, match="max_msgs") as refused:
        await nats.open()
    assert refused.value.code == "E-LOG-CONFIG"


async def test_an_event_missing_in_the_middle_stops_the_reader(nats):
    log = await nats.open()
    for counter in range(1, 4):
        await log.append(*fact(counter), fence=None)
    tail = log.read(1)
    assert (await anext(tail)).seq == 1
    await until(lambda: len(tail._arrived) == 2)
    tail._arrived.popleft()
    get = log.get

    async def without_2(seq):
        return None if seq == 2 else await get(seq)

    log.get = without_2
    with pytest.raises(LogBroken) as raised:
        await anext(tail)
    assert (raised.value.code, raised.value.first_wrong) == ("E-LOG-GAP", 2)


async def test_a_stream_born_anew_is_another_log(nats):
    log, other = await nats.open(), await nats.open()
    birth = await log.birth()
    await log.append(*fact(1), fence=None)
    tail = log.read(1)
    await anext(tail)
    await other.connection.api(f"STREAM.DELETE.{STREAM}", None, dict)
    with pytest.raises(LogMismatch, match="born"):
        await nats.open(birth=birth)  # makes a new one, and sees that it isn't the old one
    with pytest.raises(LogMismatch) as raised:
        await anext(tail)
    assert raised.value.code == "E-LOG-BIRTH"


async def test_a_connection_closed_for_good_ends_reading_with_its_reason(nats):
    log = await nats.open()
    waiting = asyncio.create_task(anext(log.read(1)))
    await asyncio.sleep(0.05)
    await log.connection.close()
    with pytest.raises(LogUnreachable):
        await waiting
    with pytest.raises(LogUnreachable):
        await log.last_seq()


# --- Advisories ----------------------------------------------------------------------------------


CLIENT = """
import asyncio, sys
from unicron.controlplane.runtime.jetstream import connect

async def main():
    connection = await connect(sys.argv[1], name="agent/n1/7")
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_connections_and_their_ends_stand_in_the_log(nats):
    log = await nats.open()
    tail = log.read(1)
    client = subprocess.Popen([sys.executable, "-c", CLIENT, nats.server.node_url])
    opened = (await anext(tail)).envelope.body
    client.kill()
    client.wait()
    closed = (await anext(tail)).envelope.body
    assert opened == ConnectionOpened(
        client="agent/n1/7", server=opened.server, client_number=opened.client_number
    )
    assert isinstance(closed, ConnectionClosed)
    assert (closed.client, closed.server, closed.client_number) == (
        opened.client,
        opened.server,
        opened.client_number,
    )
    assert closed.reason  # "Client Closed" or "Read Error", as the socket happened to end
