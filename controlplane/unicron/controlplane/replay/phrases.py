"""Every event in words that a tired on-call engineer understands at 3 am.

One table: event type -> (kind, words). `kind` is what the event is to a reader: ``observed``
(someone noticed), ``decided`` (the control plane chose) or ``done`` (someone carried it out).
Texts from the log are hostile: they are put on one line and lose their control characters.
"""

from collections.abc import Callable
from typing import Any, Final

from unicron import events as ev
from unicron.controlplane.replay.units import duration
from unicron.events import AnyEvent

_SIGNALS: Final = {
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}
_NAMES_MAX = 6
_LINE_MAX = 4000


def phrase(body: AnyEvent) -> str:
    """What happened, on one line."""
    return one_line(_TABLE[type(body)][1](body))


def kind(body: AnyEvent) -> str:
    """``observed``, ``decided`` or ``done``."""
    if isinstance(body, ev.WorkerExited) and body.ordered:
        return "done"
    return _TABLE[type(body)][0]


def one_line(text: str) -> str:
    """One line without control characters, and not too long, whatever the log holds."""
    if len(text) > _LINE_MAX:
        text = f"{text[:_LINE_MAX]} … and {len(text) - _LINE_MAX:,} more characters"
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def names(workers: tuple[str, ...]) -> str:
    """``n1/0, n1/1``; many are cut short and counted."""
    if len(workers) <= _NAMES_MAX:
        return ", ".join(workers)
    return f"{', '.join(workers[: _NAMES_MAX - 1])} and {len(workers) - _NAMES_MAX + 1} more"


def _count(number: int, noun: str) -> str:
    many = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else many}"


def _life(body: Any) -> str:
    return f"{body.worker} (life {body.incarnation})"


def _doing(body: Any) -> str:
    """Where in the training a worker was; its iterations are counted from 0."""
    return f"iteration {body.iteration}" + (f" ({body.phase})" if body.phase else "")


# --- Agents, nodes, connections ------------------------------------------------------------------


def _agent_started(body: ev.AgentStarted) -> str:
    devices = _count(body.devices, f"{body.device_kind} device")
    return f"the agent of {body.node} is up and offers {devices} at {body.address}"


def _client(body: ev.ConnectionOpened | ev.ConnectionClosed) -> str:
    """``agent/n1/3`` -> "the agent of n1"; a client that isn't ours keeps its name."""
    kind_, _, rest = body.client.partition("/")
    name, _, _ = rest.rpartition("/")
    if not name or kind_ not in ("agent", "worker"):
        return body.client or "a client without a name"
    return f"the agent of {name}" if kind_ == "agent" else f"worker {name}"


def _connection_closed(body: ev.ConnectionClosed) -> str:
    return f"the connection of {_client(body)} to the log closed: {body.reason}"


# --- Workers -------------------------------------------------------------------------------------


def _start_ordered(body: ev.WorkerStartOrdered) -> str:
    return f"orders the agent of {body.node} to start {_life(body)}: {body.reason}"


def _stalled(body: ev.TaskStalled) -> str:
    who = f"all wait for {names(body.behind)}" if body.behind else "all stand at the same place"
    return f"{body.task} makes no progress for {body.stalled_ms} ms, {who}: {body.evidence}"


