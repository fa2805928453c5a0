"""The cluster after the last entry that was read, and one thing in it."""

from typing import Any

from unicron import events as ev
from unicron.controlplane.core import tables
from unicron.controlplane.core.figures import span, step_words, time_now
from unicron.controlplane.core.state import ClusterState, TaskState
from unicron.controlplane.replay import ids
from unicron.controlplane.replay.choices import choice_of
from unicron.controlplane.replay.cluster import (
    ClusterView,
    IdStatus,
    NodeView,
    PlanDesk,
    TaskView,
    WorkerView,
)
from unicron.controlplane.replay.entries import told
from unicron.controlplane.replay.headline import cost_words
from unicron.controlplane.replay.instances import connected
from unicron.controlplane.replay.phrases import one_line, planning_words
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.standing import (
    node_now,
    rank_of,
    task_now,
    task_words,
    tracebacks,
    worker_now,
)
from unicron.controlplane.replay.story import NextCommand, PlanChoice
from unicron.controlplane.replay.summaries import Summaries
from unicron.controlplane.replay.units import count, duration, gflops
from unicron.events import Recorded, Sequence

_EVENTS_SHOWN = 10


def cluster_of(
    reading: Reading, summaries: Summaries, *, last_seq: int, log_lag_ms: int | None = None
) -> ClusterView:
    """`last_seq`: of the whole log, of which the beginning was read."""
    state = reading.state
    incidents = tuple(i for i in summaries.all.values() if i.is_open)
    plan = state.plan
    return ClusterView(
        cluster=state.cluster,
        at_seq=state.seq,
        at_ns=reading.end_ns,
        last_seq=Sequence(last_seq),
        log_lag_ms=log_lag_ms,
        leader=state.leader,
        term=Sequence(state.term),
        followers=tuple(name for name in connected(reading.log) if name != state.leader),
        headline=_headline(reading, len(incidents)),
        nodes=_nodes(reading),
        tasks=tuple(
            _task(reading, t) for t in sorted(state.tasks.values(), key=lambda t: t.submitted)
        ),
        workers=tuple(
            WorkerView(
                worker=w.worker,
                life=w.incarnation,
                status=w.status,
                task=w.task,
                rank=rank_of(state, w),
                slow_percent=w.slow_percent if w.status in tables.ALIVE else 0,
            )
            for w in sorted(state.workers.values(), key=lambda w: w.worker)
        ),
        incidents=incidents,
        incidents_over=len(state.incidents) - len(incidents),
        configured=planning_words(state.planning),
        plan=PlanDesk(
            wanted_seq=plan.wanted or None,
            request_seq=plan.request or None,
            reason=one_line(plan.reason) if plan.wanted or plan.request else "",
            failures=plan.failures,
        ),
        void=state.void,
        duplicates=state.duplicates,
        gaps=state.gaps,
        unknown=state.unknown,
    )


def _headline(reading: Reading, still_open: int) -> str:
    state = reading.state
    parts = [f"{count(still_open, 'incident')} open" if still_open else "no incident open"]
    away = [n.node for n in state.nodes.values() if n.status not in ("healthy", "joining")]
    if away:
        parts.append(f"{count(len(away), 'node')} out or in doubt")
    going = [t for t in state.tasks.values() if t.phase not in tables.ENDED]
    training = sum(bool(_devices(reading, t)) for t in going)
    trains = "train" if len(going) > 1 else "trains"
    parts.append(f"{training} of {count(len(going), 'task')} {trains}" if going else "no task runs")
    return ", ".join(parts)


def _nodes(reading: Reading) -> tuple[NodeView, ...]:
    state = reading.state
    return tuple(
        NodeView(
            node=n.node,
            status=n.status,
            since_seq=n.since,
            since_at_ns=reading.log[n.since - 1].at_ns,
            devices=n.devices,
            device_kind=one_line(n.device_kind),
            workers=sum(
                w.node == n.node and w.status in tables.ALIVE for w in state.workers.values()
            ),
            reason=node_now(n).what if n.status != "healthy" or n.given_up else "",
        )
        for n in sorted(state.nodes.values(), key=lambda n: n.node)
    )


