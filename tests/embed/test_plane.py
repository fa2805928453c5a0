"""The embedded control plane as a context: what it gives, what ends it, that nothing stays."""

import asyncio
import contextlib
import os
from pathlib import Path

import anyio
import msgspec
import pytest

from tests.embed.host import TASK, Host, World, nothing_left
from tests.runtime.collectors import Collector, values
from unicron import controlplane as cp
from unicron import events as ev
from unicron.controlplane.core.invariants import Violation
from unicron.controlplane.runtime import watchman
from unicron.controlplane.runtime.natsserver import NatsServer


@pytest.fixture
async def world():
    made = World()
    with nothing_left(made.stream):
        yield made


async def test_it_leads_once_it_is_entered(world):
    async with world.plane(instance="here") as plane:
        assert plane.leadership == cp.Leadership(
            leading=True, instance="here", leader="here", term=plane.state.term
        )
        assert plane.state.term == 1


async def test_a_task_comes_to_its_end_on_nodes_of_the_host(world):
    host = Host("n1", "n2")
    with nothing_left(world.stream):
        async with world.plane(host) as plane:
            at = await plane.submit(TASK, by="a test")
            state = await plane.until(lambda s: s.tasks["gpt"].phase == "completed")
            report = cp.Replayer(await plane.history()).verify()
    assert state.tasks["gpt"].submitted == at
    assert world.bodies(ev.TaskSubmitted)[0].by == "a test"
    assert sorted(host.launched) == ["n1/0", "n1/1", "n2/0", "n2/1"]
    assert report.verified
    assert report.redecided > 5
    assert not report.gaps
    assert not report.duplicates


async def test_a_name_is_taken_once(world):
    async with world.plane() as plane:
        await plane.submit(TASK)
        with pytest.raises(ValueError, match=r"gpt is in the log already"):
            await plane.submit(TASK)


async def test_what_nothing_keeps_apart_cannot_be_given_back(world):
    async with world.plane(Host("n1")) as plane:
        await plane.until(lambda s: "n1" in s.nodes and s.nodes["n1"].status == "healthy")
        with pytest.raises(ValueError, match="nothing keeps n1 apart"):
            await plane.give_back("n1", reason="repaired")


async def test_what_plans_rest_on_is_given_or_changed_while_it_runs(world):
    few = ev.Planning(quotas=(ev.Quota(tenant="lab", max_devices=1),))
    async with world.plane(planning=few) as plane:
        await plane.until(lambda s: s.planning == few)
        assert await plane.configure(few) is None
        at = await plane.configure(ev.Planning(node_mtbf_ms=10**9), by="a test")
        assert plane.state.seq >= at
        with pytest.raises(ValueError, match="repair_ms is 5"):
            await plane.configure(ev.Planning(repair_ms=5))
    assert [body.by for body in world.bodies(ev.ClusterConfigured)] == [
        "control/embedded",
        "a test",
    ]
    with pytest.raises(ev.ConfigError, match=r"planning\.repair_ms is 5"):
        world.plane(planning=ev.Planning(repair_ms=5))


async def test_events_come_after_they_were_folded_and_end_with_the_plane(world):
    seen = []

    async def read(plane, **since):
        async for event in plane.events(**since):
            seen.append(event.seq)
            assert plane.state.seq >= event.seq

    async with world.plane() as plane:
        readers = [
            asyncio.create_task(read(plane)),
            asyncio.create_task(read(plane, after=0)),
        ]
        await plane.submit(TASK)
        await plane.until(lambda s: s.plan.failures or s.seq >= 4)
    await asyncio.gather(*readers)
    assert seen.count(1) == 1
    assert seen.count(2) == 2


async def test_a_snapshot_stays_as_it_is(world):
    async with world.plane() as plane:
        before = plane.state
        await plane.submit(TASK)
        assert not before.tasks
        assert plane.state.tasks
        with pytest.raises(AttributeError):
            plane.state.seq = 0


async def test_waiting_has_a_limit(world):
    async with world.plane() as plane:
        with pytest.raises(TimeoutError, match=r"didn't come within 0\.05 s"):
            await plane.until(lambda s: "n1" in s.nodes, limit_s=0.05)


async def test_it_has_to_be_entered(world):
    with pytest.raises(RuntimeError, match="async with"):
        _ = world.plane().state


