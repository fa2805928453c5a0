"""Guarantee: one decision per cause, whoever leads. Control planes as processes of their own on a
real server; the leader is killed, stopped, ended, cut off; the server dies."""

import asyncio
import contextlib
import json
import re
import signal
import sys

import pytest

from tests.contract.servers import Trio, why_not
from tests.real.fleet import CLUSTER, TASK, Fleet
from tests.real.wire import Wire
from unicron.controlplane.core.digest import digest
from unicron.controlplane.replay import IncidentBook
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.jetstream import JetStreamLog, connect, lease
from unicron.controlplane.runtime.leadership import Role
from unicron.controlplane.runtime.natsbus import NatsBus
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.controlplane.runtime.solver import ChildSolver
from unicron.controlplane.runtime.writer import NotLeading
from unicron.events import TaskSubmitted, subjects

pytestmark = pytest.mark.real


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path / "nats", CLUSTER) as made:
        yield made


@pytest.fixture
async def fleet(server, tmp_path):
    async with Fleet(server.url, tmp_path) as made:
        yield made


async def pair(fleet):
    """Process a leads and has decided something, b follows hot."""
    await fleet.start("a")
    await fleet.leads("a")
    await fleet.works("n1")
    await fleet.start("b")
    await fleet.follows("b")


async def test_the_leader_is_killed(fleet):
    await pair(fleet)
    fleet.signal("a", signal.SIGKILL)
    await fleet.leads("b")
    await fleet.works("n2")
    assert fleet.leaderships == ["a", "b"]
    await fleet.end("b")
    await fleet.check()


async def test_the_leader_is_stopped_and_goes_on(fleet):
    """It follows then, and leads again once the other has ended."""
    await pair(fleet)
    fleet.signal("a", signal.SIGSTOP)
    await fleet.leads("b")
    await fleet.works("n2")
    fleet.signal("a", signal.SIGCONT)
    await fleet.follows("a")
    await fleet.works("n3")
    assert fleet.leaderships == ["a", "b"]
    await fleet.end("b")
    await fleet.leads("a")
    await fleet.works("n4")
    await fleet.end("a")
    await fleet.check()


async def test_the_leader_is_stopped_again_and_again(fleet):
    """Each in turn, with work all the time; all three agree in the end."""
    await pair(fleet)
    await fleet.start("c")
    await fleet.follows("c")
    for turn in range(3):
        leader = fleet.state.leader
        fleet.signal(leader, signal.SIGSTOP)
        await fleet.until(lambda leader=leader: fleet.state.leader != leader)
        fleet.node(f"m{turn}")
        fleet.signal(leader, signal.SIGCONT)
        await fleet.follows(leader)
        await fleet.works(f"w{turn}")
    for name in sorted(fleet.processes):
        await fleet.end(name)
    assert len(fleet.leaderships) >= 4
    await fleet.check()


async def test_the_leader_ends_in_order(fleet):
    """The lease is given back, so nobody waits until it has run out."""
    await pair(fleet)
    assert IncidentBook(fleet.entries).cluster().followers == ("b",)
    await fleet.end("a")
    held = await fleet.log.lease().look()
    assert held.holder.partition("/")[0] in ("", "b")
    await fleet.leads("b")
    assert IncidentBook(fleet.entries).cluster().followers == ()
    await fleet.end("b")
    assert (await fleet.log.lease().look()).holder == ""
    await fleet.check()


async def test_two_begin_at_once(fleet):
    await asyncio.gather(fleet.start("a"), fleet.start("b"))
    await fleet.until(lambda: fleet.state.term)
    await fleet.works("n1")
    first = fleet.state.leader
    await fleet.follows("b" if first == "a" else "a")
    assert fleet.leaderships == [first]
    beside = f"STREAM.INFO.{subjects.text_stream(CLUSTER)}"  # made once, by either of them
    assert (await fleet.log.connection.api(beside, None, dict))["state"]["messages"] == 0
    await fleet.end(first)
    await fleet.until(lambda: len(fleet.leaderships) == 2)
    await fleet.check()


async def test_a_leader_that_was_killed_and_begins_again_at_once_leads_on(fleet):
    """As a service manager starts it: the same name needn't wait for its own lease."""
    await pair(fleet)
    fleet.signal("a", signal.SIGSTOP)  # so that b's wait has begun, too
    fleet.signal("a", signal.SIGKILL)
    await fleet.processes["a"].wait()
    await fleet.start("a")
    await fleet.until(lambda: len(fleet.leaderships) == 2)
    await fleet.works("n2")
    await fleet.check()


async def test_the_server_is_killed_and_begins_again(fleet, server):
    """Nobody takes over: the leader could not renew, and the others could not see it."""
    await pair(fleet)
    await server.kill()
    await asyncio.sleep(3 * lease.SINGLE_MS / 1000)
    await server.start()
    await fleet.works("n2")
    await asyncio.sleep(1.5 * lease.SINGLE_MS / 1000)
    assert fleet.leaderships == ["a"]
    await fleet.end("a")
    await fleet.leads("b")
    await fleet.works("n3")
    await fleet.check()