def _devices(reading: Reading, task: TaskState) -> int:
    paces = reading.throughput.paces.get(task.spec.task, [])
    return paces[-1].devices if paces else 0


def _task(reading: Reading, task: TaskState) -> TaskView:
    devices = _devices(reading, task)
    split = max(task.spec.tensor_parallel * task.spec.pipeline_parallel, 1)
    measured, assumed = time_now(reading.state, task)
    return TaskView(
        task=task.spec.task,
        phase=task.phase,
        since_seq=task.since,
        generation=task.generation,
        iteration=task.iteration,
        iterations=task.spec.iterations,
        devices=devices,
        devices_wanted=len(task.allocation.slots) if task.allocation is not None else 0,
        data_parallel=devices // split,
        gflops=reading.throughput.gflops(reading.state, task, devices),
        step_us=measured.step_us if measured is not None else None,
        assumed_step_us=assumed,
        incident=task.incident,
        outcome=one_line(task.outcome),
    )


# --- One thing -----------------------------------------------------------------------------------


def status_of(reading: Reading, summaries: Summaries, asked: str) -> IdStatus:
    """What the id is and how it stands. Raises ConfigError if there is nothing of that name."""
    named = ids.find(reading.state, asked)
    if named.kind == ids.EVENT:
        return _event(reading, int(named.id))
    events = about(reading, summaries, named)
    headline, facts = _facts(reading, summaries, named)
    commands = [NextCommand(arguments=("why", named.id), about="why it is so")]
    if named.kind == ids.INCIDENT:
        commands.insert(0, NextCommand(arguments=("audit", named.id), about="its story"))
    commands.append(
        NextCommand(arguments=("events", "--for", named.id), about="all events about it")
    )
    shown = events[-_EVENTS_SHOWN:]
    start = shown[0].at_ns if shown else 0
    return IdStatus(
        kind=named.kind,
        id=named.id,
        at_seq=reading.state.seq,
        headline=one_line(headline),
        facts=tuple((name, one_line(value)) for name, value in facts if value),
        events=tuple(told(reading, r, start) for r in shown),
        events_left_out=len(events) - len(shown),
        commands=tuple(commands),
    )


def about(reading: Reading, summaries: Summaries, named: ids.Named) -> tuple[Recorded, ...]:
    """Entries about what is named, in order; of an event, itself."""
    if named.kind == ids.INCIDENT:
        return summaries.mine[named.id]
    if named.kind == ids.EVENT:
        return (reading.log[int(named.id) - 1],)
    return tuple(
        r for r in reading.log if r.envelope is not None and ids.is_about(r.envelope.body, named)
    )


def _facts(
    reading: Reading, summaries: Summaries, named: ids.Named
) -> tuple[str, list[tuple[str, str]]]:
    state, name = reading.state, named.id
    match named.kind:
        case ids.INCIDENT:
            return _incident_facts(summaries, name)
        case ids.NODE:
            node = state.nodes[name]
            now = node_now(node)
            here = [w for w in state.workers.values() if w.node == name]
            alive = sorted(w.worker for w in here if w.status in tables.ALIVE)
            return f"node {name} is {node.status} since #{node.since}: {now.what}", [
                ("devices", f"{node.devices} {node.device_kind}"),
                ("address", f"{node.address}, store on port {node.store_port}"),
                ("workers", ", ".join(alive) or "none alive"),
                ("agent", f"life {node.incarnation}, last heard in the log with #{node.last_fact}"),
                ("sick", node.sick),
            ]
        case ids.TASK:
            task = state.tasks[name]
            now = task_now(reading, task)
            return f"task {name} is {task.phase} since #{task.since}: {now.what}", [
                ("generation", f"{task.generation} ({count(len(task.members), 'member')})"),
                ("throughput", gflops(1000 * _task(reading, task).gflops)),
                *_times(state, task),
                ("incident", task.incident or ""),
                ("faults", f"{task.closes} generations closed for them so far"),
                ("submitted", f"#{task.submitted}"),
            ]
        case _:
            worker = state.workers[name]
            now = worker_now(state, worker)
            slow = f"{worker.slow_percent} % of the others' time" if worker.slow_percent else ""
            return f"worker {name} is {worker.status}: {now.what}", [
                ("task", task_line(reading, worker.task)),
                ("started", f"by #{worker.order}"),
                ("failures", ", ".join(f.signature for f in worker.failures)),
                ("slow", slow),
            ]


