"""How long a cluster is without a leader, on this machine; a table and JSON.

    make bench BENCH=failover ARGS='--repetitions 5 --json'

Two control planes as processes of their own on a real nats-server with the lease of a single server
(2 s); one leads, the other follows. The leader is killed, stopped, or told to end, at any time
between two renewals. Taken is the time until the other's leadership is durable, and until its
first decision is: it admits a node that had joined meanwhile. By the server's time stamps.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from unicron.controlplane.runtime.jetstream import JetStreamLog
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import (
    AgentStarted,
    ClusterId,
    Envelope,
    Incarnation,
    LeadershipTaken,
    NodeAdmitted,
    NodeId,
    Recorded,
    Source,
    encode,
    event_id,
    subjects,
)

CLUSTER = ClusterId("failover")

#: name -> (what it is, goal or None)
METRICS: dict[str, tuple[str, float | None]] = {
    "failover_ms": ("the leader killed to another's leadership durable", 3000),
    "failover_decision_ms": ("... to its first decision durable", 3000),
    "failover_stopped_ms": ("the leader stopped to another's leadership durable", 3000),
    "failover_in_order_ms": ("the leader told to end to another's leadership durable", None),
}
_LIMIT_S = 30.0
_RENEWAL_S = 0.5


class Given(argparse.Namespace):
    """What the command line says."""

    repetitions: int
    json: bool


@contextlib.asynccontextmanager
async def control(
    url: str, name: str, cluster: ClusterId = CLUSTER
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unicron.controlplane.runtime.service"),
        *("--cluster", cluster, "--instance", name, "--die-with-parent", str(os.getpid())),
        env={**os.environ, "UNICRON_NATS": url},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _join(log: JetStreamLog, node: str) -> None:
    """A node says that it is there."""
    body = AgentStarted(
        node=NodeId(node), address="192.0.2.1", store_port=1, devices=1, device_kind="cpu"
    )
    source = Source(who=f"agent/{node}", incarnation=Incarnation(1), counter=1)
    envelope = Envelope(id=event_id(source), source=source, written_at_ns=0, body=body)
    await log.append(
        subjects.fact(CLUSTER, NodeId(node)), encode(envelope), envelope.id, fence=None
    )


async def _find(log: JetStreamLog, what: type, about: str) -> Recorded:
    """The first event of that type about the instance or node."""
    tail = log.read(1)
    try:
        async with asyncio.timeout(_LIMIT_S):
            async for recorded in tail:
                body = recorded.envelope.body if recorded.envelope is not None else None
                named = getattr(body, "instance", None), getattr(body, "node", None)
                if isinstance(body, what) and about in named:
                    return recorded
    finally:
        await tail.aclose()
    raise AssertionError("the log ended")


async def once(how: signal.Signals, chance: random.Random) -> dict[str, float]:
    """One failover: milliseconds to leadership, and to the first decision."""
    with tempfile.TemporaryDirectory(prefix="unicron-") as folder:
        async with NatsServer(Path(folder) / "nats", CLUSTER) as server:
            log = await JetStreamLog.connect(server.url, CLUSTER, name="control/bench")
            try:
                async with control(server.url, "a") as a:
                    await _find(log, LeadershipTaken, "a")
                    async with control(server.url, "b"):
                        # The follower has begun once it has seen several renewals.
                        await asyncio.sleep(6 * _RENEWAL_S + _RENEWAL_S * chance.random())
                        start = time.time_ns()
                        a.send_signal(how)
                        await _join(log, "n1")
                        taken = await _find(log, LeadershipTaken, "b")
                        decided = await _find(log, NodeAdmitted, "n1")
            finally:
                await log.close()
    return {"taken": (taken.at_ns - start) / 1e6, "decided": (decided.at_ns - start) / 1e6}


async def repetition(chance: random.Random) -> dict[str, float]:
    """Everything measured once."""
    killed = await once(signal.SIGKILL, chance)
    stopped = await once(signal.SIGSTOP, chance)
    in_order = await once(signal.SIGTERM, chance)
    return {
        "failover_ms": killed["taken"],
        "failover_decision_ms": max(killed["taken"], killed["decided"]),
        "failover_stopped_ms": stopped["taken"],
        "failover_in_order_ms": in_order["taken"],
    }


def table(results: list[dict[str, float]]) -> str:
    """For people."""
    lines = [f"{'':62}{'median':>10}{'smallest':>10}{'largest':>10}{'goal':>8}"]
    for name, (what, goal) in METRICS.items():
        values = [result[name] for result in results]
        numbers = (statistics.median(values), min(values), max(values))
        limit = f"< {goal:g}" if goal is not None else ""
        lines.append(f"{what:62}{''.join(f'{v:>10,.0f}' for v in numbers)}{limit:>8}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure failover on this machine.")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="a JSON object as the last line")
    given = parser.parse_args(namespace=Given())
    chance = random.Random(1)
    results = [asyncio.run(repetition(chance)) for _ in range(given.repetitions)]
    print(table(results))
    if given.json:
        medians = {name: statistics.median(r[name] for r in results) for name in METRICS}
        print(json.dumps({"schema": "unicron.bench.failover/1", **medians}))


if __name__ == "__main__":
    main()