async def test_traces_go_to_the_collector_that_the_variables_name(world, monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        host = Host("n1", "n2")
        async with world.plane(host) as plane:
            await plane.submit(msgspec.structs.replace(TASK, iterations=1_000_000))
            await plane.until(lambda s: len(s.tasks["gpt"].committed) == 4)
            host.crew.kill("n2/1")
            state = await plane.until(lambda s: any(i.resolved for i in s.incidents.values()))
    (incident,) = state.incidents
    assert incident in {values(s.attributes).get("unicron.incident.id") for s in collector.spans()}


# --- What ends it -----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def beside(plane):
    """The plane, entered in a task of its own; what is yielded leaves it."""
    entered, leave = asyncio.Event(), asyncio.Event()

    async def run():
        async with plane:
            entered.set()
            await leave.wait()

    task = asyncio.create_task(run())
    await entered.wait()

    async def end():
        leave.set()
        await task

    yield end
    await end()


async def test_whoever_follows_is_entered_too_and_leads_when_the_leader_ends(world):
    first, second = world.plane(Host("n1"), instance="a"), world.plane(Host("n2"), instance="b")
    async with beside(first) as end:
        await first.submit(TASK)
        async with second:
            assert second.leadership == cp.Leadership(
                leading=False, instance="b", leader="a", term=first.state.term
            )
            assert "gpt" in second.state.tasks
            with pytest.raises(cp.NotLeading, match="a leads since #1"):
                await second.submit(TASK)
            await first.until(lambda s: "n1" in s.nodes)
            assert "n2" not in first.state.nodes
            await end()
            await second.until(lambda _: second.leadership.leading)
            await second.until(lambda s: "n2" in s.nodes)
            with pytest.raises(ValueError, match="gpt is in the log already"):
                await second.submit(TASK)


async def test_a_rival_that_knows_no_lease_gets_no_second_term(world):
    """Such as an older version. Nothing in the block ends, and nobody is stopped."""
    async with world.plane(Host("n1"), instance="a") as plane:
        await plane.until(lambda s: "n1" in s.nodes and s.nodes["n1"].status == "healthy")
        world.take_over()
        await plane.until(lambda _: len(world.bodies(ev.LeadershipTaken)) == 3)
        await plane.until(lambda _: plane.leadership.leading)
        await plane.submit(TASK)
        assert not world.bodies(ev.AgentStopped)


async def test_a_violated_invariant_ends_the_block(world, monkeypatch):
    def violated(before, after, recorded):
        return (Violation(invariant="events_come_in_order", what="planted", seq=recorded.seq),)

    with pytest.raises(cp.InvariantViolated, match="planted"):
        async with world.plane(Host("n1")):
            monkeypatch.setattr(watchman, "step_violations", violated)
            await asyncio.sleep(30)


class Away(cp.MemoryLog):
    """Reads nothing, as behind a broken network."""

    async def last_seq(self):
        raise ev.LogUnreachable("no answer")


class Mute(cp.MemoryLog):
    """Stores nothing, and says so."""

    async def append(self, subject, data, event_id, *, fence):
        raise ev.LogUnreachable("no answer")

    async def resolve(self, event_id, subject, *, after):
        raise ev.LogUnreachable("no answer")


@pytest.mark.parametrize("kind", [Away, Mute])
async def test_a_log_that_does_not_answer_is_said_within_the_limit(world, kind):
    with pytest.raises(ev.LogUnreachable, match=r"nor follows after 0\.2 s"):
        async with world.plane(log=kind(world.stream), start_limit_s=0.2):
            pytest.fail("it can't be entered")


class Tearing(cp.MemoryLog):
    """Its tails break when told to."""

    torn: asyncio.Event

    def read(self, from_seq):
        whole = super().read(from_seq)
        pull = type(whole).__anext__

        class Tail(type(whole)):
            async def __anext__(tail):
                entry = await pull(tail)
                if self.torn.is_set():
                    raise ev.LogBroken("a hole", first_wrong=entry.seq)
                return entry

        whole.__class__ = Tail
        return whole


async def test_a_log_that_breaks_ends_the_block(world):
    log = Tearing(world.stream)
    log.torn = asyncio.Event()
    with pytest.raises(ev.LogBroken, match="a hole"):
        async with world.plane(log=log) as plane:
            log.torn.set()
            await plane.submit(TASK)


async def test_a_scheduler_that_fails_ends_the_block_and_its_workers(world):
    host = Host("n1")
    with pytest.raises(OSError, match="the queue broke"):
        async with world.plane(host) as plane:
            await plane.submit(TASK)
            await plane.until(lambda s: len(s.tasks["gpt"].committed) == 2)
            host.changes.put_nowait(OSError("the queue broke"))
            await asyncio.sleep(30)
    assert sorted(name for name, _ in host.stopped) == ["n1/0", "n1/1"]
    assert not any(worker.alive for worker in host.crew.workers.values())


async def test_the_blocks_own_error_comes_out_as_it_is(world):
    mine = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with world.plane(Host("n1")):
            raise mine
    assert caught.value is mine


async def test_a_limit_around_it_stops_the_workers_too(world):
    host = Host("n1", micro_batch_ms=50)
    with anyio.CancelScope() as scope:
        async with world.plane(host) as plane:
            await plane.submit(TASK)
            await plane.until(lambda s: len(s.tasks["gpt"].members) == 2)
            scope.cancel()  # as anyio.fail_after() around the block does
            await asyncio.sleep(30)
    assert scope.cancelled_caught
    assert sorted(name for name, _ in host.stopped) == ["n1/0", "n1/1"]
    assert [body.node for body in world.bodies(ev.AgentStopped)] == ["n1"]


async def test_cancelling_the_hosts_task_ends_it(world):
    host, entered = Host("n1"), asyncio.Event()

    async def run():
        async with world.plane(host) as plane:
            await plane.until(lambda s: "n1" in s.nodes)
            entered.set()
            await asyncio.sleep(30)

    task = asyncio.create_task(run())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [body.node for body in world.bodies(ev.AgentStopped)] == ["n1"]


# --- Where the log is -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options,complaint",
    [
        ({"nats": "nats://x"}, "it has an address too"),
        ({"log": cp.MemoryLog(cp.MemoryStream("other"))}, "it is the log of other"),
        ({"data": Path()}, "folder of a private server"),
        ({"approval_limit_s": 60.0}, "at most 4"),
        ({"approval_limit_s": 0.0}, "at most 4"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(options, complaint):
    with pytest.raises(ev.ConfigError, match=complaint):
        cp.ControlPlane("c", **{"log": cp.MemoryLog(cp.MemoryStream("c")), **options})


def test_a_cluster_needs_a_name_that_can_be_one():
    with pytest.raises(ev.ConfigError, match="can't be the name of a cluster"):
        cp.ControlPlane("a b")


async def test_an_address_where_nobody_is_is_named():
    with pytest.raises(ev.ConfigError, match=r"127\.0\.0\.1:1 "):
        async with cp.ControlPlane("c", nats="nats://127.0.0.1:1"):
            pytest.fail("it can't be entered")


def _children():
    with contextlib.suppress(ProcessLookupError):
        return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return []


@pytest.mark.real
async def test_a_private_server_ends_with_it_and_its_end_ends_the_block(tmp_path):
    before = _children()
    async with cp.ControlPlane("c", data=tmp_path) as plane:
        assert "@127.0.0.1:" in plane.agents_url
        assert len(_children()) > len(before)
    assert _children() == before
    assert (tmp_path / "store").is_dir()
    with pytest.raises(ev.LogUnreachable, match="nats-server has ended"):
        async with cp.ControlPlane("c", data=tmp_path) as plane:
            server = (tmp_path / "nats-server.log").read_text()
            pids = {int(p) for p in _children()} - {int(p) for p in before}
            assert server
            for pid in pids:
                if "nats-server" in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, 9)
            await asyncio.sleep(30)
    assert _children() == before


@pytest.mark.real
async def test_two_on_one_server_and_the_later_one_follows(tmp_path):
    server = NatsServer(tmp_path, "c")
    async with server:
        first = cp.ControlPlane("c", nats=server.url, instance="a")
        async with beside(first) as end:
            await first.submit(TASK)
            second = cp.ControlPlane("c", nats=server.url, instance="b")
            async with second:
                assert second.leadership.leader == "a"
                assert not second.leadership.leading
                assert "gpt" in second.state.tasks
                assert second.agents_url == server.url
                await end()
                await second.until(lambda _: second.leadership.leading)


@pytest.mark.real
async def test_nodes_of_a_host_that_leads_no_more_are_heard_by_the_leader(tmp_path):
    """Its beats go over the server: the other control plane takes nobody for lost."""
    server = NatsServer(tmp_path, "c")
    async with server:
        host = Host("n1", micro_batch_ms=20)
        async with cp.ControlPlane("c", nats=server.url, instance="a", scheduler=host) as first:
            await first.submit(msgspec.structs.replace(TASK, iterations=1_000_000))
            await first.until(lambda s: "gpt" in s.tasks and len(s.tasks["gpt"].committed) == 2)
            async with cp.ControlPlane("c", nats=server.url, instance="b") as second:
                election = first._engine._election
                await election.give_back()
                await second.until(lambda _: second.leadership.leading)
                await first.until(lambda _: not first.leadership.leading)
                await asyncio.sleep(4)  # longer than grace and silence
                assert second.state.nodes["n1"].status == "healthy"
                assert not second.state.incidents
                assert first.state.term == second.state.term