def _times(state: ClusterState, task: TaskState) -> list[tuple[str, str]]:
    """What its iterations and transitions take, measured beside assumed."""
    planning = state.planning
    facts = [
        ("iteration", f"{step_words(planning, task.spec, time)}, measured by #{time.at}")
        for time in reversed(task.step_times)
    ]
    assumed = time_now(state, task)[1]
    if not facts and assumed is not None:
        facts.append(("iteration", f"{span(assumed)} assumed, not measured yet"))
    if task.transition_times:
        took = ", ".join(duration(t.took_ms) for t in reversed(task.transition_times))
        facts.append(("transitions", f"cost {took}, the newest first"))
    if task.step_times and not planning.measured_step_times:
        facts.append(("plans", "are made with what is assumed: the cluster is configured so"))
    return facts


def task_line(reading: Reading, name: str) -> str:
    """``gpt, which trains on 3 of 4 devices, iteration 12 of 50``."""
    return f"{name}, which {task_words(reading, reading.state.tasks[name])}"


def _incident_facts(summaries: Summaries, name: str) -> tuple[str, list[tuple[str, str]]]:
    i = summaries.all[name]
    over = "still open" if i.is_open else f"over after {duration(i.duration_ms)}"
    facts = [
        ("severity", f"SEV{i.severity}"),
        ("hit", ", ".join(filter(None, (*i.tasks, i.worker or i.node)))),
        ("detected", f"within {duration(i.detect_ms)} of its first sign, #{i.first_evidence_seq}"),
        ("stood still", duration(i.stall_ms) if i.stall_ms is not None else ""),
        ("cost", cost_words(i) if i.costs else ""),
        ("outcome", i.outcome),
    ]
    return f"incident {name} is {over}: {i.what}", facts


def _event(reading: Reading, seq: int) -> IdStatus:
    recorded = reading.log[seq - 1]
    event = told(reading, recorded, recorded.at_ns)
    led_to = [s for s, causes in enumerate(reading.links, 1) if seq in causes]
    facts: list[tuple[str, Any]] = [
        ("type", event.type),
        ("led by", ", ".join(f"#{s}" for s in event.because)),
        ("led to", ", ".join(f"#{s}" for s in led_to[:_EVENTS_SHOWN])),
        ("void", "it no longer applied when it reached the log" if event.void else ""),
    ]
    kind = ids.EVENT
    if isinstance(reading.body(seq), ev.PlanDecided | ev.PlanDropped):
        kind = "plan"
        facts += _plan_facts(choice_of(reading, recorded, recorded.at_ns))
    return IdStatus(
        kind=kind,
        id=str(seq),
        at_seq=reading.state.seq,
        headline=f"#{seq}, {event.kind} by {event.who}: {event.what}",
        facts=tuple((name, one_line(value)) for name, value in facts if value),
        events=(event,),
        events_left_out=0,
        commands=(
            *tracebacks(reading, (recorded.seq,)),
            NextCommand(arguments=("why", str(seq)), about="what led to it"),
        ),
    )


def _plan_facts(choice: PlanChoice) -> list[tuple[str, str]]:
    facts = [("explained", line) for line in choice.explanation]
    facts.append(("worth", f"{gflops(choice.value_milli)}, weighted"))
    facts += [
        ("instead", f"{a.name}: {a.what}, {gflops(a.value_milli)}") for a in choice.alternatives
    ]
    return facts
