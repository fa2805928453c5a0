"""The parts of the simulator: its loop, its connections, its log, the shrinking of runs."""

import asyncio
import random
import time
from pathlib import Path

import msgspec
import pytest

from unicron.controlplane.runtime.outcomes import Accepted, Conflict, Unknown
from unicron.controlplane.testing import kept, virtual
from unicron.controlplane.testing.disk import Disk
from unicron.controlplane.testing.instances import Instance
from unicron.controlplane.testing.network import ALL, Link, Weather
from unicron.controlplane.testing.options import Fault, NodeOptions, Options, Submission, task_spec
from unicron.controlplane.testing.seeds import options_of
from unicron.controlplane.testing.server import Server
from unicron.controlplane.testing.shrink import shrink
from unicron.controlplane.testing.simulation import run as run_simulation
from unicron.controlplane.testing.solver import PretendedSolver
from unicron.events import ConfigError, Envelope, Source, StoreBound, WorkerSlow, encode, event_id
from unicron.worker_shim.identity import agent_identity, worker_identity
from unicron.worker_shim.publisher import FactPublisher

FACT, CONTROL = "unicron.c.fact.n1", "unicron.c.control.node.n1"


def fact(counter):
    source = Source(who="agent/n1", incarnation=1, counter=counter)
    body = StoreBound(node="n1", address="127.0.0.1", store_port=counter)
    return event_id(source), encode(
        Envelope(id=event_id(source), source=source, written_at_ns=0, body=body)
    )


def decision(counter):
    source = Source(who="control/x", incarnation=1, counter=counter)
    body = WorkerSlow(task="t", worker="n1/0", incarnation=1, percent=100, evidence="")
    return event_id(source), encode(
        Envelope(id=event_id(source), source=source, written_at_ns=0, body=body, term=1)
    )


# --- A host's disk --------------------------------------------------------------------------------


def test_what_a_process_has_taken_outlives_it_and_its_agents():
    stored = []

    async def store(message_id, data):
        stored.append(message_id)
        return len(stored)

    async def main():
        disk = Disk()
        worker = worker_identity("c", "n1/0", 3, "t")
        agents = [agent_identity("c", "n1", life) for life in (1, 2, 3)]
        news = StoreBound(node="n1", address="", store_port=1)
        for identity in (worker, agents[0]):  # nobody delivers it while they live
            FactPublisher(identity, store, spool=disk.spool(identity)).publish(news)
        second, third = (FactPublisher(i, store, spool=disk.spool(i)) for i in agents[1:])
        disk.hand_over(second)
        second.publish(news)
        assert not disk.is_delivered and second.waiting == 3  # and it dies before it has begun
        disk.forget_undelivered()
        disk.hand_over(third)
        third.publish(news)
        delivery = asyncio.create_task(third.run())
        assert await third.flush(10) and disk.is_delivered
        disk.hand_over(third)
        assert third.waiting == 0
        delivery.cancel()

    virtual.run(main)
    assert stored == ["worker/n1/0:3:1", "agent/n1:1:1", "agent/n1:2:1", "agent/n1:3:1"]


# --- Time -----------------------------------------------------------------------------------------


def test_an_hour_passes_at_once_and_in_order():
    seen = []

    async def main():
        async def sleeper(seconds):
            await asyncio.sleep(seconds)
            seen.append((seconds, asyncio.get_running_loop().time()))

        await asyncio.gather(*(sleeper(s) for s in (3600, 0.5, 60)))
        return "done"

    began = time.monotonic()
    assert virtual.run(main) == "done"
    assert [s for s, _ in seen] == [0.5, 60, 3600]
    assert all(abs(at - s) < 1e-6 for s, at in seen)
    assert time.monotonic() - began < 60


def test_what_is_due_at_the_same_time_comes_in_the_order_in_which_it_was_asked_for():
    async def main():
        loop, got = asyncio.get_running_loop(), []
        for number in range(200):
            loop.call_at(5.0, got.append, number)
            loop.call_later(1 + number % 7, lambda: None)
        await asyncio.sleep(10)
        return got

    assert virtual.run(main) == list(range(200))


def test_waiting_for_what_never_comes_is_an_error():
    async def main():
        await asyncio.Event().wait()

    with pytest.raises(virtual.NothingLeft):
        virtual.run(main)


# --- Connections ----------------------------------------------------------------------------------


def test_messages_of_one_connection_keep_their_order_and_some_get_lost():
    async def main():
        weather = Weather(latency_us=1000, late_permille=300, late_ms=200, loss_permille=200)
        link, got = Link(weather, random.Random(1)), []
        for number in range(500):
            link.there(lambda n=number: got.append(n), loss=ALL)
        await asyncio.sleep(100)
        return got

    got = virtual.run(main)
    assert got == sorted(got)
    assert 350 < len(got) < 450


def test_what_is_under_way_when_a_connection_breaks_is_lost():
    async def main():
        link, done = Link(Weather(latency_us=1000), random.Random(1)), []

        def work():
            done.append("stored")
            link.cut()  # the answer can't come back any more

        with pytest.raises(TimeoutError):
            await link.request(work, 1.0)
        assert done == ["stored"]
        link.mend()
        assert await link.request(lambda: 7, 1.0) == 7

    virtual.run(main)


# --- The log --------------------------------------------------------------------------------------


