"""One suite, two logs: each `world` opens any number of EventLogs on one and the same stream."""

import contextlib

import pytest

from tests.contract.worlds import JetStreamWorld, MemoryWorld


@pytest.fixture(params=["memory", pytest.param("jetstream", marks=pytest.mark.real)])
async def world(request, tmp_path):
    made = MemoryWorld() if request.param == "memory" else JetStreamWorld(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        yield await stack.enter_async_context(made)


@pytest.fixture
async def log(world):
    return await world.open()


@pytest.fixture
async def nats(tmp_path):
    """The JetStream world alone, for what only a server can do."""
    async with JetStreamWorld(tmp_path) as made:
        yield made
