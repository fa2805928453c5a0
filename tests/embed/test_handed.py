"""What a program hands in enters the log only if every reader of the log can read it."""

import msgspec
import pytest

from tests.embed.host import TASK, World, nothing_left
from unicron import events as ev


@pytest.fixture
async def world():
    made = World()
    with nothing_left(made.stream):
        yield made


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 1.5},
        {"min_gflops": float("nan")},
        {"priority": True},
        {"tenant": 3},
        {"tenant": "\ud800"},
        {"device_kinds": "h100"},
        {"avoid": None},
        {"model": {}},
        {"optimizer": {"lr_ppb": 1, "min_lr_ppb": 1, "lr": 2}},
    ],
    ids=ascii,
)
async def test_a_task_that_no_reader_of_the_log_could_read_never_enters_it(world, changes):
    task = msgspec.structs.replace(TASK, **changes)
    async with world.plane() as plane:
        with pytest.raises(ValueError, match="a value"):
            await plane.submit(task)
        assert not plane.state.tasks
    assert not world.bodies(ev.TaskSubmitted)


@pytest.mark.parametrize(
    "planning",
    [
        ev.Planning(measured_step_times="no"),
        ev.Planning(node_mtbf_ms=float("nan")),
        ev.Planning(quotas=None),
        ev.Planning(quotas=({"tenant": "lab", "max_devices": 1},)),
        ev.Planning(devices=(ev.DeviceSpeed(kind="\ud800"),)),
        {"node_mtbf_ms": 10**9, "node_mtbf": 10**9},
    ],
    ids=ascii,
)
async def test_nor_does_such_a_configuration(world, planning):
    async with world.plane() as plane:
        with pytest.raises(ValueError, match="a value"):
            await plane.configure(planning)
        # A list is as good as a tuple.
        quotas = [ev.Quota(tenant="lab", max_devices=1)]
        assert await plane.configure(ev.Planning(quotas=quotas))
        assert await plane.configure(ev.Planning(quotas=tuple(quotas))) is None
    assert [len(body.planning.quotas) for body in world.bodies(ev.ClusterConfigured)] == [1]
    with pytest.raises(ev.ConfigError, match="planning has a value"):
        world.plane(planning=planning)
