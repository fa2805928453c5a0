"""Two tasks trade a device, for real, and somebody is killed in the midst of it: both end as if
nothing had ever happened to them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.real.world import ITERATIONS, World, short_folder, small_task
from unicron.controlplane.core.leases import leases
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local import processes
from unicron.controlplane.local.cluster import LocalCluster
from unicron.controlplane.local.compared import outcome_of, verdicts
from unicron.controlplane.local.measure import read_works
from unicron.controlplane.local.moments import ended, trains, whole
from unicron.controlplane.local.reference import Reference, run_reference
from unicron.controlplane.local.spec import two_tasks
from unicron.events import (
    PlanDecided,
    TaskId,
    TaskSpec,
    WorkerExited,
    WorkerStarted,
    WorkerStartOrdered,
    WorkerStopOrdered,
)
from unicron.worker_shim.breakpoint import Breakpoint
from unicron.worker_shim.page import Action, Phase

pytestmark = pytest.mark.real

GPT, LIGHT = TaskId("gpt"), TaskId("light")
#: Before each micro-batch, so that a trade is not over before anybody can be killed in it.
SLOW_MS = 150


def tasks() -> tuple[TaskSpec, TaskSpec]:
    """The small task of the other tests, and one beside it that weighs less."""
    return two_tasks(ITERATIONS, seed=7, model=small_task(ITERATIONS).model)


class Trading(World):
    """gpt and light train on four devices each, of two nodes; then a node is lost."""

    def __init__(self, folder: Path, template: str) -> None:
        super().__init__(folder, template)
        self.spec, self.light = tasks()
        self.cluster = LocalCluster(
            folder, "t", self.spec, beside=(self.light,), devices=4, template=template
        )

    async def start(self) -> None:
        """Both train at DP 4."""
        await self.cluster.start()
        await self.cluster.start_control(when_nodes=2)
        for node in ("n1", "n2"):
            await self.cluster.start_agent(node)
        await self.cluster.until("DP 4 each", trains({GPT: 4, LIGHT: 4}))

    def slow(self, wait_ms: int) -> None:
        """All members wait so long before each micro-batch from now on."""
        for worker in self.cluster.state.workers.values():
            if worker.status == "member":
                with Breakpoint(self.cluster.page_path(worker.worker)) as asking:
                    asking.arm(Phase.FORWARD, action=Action.SLOW, argument_ms=wait_ms)

    async def lose_a_node(self) -> str:
        """Until the plan takes a device of light for gpt; the worker that still holds it."""
        self.slow(SLOW_MS)
        self.cluster.kill_node("n2")
        state = await self.cluster.until("a device is to pass on", lambda s: bool(leases(s)), 30.0)
        (lease,) = leases(state)
        assert (lease.holder.task, lease.to) == (LIGHT, GPT)
        return lease.holder.worker

    async def pass_on(self) -> None:
        """gpt trains on the device as well; then let them train at full speed. light may have ended
        by then: whoever came to it anew doesn't wait before its micro-batches."""
        await self.cluster.until("it has passed on", lambda s: self.members(s) >= 3, 40.0)
        await self.cluster.until("all is whole", whole, 40.0)
        self.slow(0)

    async def end(self, undisturbed: dict[TaskId, Reference]) -> ClusterState:
        """Both end bit-identical to their undisturbed runs, and all that must hold does."""
        cluster = self.cluster
        await cluster.until("both end", ended, 90.0)
        state = await cluster.until(
            "incidents end", lambda s: all(i.resolved for i in s.incidents.values())
        )
        events = list(cluster.events)
        works = read_works(cluster.journals(), events)
        outcomes = tuple(
            outcome_of(spec, state, works[spec.task], undisturbed[spec.task])
            for spec in cluster.specs
        )
        for check in verdicts(outcomes, state, events):
            assert check.ok, f"{check.name}: {check.detail}"
        return state


@pytest.fixture(scope="session")
def undisturbed(template: str, reference: Reference) -> dict[TaskId, Reference]:
    """Of both tasks."""
    with short_folder() as folder:
        light = asyncio.run(run_reference(folder, template, tasks()[1], 2))
    return {GPT: reference, LIGHT: light}


