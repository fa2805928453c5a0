"""One suite, three logs: each `world` opens any number of EventLogs on one and the same stream."""

import contextlib

import pytest

from tests.contract.servers import Trio, why_not
from tests.contract.worlds import ClusterWorld, JetStreamWorld, MemoryWorld


@pytest.fixture(
    params=[
        "memory",
        pytest.param("jetstream", marks=pytest.mark.real),
        pytest.param("three servers", marks=pytest.mark.real),
    ]
)
async def world(request, tmp_path):
    match request.param:
        case "memory":
            made = MemoryWorld()
        case "jetstream":
            made = JetStreamWorld(tmp_path)
        case _:
            made = ClusterWorld(request.getfixturevalue("trio"))
    async with contextlib.AsyncExitStack() as stack:
        yield await stack.enter_async_context(made)


@pytest.fixture(scope="session")
def trio():
    """Three servers for all tests; whoever kills one starts it again."""
    if why := why_not():
        pytest.skip(why)
    made = Trio()
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
async def log(world):
    return await world.open()


@pytest.fixture
async def nats(tmp_path):
    """The JetStream world alone, for what only a server can do."""
    async with JetStreamWorld(tmp_path) as made:
        yield made
