"""What the tests of the worker's process side share."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.worker_shim.nats_server import NatsServer


@pytest.fixture
def folder():
    """A folder with a short path: a unix socket's path may have 107 bytes only."""
    path = Path(tempfile.mkdtemp(prefix="ws"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def log_server(folder):
    """A running nats-server with the stream of cluster ``c``."""
    home = folder / "nats"
    home.mkdir()
    server = NatsServer(home).start()
    try:
        await server.make_stream()
        yield server
    finally:
        server.kill()
