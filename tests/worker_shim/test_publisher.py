"""Facts are numbered when they are taken, delivered in order and once, and never lost unsaid."""

import asyncio
import logging

import pytest

from tests.worker_shim.nats_server import CLUSTER
from unicron.events import FactsDropped, MemberQuiesced, PeerErrorReported, codec
from unicron.worker_shim import dropped, publisher, spool
from unicron.worker_shim.evidence import TEXT_MAX, cut
from unicron.worker_shim.identity import worker_identity
from unicron.worker_shim.publisher import FactPublisher, TooLarge
from unicron.worker_shim.spool import SpoolFile

WORKER = worker_identity(CLUSTER, "n1/0", 5, "t")


def peer_error(number, error="closed by peer"):
    return PeerErrorReported(
        task="t",
        worker="n1/0",
        incarnation=5,
        generation=1,
        iteration=number,
        phase="reduction",
        error=error,
    )


def too_many_numbers(number):
    """A fact that is too large though none of its texts is."""
    return MemberQuiesced(
        task="t",
        worker="n1/0",
        incarnation=5,
        generation=1,
        iteration=number,
        phase="forward",
        kept=tuple(range(publisher.FACT_LIMIT_BYTES // 5)),
        reduced=False,
        voted=False,
    )


class Flaky:
    """A log that stores, loses or answers nothing, as told attempt by attempt."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.attempts = []
        self.stored = {}

    async def __call__(self, message_id, data):
        self.attempts.append(message_id)
        outcome = self.outcomes.pop(0) if self.outcomes else "stored"
        if isinstance(outcome, TooLarge):
            return outcome
        if outcome != "lost":
            self.stored.setdefault(message_id, codec.decode("unicron.c.fact.n1", data))
        return 100 + len(self.attempts) if outcome == "stored" else outcome

    @property
    def told(self):
        """What is in it: number and iteration of each, or number and what was dropped."""
        return [
            (e.source.counter, e.body.count if isinstance(e.body, FactsDropped) else e.body)
            if not isinstance(e.body, PeerErrorReported)
            else (e.source.counter, f"#{e.body.iteration}")
            for e in self.stored.values()
        ]


class Running:
    """A publisher that delivers while the block lasts."""

    def __init__(self, facts):
        self.facts = facts

    async def __aenter__(self):
        self.task = asyncio.create_task(self.facts.run())
        return self.facts

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.wait([self.task])


async def delivered(flaky, facts):
    async with Running(FactPublisher(WORKER, flaky)) as facts_out:
        for fact in facts:
            facts_out.publish(fact)
        assert await facts_out.flush(10)
    return facts_out


async def test_a_fact_is_repeated_under_its_id_until_the_log_has_it():
    flaky = Flaky("lost", "no answer, though stored", "stored", "lost")
    await delivered(flaky, [peer_error(0), peer_error(1)])
    first, second = "worker/n1/0:5:1", "worker/n1/0:5:2"
    assert flaky.attempts == [first, first, first, second, second]
    assert [e.source.counter for e in flaky.stored.values()] == [1, 2]


async def test_what_others_left_is_delivered_first_and_is_not_its_own():
    left = spool.read_fact(codec.encode(next(iter((await stored_of(peer_error(7))).values()))))
    flaky, stored = Flaky("lost"), []
    facts = FactPublisher(worker_identity(CLUSTER, "n1/1", 9, "t"), flaky)
    facts.adopt(left, lambda: stored.append(list(flaky.stored)))
    async with Running(facts):
        while len(flaky.stored) < 1:
            await asyncio.sleep(0)
        facts.publish(peer_error(0))
        assert await facts.flush(10)
    assert list(flaky.stored) == ["worker/n1/0:5:1", "worker/n1/1:9:1"]
    assert stored == [["worker/n1/0:5:1"]]


async def stored_of(*facts):
    flaky = Flaky()
    await delivered(flaky, facts)
    return flaky.stored


async def test_cause_is_written_and_flush_has_a_limit():
    flaky = Flaky()
    facts = FactPublisher(WORKER, flaky)
    facts.publish(peer_error(0), cause=(17,))
    assert not await facts.flush(0.01)  # nobody runs it
    async with Running(facts):
        assert await facts.flush(10)
    (envelope,) = flaky.stored.values()
    assert envelope.cause == (17,)


async def test_who_has_much_to_tell_pauses_when_the_log_is_busy(monkeypatch):
    pauses, sleep = [], asyncio.sleep

    async def pause(seconds):
        pauses.append(seconds)
        await sleep(0)

    async def slow(message_id, data):
        await sleep(0.002)
        return 7

    monkeypatch.setattr(asyncio, "sleep", pause)
    monkeypatch.setattr(publisher, "SLOW_ACK_S", 0.001)
    monkeypatch.setattr(publisher, "BURST", 4)
    async with Running(FactPublisher(WORKER, slow)) as facts:
        for number in range(10):
            facts.publish(peer_error(number))
        assert await facts.flush(10)
    assert len(pauses) == 5  # not for the last of them
    assert all(0.004 <= seconds <= publisher.RETRY_LAST_S for seconds in pauses)


# --- What can't be sent --------------------------------------------------------------------------


async def test_a_fact_that_is_too_large_is_refused_and_that_is_a_fact(caplog):
    flaky = Flaky()
    facts = await delivered(flaky, [peer_error(0), too_many_numbers(1), peer_error(2)])
    assert facts.refused == 1 and "MemberQuiesced is lost" in caplog.text
    assert flaky.told == [(1, "#0"), (2, 1), (3, "#2")]
    said = flaky.stored["worker/n1/0:5:2"].body
    assert (said.who, said.incarnation, said.after) == ("worker/n1/0", 5, 1)
    assert [(k.kind, k.count) for k in said.kinds] == [("member.quiesced.v1", 1)]
    assert f"the limit is {publisher.FACT_LIMIT_BYTES}" in said.reason


async def test_a_long_text_is_cut_with_a_note_instead():
    text = "begin " + "x" * publisher.FACT_LIMIT_BYTES + " end"
    (envelope,) = (await stored_of(peer_error(1, text))).values()
    error = envelope.body.error
    assert len(error) <= TEXT_MAX and error.startswith("begin x") and error.endswith("x end")
    assert f"of {len(text)} characters cut" in error and envelope.body.iteration == 1


@pytest.mark.parametrize("limit", [80, 81, 500])
@pytest.mark.parametrize("length", [0, 79, 80, 500, 501, 5_000, 10**7])
def test_a_text_is_cut_to_its_limit(limit, length):
    text = "".join(chr(97 + n % 26) for n in range(min(length, 1000))) + "x" * (length - 1000)
    short = cut(text, limit)
    assert short == text if length <= limit else len(short) <= limit and short[:10] == text[:10]
    assert short[-10:] == text[-10:]


async def test_what_the_server_can_never_take_is_replaced_under_its_number():
    flaky = Flaky("stored", TooLarge("2 kB, the server takes 1 kB"))
    await delivered(flaky, [peer_error(n) for n in range(3)])
    assert flaky.told == [(1, "#0"), (2, 1), (3, "#2")]
    assert "the server takes 1 kB" in flaky.stored["worker/n1/0:5:2"].body.reason
    assert len(flaky.attempts) == 4


# --- When it is full -----------------------------------------------------------------------------


async def test_when_it_is_full_the_newest_are_dropped_and_the_log_is_told(monkeypatch, caplog):
    monkeypatch.setattr(publisher, "SPOOL_LIMIT", 10)
    flaky = Flaky()
    facts = FactPublisher(WORKER, flaky)
    taken = [facts.publish(peer_error(n)) for n in range(15)]
    assert taken == [True] * 10 + [False] * 5
    assert (facts.waiting, facts.refused) == (10, 5) and "PeerErrorReported is lost" in caplog.text
    async with Running(facts):
        assert await facts.flush(10)
        facts.publish(peer_error(20))
        assert await facts.flush(10)
    assert flaky.told == [*((n + 1, f"#{n}") for n in range(10)), (11, 5), (12, "#20")]
    said = flaky.stored["worker/n1/0:5:11"].body
    assert said.after == 10 and [(k.kind, k.count) for k in said.kinds] == [
        ("worker.peer_error.v1", 5)
    ]
    assert 0 < said.first_at_ns <= said.last_at_ns and "10 facts waited" in said.reason


async def test_bytes_are_a_limit_too_and_one_that_was_full_first_gets_room(monkeypatch):
    monkeypatch.setattr(publisher, "SPOOL_LIMIT_BYTES", 20_000)
    go, flaky = asyncio.Semaphore(0), Flaky()

    async def attempt(message_id, data):
        await go.acquire()
        return await flaky(message_id, data)

    facts = FactPublisher(WORKER, attempt)
    taken = sum(facts.publish(peer_error(n, "x" * 500)) for n in range(100))
    assert 15 < taken < 40
    async with Running(facts):
        room = []
        while not room or not room[-1]:
            room.append(facts.publish(peer_error(200)))
            go.release()
            await asyncio.sleep(0.001)
        assert len(room) > 2  # a tenth of it had to go first
        for _ in range(100):
            go.release()
        assert await facts.flush(10)
    drops = [count for _, count in flaky.told if isinstance(count, int)]
    assert drops == [100 - taken + len(room) - 1]
    assert [n for n, _ in flaky.told] == list(range(1, len(flaky.told) + 1))


def in_spool(path):
    return spool.decode(path.read_bytes()).facts


async def test_a_spool_tells_of_what_was_dropped_though_its_process_dies(monkeypatch, folder):
    monkeypatch.setattr(publisher, "SPOOL_LIMIT", 4)
    path = folder / "w.spool"
    facts = FactPublisher(WORKER, Flaky(), spool=SpoolFile(str(path), WORKER.owner))
    for n in range(4 + 100):
        facts.publish(peer_error(n))
    found = dropped.filled(in_spool(path))
    assert [f.source.counter for f in found] == [1, 2, 3, 4, 5]
    last = codec.decode("unicron.c.fact.n1", found[-1].data).body
    assert isinstance(last, FactsDropped) and 64 <= last.count <= 100 and last.after == 4
    facts.close()


# --- The spool -----------------------------------------------------------------------------------


async def test_a_fact_lies_in_the_spool_from_when_it_is_taken_to_when_the_log_has_it(folder):
    path = folder / "w.spool"
    go, flaky = asyncio.Semaphore(0), Flaky()

    async def attempt(message_id, data):
        await go.acquire()
        return await flaky(message_id, data)

    facts = FactPublisher(WORKER, attempt, spool=SpoolFile(str(path), WORKER.owner))
    for number in range(3):
        facts.publish(peer_error(number))
        assert len(in_spool(path)) == number + 1
    async with Running(facts):
        go.release()
        while len(flaky.stored) < 1:
            await asyncio.sleep(0.001)
        assert len(in_spool(path)) == 3  # what the log has is sent again, and dropped by its id
        go.release()
        go.release()
        assert await facts.flush(10)
        assert in_spool(path) == ()
    facts.publish(peer_error(3))
    facts.close()
    (left,) = in_spool(path)
    assert codec.decode("unicron.c.fact.n1", left.data).id == "worker/n1/0:5:4"


async def test_a_spool_that_never_empties_is_written_anew(monkeypatch, folder):
    monkeypatch.setattr(publisher, "SPOOL_LIMIT_BYTES", 5_000)
    path, flaky, go = folder / "w.spool", Flaky(), asyncio.Semaphore(0)

    async def attempt(message_id, data):
        await go.acquire()
        return await flaky(message_id, data)

    facts = FactPublisher(WORKER, attempt, spool=SpoolFile(str(path), WORKER.owner))
    largest = 0
    async with Running(facts):
        for number in range(500):
            assert facts.publish(peer_error(number))
            largest = max(largest, path.stat().st_size)
            if number >= 4:  # from here on, always four wait or five
                go.release()
                while len(flaky.stored) < number - 3:
                    await asyncio.sleep(0)
        assert len(in_spool(path)) >= facts.waiting > 0
        for _ in range(4):
            go.release()
        assert await facts.flush(10)
    assert 10_000 < largest < 12_000
    assert len(flaky.stored) == 500 and in_spool(path) == ()


async def test_without_a_disk_facts_wait_in_memory(folder, caplog):
    (folder / "file").write_text("")
    file = SpoolFile(str(folder / "file" / "w.spool"), WORKER.owner)
    flaky = Flaky("lost", "lost")
    async with Running(FactPublisher(WORKER, flaky, spool=file)) as facts:
        for number in range(20):
            assert facts.publish(peer_error(number))
        assert await facts.flush(10)
    assert len(flaky.stored) == 20
    assert sum(r.levelno == logging.ERROR for r in caplog.records) == 1


async def test_a_disk_that_is_back_gets_all_that_waits(monkeypatch, folder):
    monkeypatch.setattr(publisher, "RETRY_LAST_S", 0.001)
    (folder / "d").write_text("in the way")
    path = folder / "d" / "w.spool"
    facts = FactPublisher(
        WORKER, Flaky(*["lost"] * 10_000), spool=SpoolFile(str(path), WORKER.owner)
    )
    for number in range(3):
        facts.publish(peer_error(number))
    (folder / "d").unlink()
    (folder / "d").mkdir()
    async with Running(facts):
        async with asyncio.timeout(10):
            while not path.exists():
                await asyncio.sleep(0.001)
        facts.publish(peer_error(3))
        assert [f.source.counter for f in in_spool(path)] == [1, 2, 3, 4]
