"""Transports of agents, for tests that need no more of an agent."""

import asyncio
import contextlib

from unicron.worker_shim.identity import agent_identity
from unicron.worker_shim.transport import Transport


@contextlib.asynccontextmanager
async def agent(url, cluster, name="n1"):
    """One that runs, connected or not."""
    transport = Transport(agent_identity(cluster, name, 1), url, lambda *_: None)
    running = asyncio.create_task(transport.run())
    try:
        yield transport
    finally:
        running.cancel()
        await asyncio.wait({running})


@contextlib.asynccontextmanager
async def connected_agent(url, cluster, name="n1"):
    """One that is connected."""
    async with agent(url, cluster, name) as transport:
        while not transport.is_connected:
            await asyncio.sleep(0.005)
        yield transport
