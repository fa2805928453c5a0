"""The host's scheduler: its nodes and workers are those of an agent as far as the log can tell."""

import asyncio

import pytest

from tests.embed.host import TASK, Dynamic, Host, World, nothing_left
from unicron import controlplane as cp
from unicron import events as ev
from unicron.controlplane.embed.approval import ApprovingSolver
from unicron.controlplane.embed.change import change_of
from unicron.controlplane.runtime.memory import AckLoss
from unicron.controlplane.runtime.ports import SolverFailed
from unicron.planner import Layout, LayoutOption, NodeSupply, PlanProblem, Slot, TaskDemand


@pytest.fixture
async def world():
    made = World()
    with nothing_left(made.stream):
        yield made


def _trains_on(count):
    return lambda s: "gpt" in s.tasks and len(s.tasks["gpt"].committed) == count


def _long(**changes):
    return ev.TaskSpec(
        **{f: getattr(TASK, f) for f in TASK.__struct_fields__}
        | {"iterations": 1_000_000}
        | changes
    )


async def _verified(plane):
    report = cp.Replayer(await plane.history()).verify()
    assert report.verified, report.divergence
    assert not report.gaps
    return report


# --- Nodes ------------------------------------------------------------------------------------


async def test_a_withdrawn_node_stops_its_workers_before_it_says_goodbye(world):
    host = Host("n1", "n2")
    async with world.plane(host) as plane:
        await plane.submit(_long())
        await plane.until(_trains_on(4))
        host.withdraw("n2")
        state = await plane.until(_trains_on(2))
        await _verified(plane)
    assert state.nodes["n2"].status == "lost"
    assert not state.incidents
    told = [
        (type(b).__name__, b.node if isinstance(b, ev.AgentStopped) else b.worker)
        for b in world.bodies(ev.WorkerExited, ev.AgentStopped)
    ]
    assert sorted(told[:2]) == [("WorkerExited", "n2/0"), ("WorkerExited", "n2/1")]
    assert told[2] == ("AgentStopped", "n2")
    assert all(b.ordered for b in world.bodies(ev.WorkerExited))


async def test_a_node_that_is_withdrawn_can_be_offered_again_at_once(world):
    host = Host("n1", "n2")
    async with world.plane(host) as plane:
        await plane.submit(_long())
        await plane.until(_trains_on(4))
        host.withdraw("n2")
        host.offer("n2")
        await plane.until(lambda s: s.nodes["n2"].status == "lost")
        await plane.until(_trains_on(4))
        await _verified(plane)
    lives = [b.node for b in world.bodies(ev.AgentStarted)]
    assert lives == ["n1", "n2", "n2"]


async def test_a_lost_node_is_noticed_by_its_silence_and_is_an_incident(world):
    host = Host("n1", "n2", "n3")
    async with world.plane(host) as plane:
        await plane.submit(_long())
        await plane.until(_trains_on(6))
        host.withdraw("n3", lost=True)
        await plane.until(_trains_on(4))
        await plane.until(lambda s: all(i.resolved for i in s.incidents.values()))
        await _verified(plane)
        (incident,) = plane.state.incidents.values()
    assert incident.severity == 1
    assert incident.node == "n3"
    assert not [b for b in world.bodies(ev.AgentStopped) if b.node == "n3"]


async def test_a_node_offered_twice_is_the_hosts_mistake(world):
    host = Host("n1", "n1")
    with pytest.raises(ev.ConfigError, match="n1 is offered twice"):
        async with world.plane(host):
            await asyncio.sleep(30)


async def test_withdrawing_what_was_not_offered_does_no_harm(world):
    host = Host()
    host.withdraw("n9")
    host.offer("n1")
    async with world.plane(host) as plane:
        await plane.until(lambda s: "n1" in s.nodes)


async def test_a_node_declared_lost_by_mistake_begins_a_new_life(world):
    host = Host("n1", "n2")
    async with world.plane(host) as plane:
        await plane.submit(_long())
        state = await plane.until(_trains_on(4))
        lost = ev.NodeLost(node="n2", incarnation=state.nodes["n2"].incarnation, evidence="test")
        await plane._engine._writer.write(lost)
        await plane.until(lambda s: s.nodes["n2"].incarnation != lost.incarnation)
        await plane.until(_trains_on(4))
    assert [b.node for b in world.bodies(ev.AgentStarted)] == ["n1", "n2", "n2"]
    assert {name for name, grace in host.stopped if grace == 0} >= {"n2/0", "n2/1"}


# --- Workers ----------------------------------------------------------------------------------


async def test_a_killed_worker_is_replaced_on_its_device(world):
    host = Host("n1", "n2")
    async with world.plane(host) as plane:
        await plane.submit(_long())
        await plane.until(_trains_on(4))
        host.crew.kill("n2/1")
        await plane.until(lambda s: any(i.resolved for i in s.incidents.values()))
        await plane.until(_trains_on(4))
        await _verified(plane)
    (fact,) = [b for b in world.bodies(ev.WorkerExited) if not b.ordered]
    assert (fact.worker, fact.signal, fact.exit_code) == ("n2/1", 9, None)
    assert fact.phase
    assert host.launched.count("n2/1") == 2


async def test_a_launch_that_fails_is_recorded_and_tried_again(world):
    host = Host("n1")
    host.fails_to_launch = 1
    async with world.plane(host) as plane:
        await plane.submit(_long())
        await plane.until(_trains_on(2))
        await _verified(plane)
    (failed,) = world.bodies(ev.WorkerStartFailed)
    assert failed.error == "OSError: no such device"