def test_an_id_is_known_again_within_the_window_only():
    async def main():
        server = Server("c", lambda _: None, window_ms=2000)
        name, data = fact(1)
        first = server.store(FACT, data, name, None)
        await asyncio.sleep(1.5)
        again = server.store(FACT, data, name, None)
        await asyncio.sleep(1.0)  # a repetition doesn't prolong it
        late = server.store(FACT, data, name, None)
        return first, again, late

    first, again, late = virtual.run(main)
    assert (first.seq, again.seq, late.seq) == (1, 1, 2)
    assert (first.duplicate, again.duplicate, late.duplicate) == (False, True, False)


def an_instance(server, link):
    instance = Instance(
        server,
        "a",
        link,
        lambda _: PretendedSolver(lambda: (0, "good")),
        skew_ns=0,
        on_end=lambda *_: None,
    )
    instance.task.cancel()
    return instance.engine._log


def test_appends_are_fenced_and_unknown_ones_are_resolved():
    async def main():
        server = Server("c", lambda _: None, window_ms=2000)
        link = Link(Weather(), random.Random(1))
        log = an_instance(server, link)
        one, two = decision(1), decision(2)
        assert await log.append(CONTROL, one[1], one[0], fence=0) == Accepted(seq=1)
        assert await log.append(CONTROL, two[1], two[0], fence=0) == Conflict(last_seq=1)
        answered = link.back
        link.back = lambda call, loss=0.0: None  # no answer comes back
        outcome = await log.append(CONTROL, two[1], two[0], fence=1)
        assert isinstance(outcome, Unknown)
        link.back = answered
        assert await log.resolve(two[0], CONTROL, after=1) == Accepted(seq=2, duplicate=True)
        assert len(server.stream.entries) == 2

    virtual.run(main)


def test_entries_whose_delivery_was_lost_are_read_all_the_same():
    async def main():
        server = Server("c", lambda _: None, window_ms=2000)
        link = Link(Weather(loss_permille=10_000), random.Random(1))
        log = an_instance(server, link)
        tail, got = log.read(1), []
        for counter in range(1, 4):
            name, data = fact(counter)
            server.store(FACT, data, name, None)
            got.append((await anext(tail)).seq)
        return got

    assert virtual.run(main) == [1, 2, 3]


# --- Shrinking ------------------------------------------------------------------------------------


def faults(*at_ms):
    return tuple(Fault(at_ms=at, kind="kill") for at in at_ms)


BASE = Options(seed=1, nodes=(), tasks=(), faults=faults(*range(100)))


def test_only_the_faults_that_matter_are_left():
    needed = set(faults(13, 14, 77))
    tried = []

    def fails(options):
        tried.append(options)
        return needed <= set(options.faults)

    assert set(shrink(BASE, fails, 300).faults) == needed
    assert len(tried) < 150


def test_shrinking_stops_when_its_tries_are_used_up():
    tried = []

    def fails(options):
        tried.append(options)
        return len(options.faults) > 90

    least = shrink(BASE, fails, 5)
    assert len(tried) == 5
    assert fails(least)


def test_a_run_that_fails_without_any_fault_needs_none():
    assert shrink(BASE, lambda _: True, 300).faults == ()


# --- A quiet run ----------------------------------------------------------------------------------


def test_nothing_goes_wrong_by_itself():
    options = Options(
        seed=1,
        nodes=(NodeOptions(name="n1", devices=2), NodeOptions(name="n2", devices=2)),
        tasks=(Submission(spec=task_spec("gpt", iterations=20, micro_batches=8)),),
        faults_ms=1000,
    )
    outcome = run_simulation(options)
    assert not outcome.violations
    assert not outcome.stuck
    assert not outcome.state.incidents
    assert outcome.state.void == 0
    assert outcome.state.tasks["gpt"].phase == "completed"
    assert outcome.faults_fired == 0
    assert run_simulation(options).digest == outcome.digest


# --- Kept runs ------------------------------------------------------------------------------------


def test_a_run_is_read_as_it_was_written(tmp_path):
    options = options_of(3)
    assert kept.read(kept.write(str(tmp_path), options)) == options


@pytest.mark.parametrize(
    "change,complaint",
    [
        ({"faults": (Fault(at_ms=1, kind="flood"),)}, "no kind of fault 'flood'"),
        ({"faults_ms": -1}, "times are from 0"),
        ({"heal_ms": 10**18}, "times are from 0"),
        ({"nodes": (NodeOptions(name="n1", devices=-1),)}, "a node has 0 to 64 devices"),
        ({"nodes": (NodeOptions(name="n1", devices=1),) * 2}, "the same name"),
        ({"nodes": (NodeOptions(name="a/b.*", devices=1),)}, "names are letters"),
    ],
)
def test_a_run_that_cant_be_is_refused(tmp_path, change, complaint):
    path = kept.write(str(tmp_path), msgspec.structs.replace(options_of(3), **change))
    with pytest.raises(ConfigError) as caught:
        kept.read(path)
    assert complaint in caught.value.why


def test_a_run_with_a_misspelt_field_is_refused(tmp_path):
    path = Path(kept.write(str(tmp_path), options_of(3)))
    path.write_bytes(path.read_bytes().replace(b'"heal_ms"', b'"heal_mss"'))
    with pytest.raises(ConfigError, match="doesn't hold a simulated run") as caught:
        kept.read(str(path))
    assert "heal_mss" in caught.value.why