def _measured(body: ev.TaskMeasured) -> str:
    devices = body.tensor_parallel * body.pipeline_parallel * body.data_parallel
    on, spread = _count(devices, f"{body.device_kind} device"), duration(body.spread_us // 1000)
    step = duration(body.step_us // 1000)
    text = f"an iteration takes {body.task} {step} on {on}, give or take {spread}"
    if body.transition_ms is None:
        return text
    return f"{text}; the last transition cost it {duration(body.transition_ms)}"


def _slow(body: ev.WorkerSlow) -> str:
    if body.percent <= 100:
        return f"{body.worker} is as fast as the others of {body.task} again"
    return f"{body.worker} is slow, {body.percent} % of the others' time: {body.evidence}"


def _stop_ordered(body: ev.WorkerStopOrdered) -> str:
    how = f"stop (within {body.grace_ms} ms)" if body.grace_ms else "kill"
    return f"orders the agent of {body.node} to {how} {_life(body)}: {body.reason}"


def _exited(body: ev.WorkerExited) -> str:
    if body.signal is not None:
        end = f"killed by signal {body.signal}"
        end += f" ({_SIGNALS[body.signal]})" if body.signal in _SIGNALS else ""
    elif body.exit_code is not None:
        end = f"exit code {body.exit_code}"
    else:
        end = "found gone, nobody saw how"
    if body.ordered:
        return f"the process of {_life(body)} ended as ordered: {end}"
    at = ""
    if body.iteration >= 0:
        done = _count(body.micro_batches_done, "micro-batch")
        at = f", in {_doing(body)} with {done} done"
    return f"the process of {_life(body)} died: {end}{at}"


def _prepared(body: ev.WorkerPrepared) -> str:
    return f"{_life(body)} is warm: model of {body.parameters} parameters built, waits for orders"


def _peer_error(body: ev.PeerErrorReported) -> str:
    return (
        f"{body.worker} lost a peer in generation {body.generation}, {_doing(body)} "
        f"(a symptom, not a cause): {body.error}"
    )


def _exception(body: ev.ExceptionReported) -> str:
    return f"{body.worker} raised {body.kind} in {_doing(body)}: {body.message}"


# --- Members of a generation ---------------------------------------------------------------------


def _quiesced(body: ev.MemberQuiesced) -> str:
    if body.iteration < 0:
        return f"{body.worker} has stopped; it holds no training state yet"
    kept = _count(len(body.kept), "micro-batch")
    more = ", the reduced gradient" if body.reduced else ""
    more += ", and had voted" if body.voted else ""
    return f"{body.worker} has stopped in {_doing(body)} and keeps {kept}{more}"


def _ready(body: ev.MemberReady) -> str:
    steps = [("unblocked", body.unblock_ms), ("regrouped", body.regroup_ms)]
    took = [f"{name} in {ms} ms" for name, ms in steps if ms]
    if body.received_bytes:
        took.append(f"got {body.received_bytes} bytes of state in {body.transfer_ms} ms")
    how = f" ({', '.join(took)})" if took else ""
    where = f"generation {body.generation} at iteration {body.iteration}"
    return f"{body.worker} stands in {where}{how}"


def _committed(body: ev.MemberCommitted) -> str:
    return (
        f"{body.worker} trains in generation {body.generation}: "
        f"{_count(body.iteration, 'iteration')} committed"
    )


def _finished(body: ev.MemberFinished) -> str:
    return (
        f"{body.worker} finished the task after {_count(body.iteration, 'iteration')}, "
        f"state {body.state_digest[:12]}"
    )


# --- Leadership, time, alarms --------------------------------------------------------------------


def _leadership(body: ev.LeadershipTaken) -> str:
    version = f" (version {body.version})" if body.version else ""
    return f"{body.instance} leads cluster {body.cluster} from here on{version}"


def _deadline(body: ev.DeadlinePassed) -> str:
    wait, _, name = body.key.partition(":")
    subject, _, number = name.rpartition(":")
    words = {
        "confirm": f"nothing spoke for {subject} since #{number}",
        "closed": f"the connections of {subject} and its workers closed and stayed so",
        "start": f"{subject} (life {number}) is still not ready after its start was ordered",
        "stop": f"{subject} (life {number}) is still there after its stop was ordered",
        "release": f"{subject} (life {number}) still holds a device that goes to another task",
        "quiesce": f"not all of {subject} answered that they left generation {number}",
        "ready": f"not all of {subject} got ready for generation {number}",
        "solve": f"the planner has not answered #{name}",
        "replan": f"what #{name} called for is still not planned",
    }
    what = words.get(wait, f"the wait {body.key} is over")
    return f"{what}: the limit of {body.limit_ms} ms passed"


def _alarm(body: ev.AlarmRaised) -> str:
    return f"alarm {body.code}, nothing was done about it: {body.message}"


def _configured(body: ev.ClusterConfigured) -> str:
    what = planning_words(body.planning) or "as it is by default"
    return f"{body.by} configures the cluster ({body.digest[:12]}): {what}"


def planning_words(planning: ev.Planning) -> str:
    """What is configured otherwise than by default, on one line; "" if nothing is."""
    said = [_quota(quota) for quota in planning.quotas]
    for device in planning.devices:
        speeds = [f"{device.gflops:,} GFLOP/s"] if device.gflops else []
        speeds += [f"{device.link_bytes_per_s:,} bytes/s"] if device.link_bytes_per_s else []
        said += [f"{device.kind} devices make {' and '.join(speeds)}"] if speeds else []
    if planning.node_mtbf_ms:
        said.append(f"a node fails once in {duration(planning.node_mtbf_ms)}")
    if planning.repair_ms:
        said.append(f"one that failed is away for {duration(planning.repair_ms)}")
    if planning.link_bytes_per_s:
        said.append(f"state moves with {planning.link_bytes_per_s:,} bytes/s")
    if not planning.measured_step_times:
        said.append("measured step times don't count")
    return one_line("; ".join(said))


def _quota(quota: ev.Quota) -> str:
    of = f" {quota.kind}" if quota.kind else ""
    return f"{quota.tenant} holds at most {_count(quota.max_devices, f'{of} device'.strip())}"


# --- Tasks ---------------------------------------------------------------------------------------


def _submitted(body: ev.TaskSubmitted) -> str:
    spec = body.spec
    return (
        f"{body.by} submits {spec.task}: {_count(spec.iterations, 'iteration')} "
        f"on {spec.min_devices} to {spec.max_devices} devices"
    )


def _task_completed(body: ev.TaskCompleted) -> str:
    return (
        f"{body.task} is complete after {_count(body.iteration, 'iteration')}, "
        f"all members hold the same state {body.state_digest[:12]}"
    )


# --- Incidents -----------------------------------------------------------------------------------


def _opened(body: ev.IncidentOpened) -> str:
    return f"opens {body.incident}, SEV{body.severity}: {body.what}"


def _escalated(body: ev.IncidentEscalated) -> str:
    return f"raises {body.incident} to SEV{body.severity}: {body.reason}"


# --- Plans ---------------------------------------------------------------------------------------


def _given(allocations: tuple[ev.Allocation, ...]) -> str:
    def say(a: ev.Allocation) -> str:
        if not a.slots:
            return f"{a.task} is parked"
        slots = names(tuple(f"{node}/{device}" for node, device in a.slots))
        return f"{a.task} gets {_count(len(a.slots), 'device')} ({slots})"

    return "; ".join(say(a) for a in allocations) or "nothing for anybody"


def _solved(body: ev.PlanSolved) -> str:
    took = f" after {body.took_ms} ms" if body.took_ms is not None else ""
    if body.error:
        return f"no plan for #{body.request}{took}: {body.error}"
    given = _given(body.allocations)
    return f"the planner ({body.source}) answers #{body.request}{took}: {given}"


def _plan_decided(body: ev.PlanDecided) -> str:
    return f"takes the {body.source} plan: {_given(body.allocations)}; {body.reason}"


def _plan_dropped(body: ev.PlanDropped) -> str:
    return f"drops the answer to #{body.request}: {body.reason}"


def _dropped(body: ev.FactsDropped) -> str:
    kinds = ", ".join(f"{k.count} {k.kind}" for k in body.kinds) or "of unknown types"
    what = f"lost {_count(body.count, 'fact')} after number {body.after}: {body.reason} ({kinds})"
    return f"{body.who}/{body.incarnation} {what}"


# --- Transitions ---------------------------------------------------------------------------------


def _closed(body: ev.GenerationClosed) -> str:
    return (
        f"closes generation {body.generation} of {body.task}, "
        f"members stop and keep their work: {body.reason}"
    )


def _ordered(body: ev.TransitionOrdered) -> str:
    size = _count(len(body.members), "worker")
    if body.planned:
        when = "at the next iteration boundary"
    else:
        kept = _count(sum(len(m.keeps) for m in body.members), "micro-batch")
        owed = sum(len(m.owes) for m in body.members)
        when = f"on iteration {body.iteration}, {kept} kept, {owed} to compute"
    return f"orders generation {body.generation} of {body.task}: {size}, {when}; {body.reason}"


def _completed(body: ev.TransitionCompleted) -> str:
    return (
        f"generation {body.generation} of {body.task} stands, "
        f"all members at iteration {body.iteration}"
    )


_TABLE: Final[dict[type[ev.Event], tuple[str, Callable[[Any], str]]]] = {
    ev.AgentStarted: ("observed", _agent_started),
    ev.AgentStopped: ("done", lambda b: f"the agent of {b.node} ended as asked: {b.reason}"),
    ev.StoreBound: ("done", lambda b: f"the store of {b.node} is back, on port {b.store_port}"),
    ev.ConnectionOpened: ("observed", lambda b: f"{_client(b)} connected to the log"),
    ev.ConnectionClosed: ("observed", _connection_closed),
    ev.WorkerStarted: ("done", lambda b: f"{_life(b)} runs as process {b.pid}"),
    ev.WorkerStartFailed: ("observed", lambda b: f"{_life(b)} could not be started: {b.error}"),
    ev.WorkerPrepared: ("done", _prepared),
    ev.WorkerExited: ("observed", _exited),
    ev.PeerErrorReported: ("observed", _peer_error),
    ev.ExceptionReported: ("observed", _exception),
    ev.MemberQuiesced: ("done", _quiesced),
    ev.MemberReady: ("done", _ready),
    ev.MemberCommitted: ("done", _committed),
    ev.MemberFinished: ("done", _finished),
    ev.FactsDropped: ("observed", _dropped),
    ev.LeadershipTaken: ("decided", _leadership),
    ev.DeadlinePassed: ("observed", _deadline),
    ev.AlarmRaised: ("observed", _alarm),
    ev.ClusterConfigured: ("decided", _configured),
    ev.TaskSubmitted: ("decided", _submitted),
    ev.TaskCompleted: ("decided", _task_completed),
    ev.TaskStalled: ("observed", _stalled),
    ev.TaskMeasured: ("observed", _measured),
    ev.TaskFailed: ("decided", lambda b: f"gives {b.task} up: {b.reason}"),
    ev.NodeSuspected: ("observed", lambda b: f"{b.node} may be gone: {b.evidence}"),
    ev.NodeRecovered: ("observed", lambda b: f"{b.node} is heard again, all well: {b.evidence}"),
    ev.NodeLost: ("decided", lambda b: f"gives {b.node} and its workers up for lost: {b.evidence}"),
    ev.NodeIsolated: ("decided", lambda b: f"isolates {b.node}, no plan may use it: {b.reason}"),
    ev.NodeAdmitted: ("decided", lambda b: f"admits {b.node}, plans may use it from here on"),
    ev.NodeReturned: ("decided", lambda b: f"{b.by} gives {b.node} back: {b.reason}"),
    ev.IncidentOpened: ("decided", _opened),
    ev.IncidentEscalated: ("decided", _escalated),
    ev.IncidentResolved: ("decided", lambda b: f"closes {b.incident}: {b.outcome}"),
    ev.PlanRequested: ("decided", lambda b: f"asks for a plan of the whole cluster: {b.reason}"),
    ev.PlanSolved: ("done", _solved),
    ev.PlanDecided: ("decided", _plan_decided),
    ev.PlanDropped: ("decided", _plan_dropped),
    ev.WorkerStartOrdered: ("decided", _start_ordered),
    ev.WorkerStopOrdered: ("decided", _stop_ordered),
    ev.WorkerSlow: ("observed", _slow),
    ev.GenerationClosed: ("decided", _closed),
    ev.TransitionOrdered: ("decided", _ordered),
    ev.TransitionCompleted: ("decided", _completed),
}

#: Event types that have words; a test holds this equal to the union.
WORDED: Final = frozenset(_TABLE)
