"""The real engine on the in-memory log: leads, decides as read back. Several: test_failover."""

import anyio
import pytest

from tests.core.story import SPEC
from unicron import events as ev
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.memory import MemoryBus, MemoryLog, MemoryStream
from unicron.controlplane.runtime.ports import Solved, Solver, SolverFailed
from unicron.controlplane.runtime.unread import NewerLog
from unicron.events import codec, subjects
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.problem import PlanProblem

_LIMIT_S = 20.0


class _Planner(Solver):
    """Answers at once, or fails as told."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = 0
        self.asked = 0

    async def warm(self) -> None:
        pass

    async def solve(self, problem: PlanProblem) -> Solved:
        self.asked += 1
        if self.fails:
            self.fails -= 1
            raise SolverFailed("told to fail")
        return Solved(dynamic_plan(problem))


class _World:
    def __init__(self) -> None:
        self.stream = MemoryStream("c")
        self.bus = MemoryBus()
        self.planner = _Planner()
        self.counters: dict[tuple[str, int], int] = {}
        self.engine = self.instance("a")

    def instance(self, name: str) -> Engine:
        return Engine(MemoryLog(self.stream), self.bus, instance=name, solver=self.planner)

    def write(self, subject: str, who: str, body: ev.AnyEvent, term: int = 0) -> None:
        key = (who, 1)
        self.counters[key] = self.counters.get(key, 0) + 1
        source = ev.Source(who=who, incarnation=ev.Incarnation(1), counter=self.counters[key])
        envelope = ev.Envelope(
            id=ev.event_id(source), source=source, written_at_ns=0, body=body, term=ev.Term(term)
        )
        self.stream.write_raw(subject, codec.encode(envelope))

    def join(self, node: str) -> None:
        body = ev.AgentStarted(
            node=ev.NodeId(node),
            address="127.0.0.1",
            store_port=1,
            devices=2,
            device_kind="cpu",
        )
        self.write(subjects.fact("c", ev.NodeId(node)), f"agent/{node}", body)

    async def begin(self) -> None:
        """Somebody leads, two nodes have joined, the task is handed in."""
        await self.until(lambda s: s.term)
        self.join("n1")
        self.join("n2")
        await self.until(lambda s: len(s.nodes) == 2)
        await self.engine.submit(SPEC, by="test")

    async def until(self, holds: object, engine: Engine | None = None) -> ClusterState:
        engine = engine or self.engine
        with anyio.fail_after(_LIMIT_S):
            while not holds(engine.state):  # type: ignore[operator]
                await anyio.sleep(0.005)
        return engine.state


def _ordered(state: ClusterState) -> bool:
    return sorted(state.workers) == ["n1/0", "n1/1", "n2/0", "n2/1"]


async def test_it_leads_and_decides_up_to_the_start_of_all_workers():
    world = _World()
    async with anyio.create_task_group() as group:
        group.start_soon(world.engine.run)
        await world.begin()
        state = await world.until(_ordered)
        group.cancel_scope.cancel()
    assert state.leader == "a"
    assert state.void == 0
    assert world.planner.asked >= 1


async def test_a_request_about_a_state_that_is_not_known_is_answered_and_asked_again():
    """As of one that began from a snapshot without it."""
    world = _World()
    forgotten = []

    def forget(state: ClusterState, recorded: ev.Recorded) -> None:
        body = recorded.envelope.body if recorded.envelope is not None else None
        if isinstance(body, ev.PlanRequested) and not forgotten:
            forgotten.append(recorded.seq)
            world.engine._follower.problems.clear()

    world.engine = Engine(
        MemoryLog(world.stream), world.bus, instance="a", solver=world.planner, on_event=forget
    )
    async with anyio.create_task_group() as group:
        group.start_soon(world.engine.run)
        await world.begin()
        await world.until(_ordered)
        group.cancel_scope.cancel()
    bodies = [r.envelope.body for r in world.stream.entries]
    first, second = (b for b in bodies if isinstance(b, ev.PlanSolved))
    assert forgotten == [first.request]
    assert "began after the request" in first.error
    assert (second.error, len(second.problem_digest)) == ("", 64)
    (dropped,) = (b for b in bodies if isinstance(b, ev.PlanDropped))
    assert (dropped.request, dropped.reason) == (first.request, first.error)


async def test_a_name_is_taken_once():
    world = _World()
    async with anyio.create_task_group() as group:
        group.start_soon(world.engine.run)
        await world.until(lambda s: s.term)
        await world.engine.submit(SPEC, by="test")
        with pytest.raises(ValueError, match="choose another name"):
            await world.engine.submit(SPEC, by="test")
        group.cancel_scope.cancel()


async def test_a_solver_that_fails_is_asked_again():
    world = _World()
    world.planner.fails = 1
    async with anyio.create_task_group() as group:
        group.start_soon(world.engine.run)
        await world.begin()
        await world.until(_ordered)
        group.cancel_scope.cancel()
    assert world.planner.asked >= 2


async def test_orders_that_nobody_confirms_are_said_again_and_at_once_to_who_asks():
    world = _World()
    async with anyio.create_task_group() as group:
        group.start_soon(world.engine.run)
        await world.begin()
        await world.until(_ordered)
        world.bus.ask("n1")
        with anyio.fail_after(_LIMIT_S):
            while len(world.bus.orders) < 2:
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()
    said = [r.envelope.body for r in world.bus.orders if r.envelope is not None]
    assert {type(b) for b in said} == {ev.WorkerStartOrdered}


# --- A log that other versions wrote as well -----------------------------------------------------


def newer(world: _World, subject: str, body: ev.AnyEvent, tag: str) -> None:
    """An entry of a type that doesn't exist yet."""
    world.write(subject, "control/z" if ".control." in subject else "agent/n9", body)
    entry = world.stream.entries.pop()
    now = str(type(body).__struct_config__.tag)
    world.stream.write_raw(subject, entry.data.replace(now.encode(), tag.encode()))


