"""From a fact to the decision that it leads to, and what the state of a large cluster takes.

The control plane is a process of its own on a real nats-server that syncs every append. A node
joins (one append), the leader folds it, decides that it is admitted and writes that (the other
append): measured from the call that publishes the fact to the decision's arrival at a reader,
which is sent what is durable.

The state is that of ten thousand nodes with one worker each and a thousand tasks, folded from
events in a process that has loaded all of the control plane; its resident memory is read after
what every decision needs (digest, decide, limits) was worked out.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from failover import control

from unicron import events as ev
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.controlplane.runtime.jetstream import JetStreamLog
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.controlplane.testing.options import task_spec
from unicron.events import subjects

CLUSTER = ev.ClusterId("decides")

#: name -> (what it is, goal or None)
METRICS: dict[str, tuple[str, float | None]] = {
    "append_to_decision_ms_p50": ("a fact published to its decision durable, p50", 4),
    "append_to_decision_ms_p99": ("the same, p99", 25),
    "state_mb": ("the control plane's memory with 10,000 nodes and 1,000 tasks, MB", 500),
    "state_event_ms": ("... and what an event takes there: fold, decide, digest, limits", None),
}
NODES, TASKS = 10_000, 1_000
_FACTS = 200
_PAUSE_S = 0.01
_EVENTS = 50
_LIMIT_S = 60.0


async def decisions() -> dict[str, float]:
    """One cluster that nodes join one after the other."""
    with tempfile.TemporaryDirectory(prefix="unicron-") as folder:
        async with NatsServer(Path(folder) / "nats", CLUSTER) as server:
            log = await JetStreamLog.connect(server.url, CLUSTER, name="control/bench")
            try:
                async with control(server.url, "a", CLUSTER), _admitted(log) as admitted:
                    await _join(log, admitted, "n0")  # until it leads
                    took = [await _join(log, admitted, f"n{n + 1}") for n in range(_FACTS)]
            finally:
                await log.close()
    took.sort()
    return {
        "append_to_decision_ms_p50": took[len(took) // 2],
        "append_to_decision_ms_p99": took[len(took) * 99 // 100],
    }


@contextlib.asynccontextmanager
async def _admitted(log: JetStreamLog) -> AsyncIterator[dict[str, asyncio.Future[float]]]:
    """Futures by node: when it was read that the node is admitted."""
    waited: dict[str, asyncio.Future[float]] = {}

    async def read() -> None:
        async for recorded in log.read(1):
            body = recorded.envelope.body if recorded.envelope is not None else None
            if isinstance(body, ev.NodeAdmitted) and body.node in waited:
                waited[body.node].set_result(time.perf_counter())

    reading = asyncio.create_task(read())
    try:
        yield waited
    finally:
        reading.cancel()
        await asyncio.wait([reading])


async def _join(log: JetStreamLog, admitted: dict[str, asyncio.Future[float]], node: str) -> float:
    """Milliseconds until it is admitted."""
    await asyncio.sleep(_PAUSE_S)
    admitted[node] = asyncio.get_running_loop().create_future()
    body = _agent_started(ev.NodeId(node))
    envelope = _envelope(f"agent/{node}", 1, 1, body)
    start = time.perf_counter()
    subject = subjects.fact(CLUSTER, ev.NodeId(node))
    await log.append(subject, ev.encode(envelope), envelope.id, fence=None)
    async with asyncio.timeout(_LIMIT_S):
        return 1000 * (await admitted[node] - start)


# --- Memory ---------------------------------------------------------------------------------------


def state_of_many() -> dict[str, float]:
    """Measured in a process of its own."""
    program = "import deciding; deciding.measure()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    megabytes, milliseconds = done.stdout.split()
    return {"state_mb": float(megabytes), "state_event_ms": float(milliseconds)}


def measure() -> None:
    """In that process: megabytes, and milliseconds of processor time for an event."""
    import unicron.controlplane.runtime.service  # noqa: F401

    state = ClusterState()
    for recorded in _recorded(_history(NODES, TASKS), 1):
        state = fold(state, recorded)
    assert len(state.nodes) == len(state.workers) == NODES and len(state.tasks) == TASKS
    assert all(task.phase == "running" for task in state.tasks.values())
    verdict = decide(state)
    assert verdict is not None and isinstance(verdict.body, ev.PlanRequested)
    digest(state)
    heard = [(f"agent/n{n}", 3, _store_bound(f"n{n}")) for n in range(0, NODES, NODES // _EVENTS)]
    more = list(_recorded(heard, state.seq + 1))
    start = time.process_time()
    for recorded in more:
        state = fold(state, recorded)
        decide(state)
        digest(state)
        deadlines(state)
    took = time.process_time() - start
    print(_resident_mb(), 1000 * took / len(more))


def _resident_mb() -> float:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _history(nodes: int, tasks: int) -> Iterator[tuple[str, int, ev.AnyEvent]]:
    """Who writes, the number of it, and what: nodes join, tasks come and run on them."""
    each = nodes // tasks
    taken = ev.LeadershipTaken(
        cluster=CLUSTER,
        instance="a",
        logic_version=LOGIC_VERSION,
        fold_version=FOLD_VERSION,
        version="bench",
    )
    yield "control/a", 1, taken
    number = 1
    for n in range(nodes):
        node = ev.NodeId(f"n{n}")
        yield "server", 0, _opened(f"agent/{node}/1", n)
        yield f"agent/{node}", 1, _agent_started(node)
        number += 1
        admitted = ev.NodeAdmitted(node=node, incarnation=ev.Incarnation(1))
        yield "control/a", number, admitted
    for t in range(tasks):
        name = ev.TaskId(f"t{t}")
        spec = task_spec(name, iterations=1000, micro_batches=64, max_devices=each)
        slots = tuple((ev.NodeId(f"n{n}"), 0) for n in range(t * each, (t + 1) * each))
        for decision in _task(spec, slots):
            number += 1
            yield "control/a", number, decision
            if isinstance(decision, ev.WorkerStartOrdered):
                yield from _starts(decision, nodes)
            if isinstance(decision, ev.TransitionOrdered):
                for member in decision.members:
                    yield f"worker/{member.worker}", 2, _ready(decision, member)
            if isinstance(decision, ev.TransitionCompleted):
                for node, device in slots:
                    worker = ev.worker_id(node, device)
                    yield f"worker/{worker}", 3, _committed(decision, worker)


def _task(spec: ev.TaskSpec, slots: tuple[tuple[ev.NodeId, int], ...]) -> Iterator[ev.AnyDecision]:
    name, one = spec.task, ev.Incarnation(1)
    yield ev.TaskSubmitted(spec=spec, by="bench")
    allocation = ev.Allocation(
        task=name,
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=len(slots),
        slots=slots,
    )
    yield ev.PlanDecided(
        source="local",
        computed_at=ev.Sequence(1),
        allocations=(allocation,),
        value=0,
        waf_milli=0,
        reason="bench",
    )
    workers = [ev.worker_id(node, device) for node, device in slots]
    for worker, (node, device) in zip(workers, slots, strict=True):
        yield ev.WorkerStartOrdered(
            task=name,
            worker=worker,
            incarnation=one,
            node=node,
            device=device,
            spec=spec,
            reason="the plan gives it to the task",
        )
    members = tuple(
        ev.OrderedMember(
            worker=worker,
            incarnation=one,
            node=slot[0],
            rank=rank,
            keeps=(),
            owes=(),
            state_from=-1,
        )
        for rank, (worker, slot) in enumerate(zip(workers, slots, strict=True))
    )
    yield ev.TransitionOrdered(
        task=name,
        generation=ev.Generation(1),
        planned=False,
        iteration=0,
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=len(slots),
        store_address="192.0.2.1",
        store_port=1,
        members=members,
        reason="starts",
    )
    yield ev.TransitionCompleted(task=name, generation=ev.Generation(1), iteration=0)


def _starts(order: ev.WorkerStartOrdered, nodes: int) -> Iterator[tuple[str, int, ev.AnyEvent]]:
    life = {"task": order.task, "worker": order.worker, "incarnation": order.incarnation}
    yield f"agent/{order.node}", 2, ev.WorkerStarted(pid=1, **life)
    number = nodes + int(order.node.removeprefix("n"))
    yield "server", 0, _opened(f"worker/{order.worker}/1", number)
    prepared = ev.WorkerPrepared(
        parameters=1, threads=1, torch="2.9.1", megatron="0.14.1", spec_digest="3f" * 32, **life
    )
    yield f"worker/{order.worker}", 1, prepared


def _ready(order: ev.TransitionOrdered, member: ev.OrderedMember) -> ev.MemberReady:
    return ev.MemberReady(
        task=order.task,
        worker=member.worker,
        incarnation=member.incarnation,
        generation=order.generation,
        iteration=0,
    )


def _committed(order: ev.TransitionCompleted, worker: ev.WorkerId) -> ev.MemberCommitted:
    return ev.MemberCommitted(
        task=order.task,
        worker=worker,
        incarnation=ev.Incarnation(1),
        generation=order.generation,
        iteration=1,
    )


def _agent_started(node: ev.NodeId) -> ev.AgentStarted:
    return ev.AgentStarted(
        node=node, address="192.0.2.1", store_port=1, devices=1, device_kind="h100", rack="r1"
    )


def _store_bound(node: str) -> ev.StoreBound:
    return ev.StoreBound(node=ev.NodeId(node), address="192.0.2.2", store_port=2)


def _opened(client: str, number: int) -> ev.ConnectionOpened:
    return ev.ConnectionOpened(client=client, server="N" * 56, client_number=number)


def _envelope(who: str, life: int, counter: int, body: ev.AnyEvent, term: int = 0) -> ev.Envelope:
    source = ev.Source(who=who, incarnation=ev.Incarnation(life), counter=counter)
    return ev.Envelope(
        id=ev.event_id(source), source=source, written_at_ns=0, body=body, term=ev.Term(term)
    )


def _recorded(
    events: Iterator[tuple[str, int, ev.AnyEvent]] | list, seq: int
) -> Iterator[ev.Recorded]:
    """As entries of a log, from that sequence on; the first of all took the leadership."""
    for at, (who, counter, body) in enumerate(events, seq):
        control_tree = isinstance(body, ev.Decision)
        term = int(control_tree and at > 1)
        subject = (
            subjects.control(CLUSTER, "cluster", CLUSTER)
            if control_tree
            else subjects.fact(CLUSTER, ev.NodeId("n"))
        )
        data = ev.encode(_envelope(who, 1, counter, body, term=term))
        yield ev.record(at, subject, data, 0)
