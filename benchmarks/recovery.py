"""How long a recovery takes, on this machine, with the demo's task; a table and JSON.

    make bench BENCH=recovery ARGS='--repetitions 5 --json'

Each repetition starts a cluster of real processes, kills one worker in its forward pass and,
once the task is whole again, a whole node. Times come from the injector's monotonic clock, the
log's timestamps and the journals, all of this host. Medians, with the smallest and largest value;
beside each the limit that was set for a two-core machine and the iteration time of the same run.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
from pathlib import Path

from unicron import events as ev
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local import processes
from unicron.controlplane.local.cluster import LocalCluster
from unicron.controlplane.local.faultrows import FaultRow, fault_rows
from unicron.controlplane.local.faults import Fault
from unicron.controlplane.local.injector import Shot, fire
from unicron.controlplane.local.measure import Work, read_works
from unicron.controlplane.local.spec import demo_task
from unicron.events import Recorded
from unicron.worker_shim.forkclient import ForkClient, start_server
from unicron.worker_shim.page import Phase

#: name -> (what it is, limit in ms or None)
METRICS: dict[str, tuple[str, float | None]] = {
    "iteration_ms": ("an iteration at DP 4, undisturbed", None),
    "worker_detect_ms": ("SIGKILL of a worker to the first fact in the log", 200),
    "worker_order_ms": ("that fact to the survivors' order in the log", None),
    "worker_resume_ms": ("SIGKILL to the first iteration committed by the survivors", 1500),
    "worker_overhead_ms": ("of that, neither computing nor regrouping", 300),
    "worker_whole_ms": ("SIGKILL to DP 4 again (restart, state transfer, first commit)", None),
    "node_detect_ms": ("SIGKILL of a node to the first evidence in the log", 200),
    "node_resume_ms": ("SIGKILL of a node to the first iteration committed after it", 1500),
    "node_overhead_ms": ("of that, neither computing nor regrouping", 300),
}
_ITERATIONS = 60


async def repetition(template: str) -> dict[str, float]:
    """One cluster, two faults; the metrics in milliseconds."""
    root = Path(tempfile.mkdtemp(prefix="unicron-"))
    spec = demo_task(_ITERATIONS, 1234)
    cluster = LocalCluster(root, "bench", spec, template=template)
    faults = (
        Fault(kind="worker", target="n2/1", iteration=10, phase=Phase.FORWARD, done=2),
        Fault(kind="node", target="n2", iteration=26, phase=Phase.BACKWARD, done=1),
    )
    shots: list[Shot] = []
    try:
        await cluster.start()
        await cluster.start_control(when_nodes=2)
        for node in ("n1", "n2"):
            await cluster.start_agent(node)
        for fault in faults:
            await cluster.until("DP 4, no incident", _whole)
            shots.append(await fire(cluster, fault))
            await cluster.until("it is noticed", lambda s: len(s.incidents) == len(shots))
        await cluster.until("resolved", lambda s: all(i.resolved for i in s.incidents.values()))
        events = list(cluster.events)
        works = read_works(cluster.journals(), events)
        rows = fault_rows(shots, cluster.state, events, works)
        return _metrics(rows, shots, events, works[spec.task])
    finally:
        await cluster.stop()
        shutil.rmtree(root, ignore_errors=True)


def _whole(state: ClusterState) -> bool:
    task = state.tasks.get(ev.TaskId("gpt"))
    return (
        task is not None
        and task.phase == "running"
        and len(task.committed) == len(task.members) == 4
        and all(i.resolved for i in state.incidents.values())
    )


def _metrics(
    rows: list[FaultRow], shots: list[Shot], events: list[Recorded], work: Work
) -> dict[str, float]:
    found: dict[str, float] = {"iteration_ms": _iteration_ms(work, shots[0])}
    for name, row, shot in zip(("worker", "node"), rows, shots, strict=True):
        values = (row.noticed_ms, row.plan_ms, row.resume_ms, row.restored_ms)
        if any(v is None for v in values):
            raise RuntimeError(f"the {name}'s fault was not measured: {row}")
        detect, order, resume, whole = (float(v) for v in values if v is not None)
        found[f"{name}_detect_ms"] = detect
        found[f"{name}_order_ms"] = order
        found[f"{name}_resume_ms"] = resume
        found[f"{name}_whole_ms"] = whole
        found[f"{name}_overhead_ms"] = resume - _busy_ms(shot, events, resume)
    return {key: found[key] for key in METRICS}


def _iteration_ms(work: Work, first: Shot) -> float:
    """Median distance of commits of successive iterations before the first fault."""
    at: dict[int, int] = {}
    for mono_ns, iteration, _ in work.commits:
        if mono_ns < first.mono_ns:
            at.setdefault(iteration, mono_ns)
    steps = [at[i + 1] - at[i] for i in sorted(at) if i + 1 in at and i > 1]
    return statistics.median(steps) / 1e6


def _busy_ms(shot: Shot, events: list[Recorded], resume_ms: float) -> float:
    """What the survivors spent regrouping (the slowest of them) and computing afterwards."""
    ready: list[tuple[int, int]] = []
    generation = 0
    for recorded in events[shot.seq :]:
        body = recorded.envelope.body if recorded.envelope is not None else None
        if isinstance(body, ev.TransitionOrdered) and not body.planned and not generation:
            generation = body.generation
        if isinstance(body, ev.MemberReady) and body.generation == generation:
            ready.append((recorded.at_ns, body.regroup_ms))
    last_ready_ms = (max(at for at, _ in ready) - shot.wall_ns) / 1e6
    return max(ms for _, ms in ready) + (resume_ms - last_ready_ms)


def _table(results: list[dict[str, float]]) -> tuple[str, list[dict[str, object]]]:
    iteration = statistics.median(r["iteration_ms"] for r in results)
    lines = [f"{'MEDIAN ms':>10}  {'MIN':>7}  {'MAX':>7}  {'LIMIT':>6}  {'ITERATIONS':>10}  WHAT"]
    rows: list[dict[str, object]] = []
    for key, (what, limit) in METRICS.items():
        values = [r[key] for r in results]
        median = statistics.median(values)
        shown = f"{limit:.0f}" if limit is not None else "-"
        lines.append(
            f"{median:10.0f}  {min(values):7.0f}  {max(values):7.0f}  {shown:>6}  "
            f"{median / iteration:10.2f}  {what}"
        )
        rows.append(
            {
                "metric": key,
                "median_ms": round(median, 1),
                "min_ms": round(min(values), 1),
                "max_ms": round(max(values), 1),
                "limit_ms": limit,
                "within_limit": None if limit is None else median < limit,
            }
        )
    return "\n".join(lines), rows


async def measure(repetitions: int) -> list[dict[str, float]]:
    """All repetitions, from one fork server."""
    folder = Path(tempfile.mkdtemp(prefix="unicron-"))
    socket = str(folder / "template.sock")
    server = start_server(
        socket, "unicron: fork server template", log_path=str(folder / "log"), die_with_parent=True
    )
    client = await ForkClient.connect(socket, lambda _: None, limit_s=180.0, server=server)
    try:
        results = []
        for number in range(repetitions):
            results.append(await repetition(socket))
            print(f"repetition {number + 1} of {repetitions} done", flush=True)
        return results
    finally:
        await client.shutdown()
        await client.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure recoveries on this machine.")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="a JSON object as the last line")
    given = parser.parse_args()
    processes.become_subreaper()
    try:
        text, rows = _table(asyncio.run(measure(given.repetitions)))
    finally:
        processes.end_all()
    print(text)
    if given.json:
        print(json.dumps({"schema": "unicron.bench.recovery/1", "metrics": rows}))


if __name__ == "__main__":
    main()
