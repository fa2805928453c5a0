"""Several engines on one log in memory: one leads, the others follow hot and take over."""

import anyio
import pytest

from tests.core.story import SPEC
from tests.runtime.pair import LEASE_MS, Pair
from unicron import events as ev
from unicron.controlplane.replay import span_names as names
from unicron.controlplane.runtime.leadership import Role
from unicron.controlplane.runtime.memory import AckLoss
from unicron.controlplane.runtime.observer import Observer
from unicron.controlplane.runtime.ports import Hold
from unicron.controlplane.runtime.unread import NewerLog
from unicron.controlplane.runtime.writer import NotLeading
from unicron.worker_shim import supervision


async def test_the_second_follows_hot_and_decides_nothing():
    pair = Pair()
    async with pair.running("a", "b"):
        a, b = pair.engines["a"], pair.engines["b"]
        await a.submit(SPEC, by="test")
        await pair.until(lambda: b.state == a.state and "gpt" in b.state.tasks)
        await anyio.sleep(3 * LEASE_MS / 1000)  # renewals keep it with a
        assert (a.role, b.role) == (Role.LEADER, Role.FOLLOWER)
        with pytest.raises(NotLeading, match="a leads since #1"):
            await b.submit(SPEC, by="test")
        assert pair.leaderships == [("a", 1)]
        await pair.agree()


async def test_when_the_leader_ends_in_order_the_other_one_leads_at_once():
    pair = Pair(lease_ms=3_600_000)
    async with pair.running("a", "b"):
        pair.scopes["a"].cancel()
        await pair.leads("b")
        assert [name for name, _ in pair.leaderships] == ["a", "b"]


class Raising:
    def __init__(self, error):
        self.error = error

    def __call__(self, *_):
        raise self.error


async def test_a_leader_that_raises_gives_the_lease_back_too(monkeypatch):
    pair = Pair(lease_ms=3_600_000)
    with pytest.raises(BaseExceptionGroup):
        async with pair.running("a"):
            broken = OSError("broken")
            monkeypatch.setattr(pair.engines["a"].monitor, "opinions", Raising(broken))
            await anyio.sleep(10)
    assert pair.stream.hold.holder == ""


async def test_a_leader_that_hangs_is_replaced_and_follows_when_it_goes_on():
    pair = Pair()
    async with pair.running("a", "b"):
        a, b = pair.engines["a"], pair.engines["b"]
        pair.logs["a"].freeze()
        await pair.leads("b")
        assert a.leading  # it knows nothing yet
        await b.submit(SPEC, by="test")
        pair.logs["a"].open.set()
        await pair.until(lambda: a.role is Role.FOLLOWER and not a.leading)
        await anyio.sleep(2 * LEASE_MS / 1000)
        assert b.leading
        await pair.agree()
        assert [name for name, _ in pair.leaderships] == ["a", "b"]
        pair.scopes["b"].cancel()
        await pair.leads("a")
        assert [name for name, _ in pair.leaderships] == ["a", "b", "a"]
        del pair.engines["b"]
        await pair.agree()


async def test_what_the_old_leader_still_had_to_write_is_refused():
    """It was decided before the other took over, and comes after."""
    pair = Pair()
    async with pair.running("a", "b") as group:
        a, b = pair.engines["a"], pair.engines["b"]
        refused = []

        async def late():
            with pytest.raises(NotLeading) as caught:
                await a.submit(SPEC, by="late")
            refused.append(caught.value)

        pair.logs["a"].freeze()
        group.start_soon(late)
        await pair.leads("b")
        pair.logs["a"].open.set()
        await pair.until(lambda: refused and a.role is Role.FOLLOWER)
        state = await pair.agree()
        assert "gpt" not in state.tasks
        assert state.void == 0
        assert b.leading


@pytest.mark.parametrize("loss", [AckLoss.STORED, AckLoss.NOT_STORED])
async def test_leadership_whose_answer_got_lost_is_taken_once(loss):
    pair = Pair()
    pair.stream.lose_ack(loss)
    async with pair.running("a"):
        await pair.leads("a")
        await pair.engines["a"].submit(SPEC, by="test")
        assert len(pair.leaderships) == 1
        await pair.agree()


async def test_two_that_begin_at_once_make_one_leader():
    pair = Pair()
    async with anyio.create_task_group() as group:
        group.start_soon(pair.begin, group, "a")
        group.start_soon(pair.begin, group, "b")
        await pair.until(lambda: len(pair.engines) == 2)
        await pair.until(lambda: any(e.leading for e in pair.engines.values()))
        await anyio.sleep(2 * LEASE_MS / 1000)
        assert sorted(e.role for e in pair.engines.values()) == [Role.FOLLOWER, Role.LEADER]
        assert len(pair.leaderships) == 1
        group.cancel_scope.cancel()


async def test_a_candidate_that_is_refused_reads_on_and_tries_again():
    """The old leader's last append comes just before."""
    pair = Pair()
    async with pair.running("a", "b"):
        b = pair.engines["b"]
        term = b.state.term
        pair.logs["a"].freeze()
        pair.logs["b"].freeze()
        pair.stream.hold = Hold("", pair.stream.hold.revision + 1)
        pair.write("control/x", ev.AlarmRaised(code="E", message="late"), term)
        pair.logs["b"].open.set()
        await pair.leads("b")
        assert pair.leaderships[-1][1] == len(pair.stream.entries) == 3


async def test_a_lost_lease_is_made_again_by_the_leader():
    """Its keeper began anew."""
    pair = Pair()
    async with pair.running("a", "b"):
        pair.stream.hold = Hold()
        await pair.until(lambda: pair.stream.hold.holder.startswith("a/"))
        await anyio.sleep(2 * LEASE_MS / 1000)
        assert pair.leaderships == [("a", 1)]