@pytest.fixture
async def trading(template: str) -> AsyncIterator[Trading]:
    with short_folder() as folder:
        made = Trading(folder, template)
        try:
            await made.start()
            yield made
        finally:
            await made.stop()


def _order(trading: Trading, worker: str) -> list[str]:
    """What the log says of the device that passes on, in its order."""
    told = []
    for recorded in trading.cluster.events:
        match recorded.envelope.body if recorded.envelope is not None else None:
            case PlanDecided(source="cpsat" | "dp", allocations=given):
                slots = {a.task: [f"{n}/{d}" for n, d in a.slots] for a in given}
                told += ["planned"] if worker in slots.get(GPT, []) else []
            case WorkerStopOrdered() as body if body.worker == worker and body.task == LIGHT:
                told.append("stop ordered")
            case WorkerExited() as body if body.worker == worker and body.task == LIGHT:
                told.append("stopped" if body.ordered else "died")
            case WorkerStartOrdered() as body if body.worker == worker and body.task == GPT:
                told.append("started")
            case _:
                pass
    return told


async def test_who_is_to_leave_is_killed(
    trading: Trading, undisturbed: dict[TaskId, Reference]
) -> None:
    """Before its task has switched: its device passes on all the same."""
    worker = await trading.lose_a_node()
    assert trading.cluster.state.workers[worker].status == "member"
    processes.kill(trading.cluster.worker_pid(worker))
    await trading.pass_on()
    assert _order(trading, worker)[:3] == ["planned", "died", "started"]
    await trading.end(undisturbed)


async def test_the_one_that_stays_is_killed(
    trading: Trading, undisturbed: dict[TaskId, Reference]
) -> None:
    """The other one holds the only copy of light's state: it keeps its device till that is safe."""
    worker = await trading.lose_a_node()
    state = trading.cluster.state
    (stays,) = [m.worker for m in state.tasks[LIGHT].members if m.worker != worker]
    processes.kill(trading.cluster.worker_pid(stays))
    await trading.cluster.until(
        "its death is noticed", lambda s: s.workers[stays].incarnation == 2, 20.0
    )
    assert leases(trading.cluster.state), "the device had passed on before"
    await trading.pass_on()
    assert _order(trading, worker)[:4] == ["planned", "stop ordered", "stopped", "started"]
    await trading.end(undisturbed)


async def test_who_is_to_take_over_is_killed(
    trading: Trading, undisturbed: dict[TaskId, Reference]
) -> None:
    worker = await trading.lose_a_node()
    taken = await trading.cluster.until(
        "the device is taken", lambda s: s.workers[worker].task == GPT, 30.0
    )
    life = taken.workers[worker].incarnation
    await trading.cluster.until(
        "its process runs", lambda s: s.workers[worker].status == "started", 20.0
    )
    (pid,) = [
        recorded.envelope.body.pid
        for recorded in trading.cluster.events
        if recorded.envelope is not None
        and isinstance(recorded.envelope.body, WorkerStarted)
        and (recorded.envelope.body.worker, recorded.envelope.body.incarnation) == (worker, life)
    ]
    assert processes.kill(pid)
    await trading.pass_on()
    assert trading.cluster.state.workers[worker].incarnation == life + 1
    assert _order(trading, worker).count("started") == 2
    await trading.end(undisturbed)


async def test_the_control_plane_is_killed(
    trading: Trading, undisturbed: dict[TaskId, Reference]
) -> None:
    """While the device is still held: the next leader goes on where the log ends."""
    worker = await trading.lose_a_node()
    await trading.cluster.kill_control()
    assert leases(trading.cluster.state), "the device had passed on before"
    assert "started" not in _order(trading, worker)
    await trading.cluster.start_control(when_nodes=1)
    await trading.pass_on()
    order = _order(trading, worker)
    assert [what for what in order if what != "stop ordered"][:3] == [
        "planned",
        "stopped",
        "started",
    ]
    state = await trading.end(undisturbed)
    assert len(state.incidents) == 2
