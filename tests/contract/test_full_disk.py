"""A server whose disk is full: it looks healthy, and takes nothing until it is started again."""

import resource

import pytest

from tests.contract.worlds import decision
from unicron.controlplane.runtime.jetstream import log as log_module
from unicron.controlplane.runtime.outcomes import Accepted, Unknown

pytestmark = pytest.mark.real


async def test_it_is_told_once_and_takes_events_when_it_was_started_again(
    nats, monkeypatch, caplog
):
    monkeypatch.setattr(log_module, "_STUCK_S", 0.0)
    log = await nats.open(attempt_s=0.5, limit_s=1.0)
    fence = (await log.append(*decision(1), fence=0)).seq
    full = (1, resource.RLIM_INFINITY)
    before = resource.prlimit(nats.server.pid, resource.RLIMIT_FSIZE, full)
    assert isinstance(await log.append(*decision(2), fence=fence), Unknown)
    resource.prlimit(nats.server.pid, resource.RLIMIT_FSIZE, before)
    assert isinstance(await log.append(*decision(2), fence=fence), Unknown)
    assert await log.last_seq() == fence  # it answers whatever else it is asked
    assert caplog.text.count("has taken no decision") == 1
    await nats.server.stop()
    await nats.server.start()
    log._limit_s = 30.0
    assert isinstance(await log.append(*decision(2), fence=fence), Accepted)
    assert "takes decisions again" in caplog.text
