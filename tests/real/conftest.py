"""One fork server with torch and Megatron for all tests, and what an undisturbed run ends with."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.real.world import ITERATIONS, World, short_folder, small_task
from unicron.controlplane.local import processes
from unicron.controlplane.local.reference import Reference, run_reference
from unicron.worker_shim.forkclient import ForkClient, start_server


@pytest.fixture(scope="session")
def template() -> Iterator[str]:
    """Socket of a fork server; it and all that came from it are gone afterwards."""
    processes.become_subreaper()
    with short_folder() as folder:
        socket = str(folder / "template.sock")
        server = start_server(
            socket,
            "unicron: fork server template",
            log_path=str(folder / "template.log"),
            grace_s=3600.0,
            die_with_parent=True,
        )

        async def ready() -> None:
            client = await ForkClient.connect(socket, lambda _: None, limit_s=180.0, server=server)
            await client.close()

        try:
            asyncio.run(ready())
            yield socket
        finally:
            left = {server.pid, *processes.descendants(server.pid)}
            server.kill()
            server.wait()
            processes.end_all(left)


@pytest.fixture(scope="session")
def reference(template: str) -> Reference:
    """The small task at DP 4, undisturbed."""
    with short_folder() as folder:
        return asyncio.run(run_reference(folder, template, small_task(ITERATIONS), 4))


@pytest.fixture
async def world(template: str) -> AsyncIterator[World]:
    """A cluster of two nodes on which the small task trains at DP 4."""
    with short_folder() as folder:
        made = World(folder, template)
        try:
            await made.start()
            yield made
        finally:
            await made.stop()