async def test_a_hang_is_seen_in_what_the_host_reads(world):
    host = Host("n1", "n2", micro_batch_ms=5)
    async with world.plane(host) as plane:
        await plane.submit(_long())
        await plane.until(_trains_on(4))
        await asyncio.sleep(1.5)  # some iterations, so that their usual length is known
        host.crew.workers["n2/0"].hung = True
        await plane.until(lambda s: any(i.worker == "n2/0" for i in s.incidents.values()))
        await plane.until(lambda s: all(i.resolved for i in s.incidents.values()))
    assert world.bodies(ev.TaskStalled)  # it hangs in a collective or before it
    assert ("n2/0", 0) in host.stopped


async def test_lost_answers_leave_no_hole_and_nothing_counts_twice(world):
    host = Host("n1", "n2")
    async with world.plane(host) as plane:
        await plane.submit(_long())
        for loss in (AckLoss.STORED, AckLoss.NOT_STORED) * 5:
            world.stream.lose_ack(loss)
            await asyncio.sleep(0.02)
        await plane.until(_trains_on(4))
        host.offer("n3")  # there is more to say, so that the last losses happen, too
        await plane.until(lambda s: "n3" in s.nodes and not world.stream._losses)
        report = await _verified(plane)
    assert not report.duplicates
    assert plane.state.gaps == 0


async def test_the_next_control_plane_finds_its_nodes_gone_and_starts_anew(world):
    async with world.plane(Host("n1")) as plane:
        await plane.submit(_long())
        await plane.until(_trains_on(2))
    async with world.plane(Host("n1"), instance="next") as plane:
        assert plane.state.nodes["n1"].status == "lost"
        await plane.until(_trains_on(2))
        await _verified(plane)


# --- Approval ---------------------------------------------------------------------------------


class Vetoing(Host):
    """Says no until told otherwise."""

    reason = "not on a Friday"

    async def approve(self, change: cp.PlannedChange) -> None:
        await super().approve(change)
        if self.reason:
            raise cp.NotApproved(self.reason)


async def test_a_plan_that_takes_devices_needs_approval_and_the_log_says_who_refused(world):
    host = Vetoing("n1", "n2")
    urgent = _long(task="urgent", weight_milli=5000)
    async with world.plane(host) as plane:
        await plane.submit(_long())
        await plane.until(_trains_on(4))
        assert not host.asked  # it only grew
        await plane.submit(urgent)
        state = await plane.until(lambda s: s.plan.failures)
        assert len(state.tasks["gpt"].members) == 4
        assert state.tasks["urgent"].phase == "idle"
        host.reason = ""
        await plane.until(lambda s: s.tasks["urgent"].phase == "running")
        await _verified(plane)
    (change, *_) = host.asked
    assert [c.task for c in change.planned] == ["gpt"]
    dropped = world.bodies(ev.PlanDropped)[0]
    assert dropped.reason.startswith("not approved by Vetoing: not on a Friday (gpt goes from 4 to")


async def test_a_failure_waits_for_nobody(world):
    host = Vetoing("n1", "n2")
    async with world.plane(host) as plane:
        await plane.submit(_long())
        await plane.until(_trains_on(4))
        host.withdraw("n2")
        await plane.until(_trains_on(2))
    assert not host.asked


def _problem(*, hit=False):
    """`a` runs on both devices; `b` is worth more and must run."""
    options = tuple(
        LayoutOption(layout=Layout(tp=1, pp=1, dp=n), throughput_gflops=10 * n) for n in (1, 2)
    )
    common = {"min_devices": 1, "max_devices": 2, "options": options}
    held = (Slot(node="n1", device=0), Slot(node="n1", device=1))
    return PlanProblem(
        computed_at=7,
        nodes=(NodeSupply(node="n1", kind="cpu", devices=(0, 1)),),
        tasks=(
            TaskDemand(
                task="a",
                weight_milli=1000,
                current=Layout(tp=1, pp=1, dp=2),
                placement=held,
                hit=hit,
                **common,
            ),
            TaskDemand(task="b", weight_milli=2000, **common),
        ),
        expected_run_ms=1000,
    )


@pytest.mark.parametrize(
    "answer,reason",
    [
        (cp.NotApproved("busy"), "busy"),
        (cp.NotApproved(), "no reason given"),
        (ValueError("a bug"), "ValueError: a bug"),
        (None, "no answer within 0.05 s"),
    ],
)
async def test_whatever_the_hook_does_but_agree_refuses(answer, reason):
    async def approve(change):
        if answer is None:
            await asyncio.sleep(30)
        raise answer

    solver = ApprovingSolver(Dynamic(), approve, "Me", limit_s=0.05)
    with pytest.raises(SolverFailed) as caught:
        await solver.solve(_problem())
    assert str(caught.value) == f"not approved by Me: {reason} (a goes from 2 to 1 device)"


async def test_a_task_that_a_failure_has_hit_is_not_asked_about():
    async def approve(change):
        raise cp.NotApproved

    solver = ApprovingSolver(Dynamic(), approve, "Me", limit_s=1)
    plan, _ = await solver.solve(_problem(hit=True))
    change = change_of(_problem(hit=True), plan)
    assert [c.task for c in change.tasks] == ["a", "b"]
    assert not change.planned
    assert str(change) == "nobody loses a device"


async def test_what_a_change_is_called():
    slots = tuple(Slot(node="n1", device=d) for d in range(3))
    moves = cp.TaskChange(task="a", before=slots[:2], after=slots[1:], hit=False)
    parks = cp.TaskChange(task="a", before=slots[:2], after=(), hit=False)
    grows = cp.TaskChange(task="a", before=slots[:2], after=slots, hit=False)
    assert str(moves) == "a moves to other devices"
    assert str(parks) == "a is parked and gives up 2 devices"
    assert moves.is_planned
    assert parks.is_planned
    assert not grows.is_planned
