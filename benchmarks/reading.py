"""How fast a long log is read: by the engine, replayed from its stream, replayed from a file.

The log is `night.py`'s: facts, advisories and decisions as a cluster writes them. It is put into
the stream of a real nats-server once and then read as often as asked; every reader must come to
the state that the log was written with.
"""

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from nats.js.api import AckPolicy, ConsumerConfig
from night import BIRTH, CLUSTER, Night

from unicron.controlplane.cli.log_source import open_log
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.state import FOLD_VERSION
from unicron.controlplane.replay import replay_once
from unicron.controlplane.replay.folding import Folding
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.jetstream import JetStreamLog, connect
from unicron.controlplane.runtime.natsbus import NatsBus
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.controlplane.runtime.ports import Solved, SolverFailed
from unicron.events import HistoryHeader, Recorded, Sequence, subjects, write_history
from unicron.planner.problem import PlanProblem

#: name -> (what it is, goal or None). Goals are lower limits.
METRICS: dict[str, tuple[str, float | None]] = {
    "live_events_per_s": ("events/s folded by an engine that begins and then follows", 5_000),
    "replay_stream_events_per_s": ("events/s of unicron replay from the stream", 30_000),
    "nats_py_fetch_events_per_s": ("events/s that nats-py's fetch() gives, nothing done", None),
    "replay_stream_to_fetch": ("... so many times as fast is the replay", None),
    "replay_file_events_per_s": ("events/s of unicron replay from a history file", 100_000),
    "verify_file_events_per_s": ("events/s of unicron replay --verify from it", None),
}
_AT_ONCE = 500
_FETCH = 1_000
_QUIET_S = 0.3


class NoSolver:
    """Nobody asks it: the engine follows."""

    async def warm(self) -> None:
        """Nothing to get ready."""

    async def solve(self, problem: PlanProblem) -> Solved:
        """There is no plan."""
        raise SolverFailed("a benchmark of reading has no solver")


class QuickServer(NatsServer):
    """It doesn't sync every append, which would take minutes here and means nothing to readers."""

    def _config(self, passwords) -> str:
        config = super()._config(passwords)
        assert "sync_interval: always" in config
        return config.replace("sync_interval: always", "sync_interval: 1m")


@contextlib.asynccontextmanager
async def loaded(folder: Path, events: int) -> AsyncIterator[tuple[NatsServer, Night]]:
    """A server whose stream holds the night, and the night."""
    async with QuickServer(folder / "nats", CLUSTER) as server:
        log = await JetStreamLog.connect(server.url, CLUSTER, name="control/bench")
        try:
            await asyncio.sleep(_QUIET_S)  # until the server has told of this connection
            night = Night(after=await _all(log))
            await asyncio.to_thread(night.run, events)  # the server pings meanwhile
            await _put(log, night)
        finally:
            await log.close()
        yield server, night


async def _all(log: JetStreamLog) -> list[Recorded]:
    """What the stream holds."""
    last, tail = await log.last_seq(), log.read(1)
    try:
        return [await anext(tail) for _ in range(last)]
    finally:
        await tail.aclose()


async def _put(log: JetStreamLog, night: Night) -> None:
    """The rest of the night into the stream, in order."""
    stream = log.connection.client.jetstream(timeout=60)
    begun = await log.last_seq()
    rest = night.log[begun:]
    for first in range(0, len(rest), _AT_ONCE):
        batch = rest[first : first + _AT_ONCE]
        acks = await asyncio.gather(*(stream.publish(r.subject, r.data) for r in batch))
        assert [a.seq for a in acks] == [r.seq for r in batch], "somebody else wrote meanwhile"


def _rate(events: int, start: float) -> float:
    return events / (time.perf_counter() - start)


async def live(server: NatsServer, night: Night) -> dict[str, float]:
    """An engine folds what stands in the log, and then follows: another one leads."""
    connection = await connect(server.url, name="control/b")
    log = await JetStreamLog.open(connection, CLUSTER)
    lease = log.lease()
    assert await lease.put("a", await lease.look()) is not None
    engine = Engine(log, NatsBus(connection, CLUSTER), instance="b", solver=NoSolver())
    start = time.perf_counter()
    running = asyncio.create_task(engine.run())
    try:
        while engine.state.seq < len(night.log):
            await engine.moved()
        rate = _rate(len(night.log), start)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await log.close()
        await connection.close()
    return {"live_events_per_s": rate}


async def fetch(server: NatsServer, night: Night) -> float:
    """nats-py's own way to read a stream; the messages are dropped."""
    connection = await connect(server.url, name="bench/fetch")
    try:
        stream = connection.client.jetstream()
        puller = await stream.pull_subscribe(
            "",
            stream=subjects.stream_name(CLUSTER),
            config=ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True),
        )
        got, start = 0, time.perf_counter()
        while got < len(night.log):
            got += len(await puller.fetch(min(_FETCH, len(night.log) - got), timeout=5))
        return _rate(got, start)
    finally:
        await connection.close()


def replayed(log: str, night: Night, *, verify: bool = False, cluster: str | None = None) -> float:
    """Events per second of what `unicron replay` does."""
    start = time.perf_counter()
    with open_log(log, cluster) as opened:
        report, _ = replay_once(
            opened.items, verify=verify, fold_version=opened.fold_version, chain=opened.chain
        )
    rate = _rate(report.events, start)
    assert report.events >= len(night.log)
    assert report.verified or not verify, report.divergence
    return rate


def written(path: Path, night: Night) -> None:
    """The night as a history file, as an export writes it."""
    folding = Folding()

    def events():
        for recorded in night.log:
            folding.step(recorded)
            yield recorded

    header = HistoryHeader(
        cluster=CLUSTER, birth=BIRTH, version="bench", fold_version=FOLD_VERSION, digest_every=1000
    )
    seal = write_history(path, header, events(), lambda: digest(folding.state))
    assert seal.last_seq == Sequence(len(night.log))


async def stream_repetitions(events: int, repetitions: int) -> list[dict[str, float]]:
    """Live and replayed from the stream, on one server."""
    logging.disable(logging.WARNING)
    results = []
    with tempfile.TemporaryDirectory(prefix="unicron-") as folder:
        async with loaded(Path(folder), events) as (server, night):
            for _ in range(repetitions):
                found = await live(server, night)
                stream = await asyncio.to_thread(replayed, server.url, night, cluster=CLUSTER)
                plain = await fetch(server, night)
                found["replay_stream_events_per_s"] = stream
                found["nats_py_fetch_events_per_s"] = plain
                found["replay_stream_to_fetch"] = stream / plain
                results.append(found)
    return results


def file_repetitions(events: int, repetitions: int) -> list[dict[str, float]]:
    """Replayed from a history file."""
    with tempfile.TemporaryDirectory(prefix="unicron-") as folder:
        night, path = Night().run(events), Path(folder) / "night.ndjson"
        written(path, night)
        return [
            {
                "replay_file_events_per_s": replayed(str(path), night),
                "verify_file_events_per_s": replayed(str(path), night, verify=True),
            }
            for _ in range(repetitions)
        ]
