"""Guarantee: no acknowledged event is lost, and one decision is made per cause, while the network
between three servers, control planes and nodes is cut, or loses packets. Each server is a host of
its own, in a network namespace; that packets were really dropped is counted by the kernel."""

import asyncio
import contextlib
import os
import sys

import pytest

from tests.contract.servers import Trio, why_not
from tests.contract.test_three_servers import leader_of
from tests.real.elsewhere import Elsewhere
from tests.real.fleet import CLUSTER, TASK, Fleet
from tests.real.netns import Network, NotPermitted
from tests.real.test_failover import engine
from unicron.controlplane.core.digest import digest
from unicron.controlplane.runtime.jetstream import ApiRefused, NoAnswer, connect
from unicron.controlplane.runtime.leadership import Role
from unicron.controlplane.runtime.writer import NotLeading
from unicron.events import PeerErrorReported, TaskSubmitted, subjects
from unicron.worker_shim.identity import agent_identity
from unicron.worker_shim.transport import Transport

pytestmark = pytest.mark.real

SERVERS = ("s0", "s1", "s2")
#: Where the leader runs that is cut off; everybody else is here.
FAR, HERE = "far", "here"
STREAM = subjects.stream_name(CLUSTER)


@pytest.fixture(scope="module")
def network():
    if why := why_not():
        pytest.skip(why)
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(Network([*SERVERS, FAR, HERE]))
        except NotPermitted as why:
            pytest.skip(f"no network namespaces here: {why}")
        yield made


@pytest.fixture
def trio(network):
    """Begun anew for each test: servers that were cut off take long to find back."""
    hosts = tuple(network.hosts[name] for name in SERVERS)
    with contextlib.ExitStack() as stack:
        with network.inside(HERE):
            made = Trio(hosts, lambda number: network.command(SERVERS[number]))
            stack.callback(made.stop)
            made.start()
        yield made


class Spread(Fleet):
    async def start_on(self, network, host, name):
        """A control plane of that name begins on another host."""
        with (self.folder / f"{name}.err").open("ab") as file:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *network.command(host),
                *(sys.executable, "-m", "unicron.controlplane.runtime.service"),
                *("--cluster", CLUSTER, "--instance", name),
                *("--die-with-parent", str(os.getpid())),
                env={**os.environ, "UNICRON_NATS": self.url},
                stderr=file,
            )


@pytest.fixture
async def fleet(network, trio, tmp_path):
    """With this test's thread among them."""
    with network.inside(HERE):
        await all_there(trio.url)
        async with Spread(trio.url, tmp_path, replicas=3) as made:
            try:
                yield made
            finally:
                network.mend()


async def all_there(url):
    """Wait until the servers have found each other."""
    config = {"name": "probe", "subjects": ["probe"], "num_replicas": 3, "storage": "memory"}
    connection = await connect(url, name="test")
    while True:
        with contextlib.suppress(NoAnswer, ApiRefused):  # no suitable peers
            await connection.api("STREAM.CREATE.probe", config, dict)
            break
        await asyncio.sleep(0.1)
    await connection.close()


class Reporter:
    """Reports one fact after the other, as an agent would, for as long as it is entered."""

    def __init__(self, url, name, *, idle=False):
        self.name, self.sent, self._idle = name, 0, idle
        self.transport = Transport(agent_identity(CLUSTER, name, 1), url, lambda *_: None)

    async def __aenter__(self):
        self._running = asyncio.create_task(self.transport.run())
        self._reporting = asyncio.create_task(self._report())
        while not self.transport.is_connected:
            await asyncio.sleep(0.01)
        return self

    async def _report(self):
        while not self._idle:
            self.transport.publish(
                PeerErrorReported(
                    task="t",
                    worker=f"{self.name}/0",
                    incarnation=1,
                    generation=1,
                    iteration=self.sent,
                    phase="reduction",
                    error="closed by peer",
                )
            )
            self.sent += 1
            await asyncio.sleep(0.02)

    @property
    def acknowledged(self):
        return self.sent - self.transport.facts.waiting

    async def stop(self):
        """All that was reported is in the log."""
        self._reporting.cancel()
        await asyncio.wait({self._reporting})
        assert await self.transport.flush(30)

    async def __aexit__(self, *_):
        self._reporting.cancel()
        self._running.cancel()
        await asyncio.wait({self._reporting, self._running})