async def test_the_leader_and_the_server_are_killed(fleet, server):
    await pair(fleet)
    fleet.signal("a", signal.SIGKILL)
    await server.kill()
    await server.start()
    await fleet.leads("b")
    await fleet.works("n2")
    await fleet.check()


# --- As people start them -------------------------------------------------------------------------


async def up(url, *arguments):
    """`unicron up` on the server; what it says goes to its pipes."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unicron.controlplane.cli", "up", "--cluster", CLUSTER),
        *("--nats", url, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_up_twice_says_who_leads_and_takes_over(server):
    first = await up(server.url, "--instance", "a")
    assert await first.stderr.readline() == b"control plane a leads cluster fleet\n"
    second = await up(server.url, "--json")
    try:
        assert re.fullmatch(
            rb"following; control/a leads since #\d+\n", await second.stderr.readline()
        )
        told = json.loads(await second.stdout.readline())
        name = told["instance"]
        assert told == {
            "schema": "unicron.up.role/1",
            "role": "follower",
            "instance": name,
            "leader": "a",
            "term": told["term"],
        }
        first.send_signal(signal.SIGTERM)
        said = (await first.communicate())[1].decode().splitlines()
        assert said[0] == "ending on SIGTERM"
        assert (
            await second.stderr.readline() == f"control plane {name} leads cluster fleet\n".encode()
        )
        now = json.loads(await second.stdout.readline())
        assert (now["role"], now["leader"], now["term"] > told["term"]) == ("leader", name, True)
    finally:
        second.send_signal(signal.SIGTERM)
        _, said = await second.communicate()
    assert second.returncode == 0, said


async def test_up_refuses_a_name_that_cannot_be_one(server):
    refused = await up(server.url, "--instance", "a/b")
    _, said = await refused.communicate()
    assert refused.returncode == 2
    assert b"E-CONFIG-INSTANCE" in said


# --- A network between them -----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def engine(name, url):
    """An instance in this process."""
    connection = await connect(url, name=f"control/{name}")
    log = await JetStreamLog.open(connection, CLUSTER, attempt_s=1.0)
    solver = ChildSolver()
    made = Engine(log, NatsBus(connection, CLUSTER), instance=name, solver=solver)
    task = asyncio.create_task(made.run())
    try:
        while not (made.leading or made.follows):
            await made.moved()
        yield made
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await log.close()
        await connection.close()
        await solver.aclose()


@pytest.mark.parametrize("how", ["silent", "closed"])
async def test_the_leader_is_cut_off(fleet, server, how):
    """What it still wants to write comes too late: it is refused by the fence, the old leader
    follows, and holds the same state as the new one."""
    async with (
        Wire(server.url) as wire,
        engine("a", wire.url) as a,
        engine("b", server.url) as b,
    ):
        await fleet.works("n1")
        assert (a.leading, b.leading) == (True, False)
        wire.cut(silently=how == "silent")
        assert wire.is_cut
        late = asyncio.create_task(a.submit(TASK, by="late"))
        await fleet.leads("b")
        await fleet.works("n2")
        await wire.mend()
        with pytest.raises(NotLeading):
            await late
        await fleet.until(lambda: a.role is Role.FOLLOWER and a.state.term == b.state.term)
        await fleet.works("n3")
        assert fleet.leaderships == ["a", "b"]
        assert not fleet.bodies(TaskSubmitted)
        await fleet.until(lambda: a.state.seq == b.state.seq == fleet.state.seq)
        assert digest(a.state) == digest(b.state) == digest(fleet.state)
    await fleet.check()


async def test_a_follower_that_is_cut_off_takes_nothing_over(fleet, server):
    """It can't see the lease; its wait for the leader begins anew when it can."""
    async with (
        Wire(server.url) as wire,
        engine("a", server.url) as a,
        engine("b", wire.url) as b,
    ):
        wire.cut(silently=True)
        await asyncio.sleep(2 * lease.SINGLE_MS / 1000)
        await wire.mend()
        await fleet.works("n1")
        last = fleet.state.seq
        await fleet.until(lambda: b.state.seq >= last)
        assert (a.role, b.role) == (Role.LEADER, Role.FOLLOWER)
        assert fleet.leaderships == ["a"]


# --- Three servers --------------------------------------------------------------------------------


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
async def test_a_server_of_three_dies_and_then_the_leader(tmp_path):
    """Renewals stall while the servers elect another one to lead the stream; that deposes nobody.
    The control plane's leader dies then, and the other leads."""
    trio = Trio().start()
    try:
        async with Fleet(trio.url, tmp_path, replicas=3) as fleet:
            await pair(fleet)
            info = await fleet.log.connection.api(f"STREAM.INFO.UNICRON_{CLUSTER}", None, dict)
            trio.kill(info["cluster"]["leader"])
            await fleet.works("n2")
            assert fleet.leaderships == ["a"]
            fleet.signal("a", signal.SIGKILL)
            await fleet.leads("b")
            await fleet.works("n3")
            await fleet.end("b")
            assert fleet.leaderships == ["a", "b"]
            await fleet.check()
    finally:
        trio.stop()
