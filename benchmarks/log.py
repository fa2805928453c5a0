"""How fast and how patient the log is, on this machine; a table and JSON.

    make bench BENCH=log ARGS='--repetitions 3 --json'

A real nats-server with the cluster's stream, synced on every append, as `unicron up` starts it. Its
speed is the disk's, so what an fsync takes is printed beside. Medians over all repetitions, with
smallest and largest; `--only` names some of the parts:

- `disk`: an append and its fsync.
- `burst`: thousands of facts at once from many agents, each through the agents' own publisher and
  spool; meanwhile nodes are lost (their connections end), and that is in the log while most facts
  still wait. `--connected` agents hold a connection, `--agents` of them have something to say.
  The same when all of them speak at once, a few facts each.
- `decision`: from a fact to the decision that it leads to; see `deciding.py`.
- `stream`, `file`: a long log followed live, and replayed, see `reading.py`.
- `state`: memory of a large cluster's state; once, whatever the repetitions.
- `failover`, as in `failover.py`.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

import bursts
import deciding
import failover
import reading

#: name -> (what it is, goal or None)
METRICS: dict[str, tuple[str, float | None]] = {
    "fsync_ms_p50": ("an append of 400 bytes and its fsync on this disk, p50", None),
    "fsync_ms_p99": ("the same, p99", None),
}
METRICS |= bursts.METRICS | deciding.METRICS | reading.METRICS | failover.METRICS
PARTS = ("disk", "burst", "decision", "stream", "file", "state", "failover")
_FSYNCS = 200


class Given(argparse.Namespace):
    """What the command line says."""

    repetitions: int
    agents: int
    connected: int
    facts: int
    events: int
    only: list[str]
    json: bool


def fsyncs(folder: Path) -> dict[str, float]:
    """What the server waits for before it acknowledges."""
    took: list[float] = []
    with (folder / "fsync").open("ab", buffering=0) as file:
        for _ in range(_FSYNCS):
            start = time.perf_counter()
            file.write(b"x" * 400)
            os.fsync(file.fileno())
            took.append(1000 * (time.perf_counter() - start))
    return {
        "fsync_ms_p50": bursts.percentile(took, 50),
        "fsync_ms_p99": bursts.percentile(took, 99),
    }


def measured(given: Given) -> list[dict[str, float]]:
    """What each repetition gave."""
    times, only = given.repetitions, given.only
    results: list[dict[str, float]] = [{} for _ in range(times)]
    for result in results:
        if "disk" in only:
            result.update(disk())
        if "burst" in only:
            result.update(asyncio.run(bursts.busy(given)))
        if "decision" in only:
            result.update(asyncio.run(deciding.decisions()))
        if "failover" in only:
            result.update(asyncio.run(failover.repetition(random.Random())))
    if "stream" in only:
        read = asyncio.run(reading.stream_repetitions(given.events, times))
        results = [a | b for a, b in zip(results, read, strict=True)]
    if "file" in only:
        read = reading.file_repetitions(given.events, times)
        results = [a | b for a, b in zip(results, read, strict=True)]
    if "state" in only:
        results[0] |= deciding.state_of_many()
    return results


def disk() -> dict[str, float]:
    """What the server's appends wait for."""
    with tempfile.TemporaryDirectory(prefix="unicron-") as folder:
        return fsyncs(Path(folder))


def _table(results: list[dict[str, float]]) -> str:
    lines = [f"{'':62}{'median':>10}{'smallest':>10}{'largest':>10}{'goal':>8}"]
    for name, (what, goal) in METRICS.items():
        values = [result[name] for result in results if name in result]
        if not values:
            continue
        shown = "".join(f"{v:>10,.1f}" for v in (_median(values), min(values), max(values)))
        sign = ">" if name in reading.METRICS else "<"
        limit = f"{sign} {goal:g}" if goal is not None else ""
        lines.append(f"{what:62}{shown}{limit:>8}")
    return "\n".join(lines)


def _median(values: list[float]) -> float:
    return statistics.median(values)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure the log on this machine.")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--agents", type=int, default=200, help="that speak in the burst")
    parser.add_argument("--connected", type=int, default=2000, help="agents, those included")
    parser.add_argument("--facts", type=int, default=10_000, help="of the burst, together")
    parser.add_argument("--events", type=int, default=40_000, help="of the log that is read")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part (repeatable)")
    parser.add_argument("--json", action="store_true", help="a JSON object as the last line")
    given = parser.parse_args(namespace=Given())
    logging.disable(logging.WARNING)  # lost connections are the point here
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    given.only = given.only or list(PARTS)
    results = measured(given)
    print(_table(results))
    if given.json:
        medians = {n: _median([r[n] for r in results if n in r]) for n in results[0]}
        print(json.dumps({"schema": "unicron.bench.log/1", **medians}))


if __name__ == "__main__":
    main()