@contextlib.asynccontextmanager
async def reporters(url, count, one_at=None, *, idle=False):
    """Some, of which one is connected to the server `one_at`, if given. `idle`: they only could."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        while len(made) < count or (one_at and not any(at(r) == one_at for r in made)):
            name = f"{'i' if idle else 'r'}{len(made)}"
            made.append(await stack.enter_async_context(Reporter(url, name, idle=idle)))
        yield made


def at(reporter):
    """Address of the server that it is connected to."""
    return reporter.transport.server_address()[0]


async def all_go_on(fleet, made, facts=20):
    """Each gets so many more facts acknowledged than by now."""
    before = {reporter.name: reporter.acknowledged for reporter in made}
    await fleet.until(lambda: all(r.acknowledged >= before[r.name] + facts for r in made))


async def nothing_is_lost(fleet, made):
    """Everything that was reported stands in the log, once, in order; and the log holds."""
    for reporter in made:
        await reporter.stop()
    await fleet.check()
    for reporter in made:
        sources = [r.envelope.source for r in fleet.entries if r.envelope is not None]
        found = [source.counter for source in sources if source.who == f"agent/{reporter.name}"]
        assert found == list(range(1, reporter.sent + 1))


@pytest.mark.parametrize("still_reached", [False, True])
async def test_the_streams_leader_is_cut_off(network, fleet, still_reached):
    """From everybody; or only from the other servers, while clients reach it still: it takes what
    they send, answers their pings, and can't have anything stored. They have to leave it."""
    await fleet.start("a")
    await fleet.leads("a")
    await fleet.works("n1")
    leader = await leader_of(fleet.log, STREAM)
    async with (
        reporters(fleet.url, 3, one_at=network.hosts[leader]) as made,
        reporters(fleet.url, 1, one_at=network.hosts[leader], idle=True) as idle,
    ):
        await all_go_on(fleet, made)
        left = [r for r in [*made, *idle] if at(r) == network.hosts[leader]]
        network.cut(leader, [name for name in SERVERS if name != leader] if still_reached else None)
        await all_go_on(fleet, made)
        await fleet.works("n2")
        assert len(left) > 1
        await fleet.until(lambda: all(at(r) != network.hosts[leader] for r in left))
        assert network.mend() > 0
        await all_go_on(fleet, made)
        await fleet.works("n3")
        await nothing_is_lost(fleet, made)


async def test_the_leader_is_cut_off_from_all_servers(network, fleet):
    """The follower leads. What the old leader still wants to write is refused when the cut heals;
    it steps down, and follows."""
    async with contextlib.AsyncExitStack() as stack:
        far = stack.enter_context(Elsewhere(network, FAR))
        a = await stack.enter_async_context(far.entered(engine("a", fleet.url)))
        await fleet.leads("a")
        await fleet.works("n1")
        await fleet.start("b")
        await fleet.follows("b")
        network.cut(FAR)
        late = far.begin(a.submit(TASK, by="late"))
        await fleet.leads("b")
        await fleet.works("n2")
        assert a.leading  # as far as it knows
        assert not late.done()
        assert network.mend() > 0
        with pytest.raises(NotLeading):
            await late
        await fleet.until(lambda: a.role is Role.FOLLOWER and a.state.leader == "b")
        await fleet.works("n3")
        assert fleet.leaderships == ["a", "b"]
        assert not fleet.bodies(TaskSubmitted)
        await fleet.until(lambda: a.state.seq == fleet.state.seq)
        assert digest(a.state) == digest(fleet.state)
        await fleet.check()


async def test_one_packet_in_ten_is_lost(network, fleet):
    await fleet.start("a")
    await fleet.leads("a")
    async with engine("b", fleet.url) as b, reporters(fleet.url, 3) as made:
        await fleet.works("n1")
        network.lose(10)
        for number in (2, 3):
            await all_go_on(fleet, made, facts=5)
            await fleet.works(f"n{number}")
        assert network.mend() > 50
        await nothing_is_lost(fleet, made)
        await fleet.until(lambda: b.state.seq == fleet.state.seq)
        assert digest(b.state) == digest(fleet.state)
        assert fleet.state.unknown == 0
