"""A blocked event loop is measured and told."""

import asyncio
import logging
import os
import signal
import sys
import time

import pytest

from tests.contract.worlds import until
from unicron.controlplane.runtime import looplag
from unicron.controlplane.runtime.natsserver import NatsServer


async def test_a_blocked_loop_is_measured_and_told_once(caplog):
    lags = []
    with caplog.at_level(logging.WARNING, looplag.__name__):
        watching = asyncio.create_task(looplag.watch(lags.append))
        await until(lambda: len(lags) >= 2)
        assert "the event loop was blocked" not in caplog.text or max(lags) > looplag.WARN_S
        caplog.clear()
        for _ in range(2):
            count = len(lags)
            time.sleep(looplag.WARN_S + 0.4)
            await until(lambda count=count: len(lags) > count)
        watching.cancel()
        await asyncio.wait({watching})
    assert max(lags) > looplag.WARN_S
    assert caplog.text.count("the event loop was blocked for") == 1


@pytest.mark.real
async def test_a_control_plane_that_was_stopped_says_so(tmp_path):
    async with NatsServer(tmp_path / "nats", "lag") as server:
        said = tmp_path / "said"
        with said.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "unicron.controlplane.runtime.service"),
                *("--cluster", "lag", "--die-with-parent", str(os.getpid())),
                env={**os.environ, "UNICRON_NATS": server.url},
                stderr=file,
            )
        await until(lambda: "leads cluster lag" in said.read_text())
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(looplag.WARN_S + 0.5)
        process.send_signal(signal.SIGCONT)
        await until(lambda: "the event loop was blocked for" in said.read_text())
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
