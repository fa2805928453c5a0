"""Workers that hang, raise, lose a connection or are slow, and live; really, in real processes."""

import pytest

from tests.real.world import World
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local.faults import Fault
from unicron.controlplane.local.injector import Trap
from unicron.controlplane.local.reference import Reference
from unicron.events import ExceptionReported, TaskStalled, WorkerSlow
from unicron.worker_shim.page import Phase

pytestmark = pytest.mark.real


async def _inflict(
    world: World, kind: str, target: str, phase: Phase = Phase.FORWARD, argument_ms: int = 0
) -> None:
    """The fault in iteration 5, and that it really fired."""
    fault = Fault(kind=kind, target=target, iteration=5, phase=phase, argument_ms=argument_ms)
    trap = Trap(world.cluster, fault)
    try:
        assert await trap.sprung(40.0), f"{fault} did not fire"
        world.shots.append(trap.shoot())
    finally:
        if kind in ("stop", "worker"):
            trap.close()


def _bodies(world: World, kind: type) -> list[object]:
    entries = (r.envelope for r in world.cluster.events)
    return [e.body for e in entries if e is not None and isinstance(e.body, kind)]


def _severities(state: ClusterState) -> list[int]:
    return [i.severity for i in state.incidents.values()]


@pytest.mark.parametrize("kind", ["stop", "spin"])
async def test_a_worker_hangs(world: World, reference: Reference, kind: str) -> None:
    """Everybody waits for the one that is strictly behind: it is killed and replaced."""
    await _inflict(world, kind, "n2/1")
    state = await world.finish(reference)
    assert _severities(state) == [2]
    (stalled,) = _bodies(world, TaskStalled)
    assert isinstance(stalled, TaskStalled)
    assert stalled.behind == ("n2/1",)
    assert state.workers["n2/1"].incarnation == 2


async def test_a_worker_is_stopped_in_the_collective(world: World, reference: Reference) -> None:
    """All stand at the same place, so nobody is blamed at first; it is found by its silence."""
    await _inflict(world, "stop", "n1/1", Phase.REDUCTION)
    state = await world.finish(reference)
    assert state.workers["n1/1"].incarnation == 2


async def test_the_training_step_raises(world: World, reference: Reference) -> None:
    await _inflict(world, "exception", "n1/0", Phase.BACKWARD)
    state = await world.finish(reference)
    assert _severities(state) == [2]
    (report,) = _bodies(world, ExceptionReported)
    assert isinstance(report, ExceptionReported)
    assert report.kind == "software"
    assert "InjectedError" in report.message
    assert report.traceback.startswith("Traceback (most recent call last):")
    assert "InjectedError" in report.traceback


async def test_a_loss_is_not_a_number(world: World, reference: Reference) -> None:
    """It is caught at the worker it comes from, before it reaches the others' gradients."""
    await _inflict(world, "nan", "n2/0")
    state = await world.finish(reference)
    assert _severities(state) == [2]
    (report,) = _bodies(world, ExceptionReported)
    assert isinstance(report, ExceptionReported)
    assert (report.worker, report.kind) == ("n2/0", "loss.not_finite")


async def test_a_connection_is_reset_between_the_living(world: World, reference: Reference) -> None:
    """SEV3: the same members, the next generation, nobody is restarted."""
    await _inflict(world, "reset", "n1/1", Phase.REDUCTION)
    state = await world.finish(reference)
    assert _severities(state) == [3]
    assert {w.incarnation for w in state.workers.values()} == {1}
    assert state.tasks[world.spec.task].generation == 2


async def test_holding_the_interpreter_in_a_declared_section_is_no_hang(
    world: World, reference: Reference
) -> None:
    await _inflict(world, "hog", "n2/1", argument_ms=4000)
    state = await world.finish(reference)
    assert not state.incidents


async def test_a_slow_rank_is_named_and_lives(world: World, reference: Reference) -> None:
    await _inflict(world, "slow", "n1/1", argument_ms=150)
    await world.cluster.until("it is named", lambda s: s.workers["n1/1"].slow_percent > 0, 60.0)
    state = await world.finish(reference)
    assert not state.incidents
    slow = [s for s in _bodies(world, WorkerSlow) if isinstance(s, WorkerSlow)]
    assert "n1/1" in {s.worker for s in slow if s.percent > 100}