async def test_a_rival_that_knows_no_lease_is_answered_with_a_new_term():
    """Such as an older version: whoever holds the lease leads again."""
    pair = Pair()
    async with pair.running("a"):
        a = pair.engines["a"]
        taken = ev.LeadershipTaken(
            cluster="c", instance="b", logic_version=1, fold_version=1, version=""
        )
        pair.write("control/b", taken)
        await pair.until(lambda: len(pair.leaderships) == 3 and a.leading)
        assert [name for name, _ in pair.leaderships] == ["a", "b", "a"]
        await a.submit(SPEC, by="test")
        await pair.agree()


async def test_the_next_life_of_the_leader_takes_over_at_once():
    """As when a service manager starts it again."""
    pair = Pair(lease_ms=3_600_000)
    async with pair.running("a") as group:
        first = pair.engines["a"]
        await pair.begin(group, "a")
        await pair.leads("a")
        assert pair.engines["a"] is not first
        assert [name for name, _ in pair.leaderships] == ["a", "a"]
        await pair.until(lambda: first.state.term == pair.leaderships[-1][1])
        await pair.until(lambda: not first.leading)


async def test_nodes_that_were_silent_meanwhile_get_their_full_grace():
    """Unknown is not lost: nothing is said of a node before its grace is over."""
    pair = Pair()
    async with pair.running("a", "b"):
        body = ev.AgentStarted(
            node=ev.NodeId("n1"), address="h", store_port=1, devices=1, device_kind="cpu"
        )
        pair.agent_says(body)
        b = pair.engines["b"]
        await pair.until(lambda: "n1" in b.state.nodes and b.state.nodes["n1"].status == "healthy")
        pair.logs["a"].freeze()
        heard = []
        grace = b.monitor.grace
        b.monitor.grace = lambda now: (heard.append(now), grace(now))
        await pair.leads("b")
        assert len(heard) == 1
        assert b.monitor.opinions(b.state, heard[0] + 100) == []


async def test_whoever_cannot_read_the_decisions_follows_but_does_not_lead():
    pair = Pair()
    with pytest.raises(BaseExceptionGroup) as caught:
        async with pair.running("a", "b"):
            term = pair.engines["a"].state.term
            pair.write("control/a", ev.AlarmRaised(code="E", message="x"), term)
            entry = pair.stream.entries.pop()
            newer = entry.data.replace(b"alarm.raised.v1", b"alarm.raised.v9")
            pair.stream.write_raw(entry.subject, newer)
            last = len(pair.stream.entries)
            b = pair.engines["b"]
            await pair.until(lambda: b.state.seq == last)
            await anyio.sleep(0.1)
            assert b.role is Role.FOLLOWER
            pair.logs["a"].freeze()
            await anyio.sleep(10)
    assert caught.group_contains(NewerLog)
    assert pair.leaderships == [("a", 1)]


async def test_what_the_old_leader_still_says_has_no_effect_once_the_new_one_has_ordered():
    """It hangs at the log, but goes on saying its open orders again; the agent refuses them."""
    pair = Pair()
    async with pair.running("a", "b"):
        a, b = pair.engines["a"], pair.engines["b"]
        pair.agent_says(
            ev.AgentStarted(
                node=ev.NodeId("n1"), address="h", store_port=1, devices=2, device_kind="cpu"
            )
        )
        await a.submit(SPEC, by="test")
        await pair.until(lambda: len(pair.orders) == 2)
        first = pair.orders
        await pair.until(lambda: b.state.seq == a.state.seq)
        pair.logs["a"].freeze()
        await pair.leads("b")
        await pair.until(lambda: len(pair.orders) == 4)  # it orders anew what nobody confirmed
        table = supervision.Table(node=ev.NodeId("n1"), devices=2, agent=ev.Incarnation(1))
        for order in pair.orders:
            table, actions = hear(table, order)
            assert not any(isinstance(action, supervision.Refuse) for action in actions)
        pair.bus.orders.clear()
        await pair.until(lambda: {r.seq for r in pair.bus.orders} >= {r.seq for r in first})
        assert a.leading
        for order in pair.bus.orders:
            if order.envelope.term == first[0].envelope.term:
                after, (refused,) = hear(table, order)
                assert (after, type(refused)) == (table, supervision.Refuse)


def hear(table, order):
    """What the agent does about a start order."""
    envelope = order.envelope
    return supervision.start_ordered(table, order.seq, envelope.term, envelope.body)


class Heard:
    """Telemetry that only takes gauges."""

    def __init__(self):
        self.gauges = {}

    def gauge(self, name, unit, read):
        self.gauges[name] = read

    def took(self, *_):
        pass


async def test_the_metric_tells_who_leads_and_only_the_leader_tells_of_incidents():
    pair, heard = Pair(), Heard()
    observer = Observer(heard, cluster="c", birth="x")
    async with anyio.create_task_group() as group:
        await pair.begin(group, "a", observer.see)
        await pair.begin(group, "b")
        group.start_soon(observer.run, pair.engines["a"], pair.logs["a"])
        await pair.until(lambda: names.LEADING in heard.gauges and observer._leading)
        assert heard.gauges[names.LEADING]() == 1
        pair.logs["a"].freeze()
        await pair.leads("b")
        pair.logs["a"].open.set()
        await pair.until(lambda: heard.gauges[names.LEADING]() == 0)
        await pair.until(lambda: not observer._leading)
        pair.scopes["b"].cancel()
        await pair.until(lambda: observer._leading)
        assert not pair.engines["b"].leading
        group.cancel_scope.cancel()
    assert heard.gauges[names.LEADING]() == 0