def alarms(world: _World) -> list[str]:
    bodies = [r.envelope.body for r in world.stream.entries if r.envelope is not None]
    return [b.message for b in bodies if isinstance(b, ev.AlarmRaised)]


async def test_unknown_facts_raise_one_alarm_of_each_kind_whoever_leads():
    world = _World()
    stopped = ev.AgentStopped(node=ev.NodeId("n9"), reason="x")
    subject = subjects.fact("c", ev.NodeId("n9"))
    for tag in ("agent.stopped.v8", "agent.stopped.v8", "agent.paused.v1"):
        newer(world, subject, stopped, tag)
    world.stream.write_raw(subject, b"rubbish")
    for name in ("a", "b"):
        async with anyio.create_task_group() as group:
            engine = world.instance(name)
            group.start_soon(engine.run)
            with anyio.fail_after(_LIMIT_S):
                while len(alarms(world)) < 3 or not engine.leading:
                    await anyio.sleep(0.005)
            await anyio.sleep(0.2)  # four looks at what is due
            group.cancel_scope.cancel()
    assert [message.partition(":")[0] for message in alarms(world)] == [
        "#1 has the type agent.stopped.v8, which this version doesn't know",
        "#3 has the type agent.paused.v1, which this version doesn't know",
        "#4 is no event",
    ]
    assert engine.state.unknown == 4


async def test_whoever_meets_a_decision_of_a_newer_version_does_not_lead():
    world = _World()
    alarm = ev.AlarmRaised(code="x", message="y")
    newer(world, subjects.control("c", "cluster", "c"), alarm, "alarm.raised.v7")
    with pytest.raises(BaseExceptionGroup) as caught:
        async with anyio.create_task_group() as group:
            group.start_soon(world.engine.run)
    (error,) = caught.value.exceptions
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, NewerLog)
    assert "#1 of the log is a decision of the type alarm.raised.v7" in error.what
    assert len(world.stream.entries) == 1


async def test_bytes_that_are_no_decision_keep_nobody_from_leading():
    world = _World()
    world.stream.write_raw(subjects.control("c", "cluster", "c"), b"rubbish")
    async with anyio.create_task_group() as group:
        group.start_soon(world.engine.run)
        await world.until(lambda s: s.term)
        group.cancel_scope.cancel()
    assert world.engine.state.unknown_decisions == 1
