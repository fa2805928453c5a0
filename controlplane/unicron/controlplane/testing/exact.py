"""Faults that name exactly whom they hit and how: what incidents have besides faults.KINDS."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final

import msgspec

from unicron.controlplane.testing import faults
from unicron.controlplane.testing.about import is_about
from unicron.controlplane.testing.options import Fault
from unicron.controlplane.testing.words import EVENTS
from unicron.events import (
    Beat,
    Envelope,
    Incarnation,
    NodeId,
    Quota,
    Recorded,
    Source,
    TaskId,
    WorkerId,
    encode,
    event_id,
    node_of,
    subjects,
)

if TYPE_CHECKING:
    from unicron.controlplane.runtime.engine import Engine
    from unicron.controlplane.testing.client import Client
    from unicron.controlplane.testing.scripted import Scripted
    from unicron.controlplane.testing.simulation import Simulation
    from unicron.controlplane.testing.trainee import Trainee

#: For what is never mended.
FOR_GOOD_MS: Final = 10**9


# --- Workers --------------------------------------------------------------------------------------


def _signal(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    phase = trainee.phase
    sim.hosts[trainee.node].kill(trainee, fault.pick)
    return f"{trainee.life[0]} is killed by signal {fault.pick} in {phase}"


def _exit(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    phase = trainee.phase
    sim.hosts[trainee.node].kill(trainee, None, fault.pick)
    return f"{trainee.life[0]} exits with code {fault.pick} in {phase}"


def _stand_still(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    def go_on() -> None:
        trainee.hung = False
        trainee.wake()

    trainee.hung = True
    sim.later(fault.for_ms, go_on)
    return f"{trainee.life[0]} stands still for {fault.for_ms} ms in {trainee.phase}"


def _cut_worker(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    client = trainee.client
    if client is None:
        return ""

    def mend() -> None:
        if trainee.alive and not sim.hosts[trainee.node].is_cut:
            client.connect()

    client.disconnect()
    sim.later(fault.for_ms, mend)
    return f"{trainee.life[0]} alone can't reach the log for {fault.for_ms} ms"


def _bad_code(sim: Scripted, fault: Fault) -> str:
    """Every life of the task's workers raises in the phase, from now on."""
    kind, _, phase = fault.detail.partition("@")

    def spoil(trainee: Trainee) -> None:
        trainee.trap = (phase, lambda: trainee.raise_exception(kind, "the task's code is wrong"))

    sim.spoilt[TaskId(fault.target)] = spoil
    for host in sim.hosts.values():
        for trainee in host.workers.values():
            if trainee.alive and trainee.spec.task == fault.target:
                spoil(trainee)
    return f"from now on every worker of {fault.target} raises {kind} in {phase}"


# --- Nodes ----------------------------------------------------------------------------------------


def _mute(sim: Simulation, fault: Fault) -> str:
    host = sim.hosts[fault.target]
    host.mute = True
    sim.later(fault.for_ms, lambda: setattr(host, "mute", False))
    return f"the beats of {host.name} get lost for {fault.for_ms} ms"


def _old_beat(sim: Simulation, fault: Fault) -> str:
    host = sim.hosts[fault.target]
    life = fault.pick or host.incarnation
    sim.server.beat(Beat(node=host.name, incarnation=Incarnation(life), number=1, workers=()))
    return f"the first beat of {host.name} in its life {life} arrives once more"


def _start_agent(sim: Simulation, fault: Fault) -> str:
    sim.hosts[fault.target].start()
    return f"the agent of {fault.target} is started"


def _give_back(sim: Simulation, fault: Fault) -> str:
    node = NodeId(fault.target)
    return _ask(
        sim, f"give back {node}", lambda engine: engine.give_back(node, "operator", "repaired")
    )


# --- The log --------------------------------------------------------------------------------------


def _matching(sim: Simulation, fault: Fault) -> Recorded | None:
    """The nth entry (0: the last) of that event about that name."""
    found = [
        r
        for r in sim.log
        if r.envelope is not None
        and type(r.envelope.body).__name__ == fault.detail
        and (not fault.target or is_about(r.envelope, fault.target))
    ]
    return (
        found[fault.pick - 1]
        if 0 <= fault.pick - 1 < len(found) or (found and not fault.pick)
        else None
    )


def _store_again(sim: Simulation, fault: Fault) -> str:
    recorded = _matching(sim, fault)
    if recorded is None:
        return ""
    sim.server.write_raw(recorded.subject, recorded.data)
    return f"#{recorded.seq} is stored once more"


def _say_again(sim: Simulation, fault: Fault) -> str:
    recorded = _matching(sim, fault)
    if recorded is None:
        return ""
    sim.server.republish(recorded)
    return f"#{recorded.seq} is said once more"


def _unknown(sim: Simulation, fault: Fault) -> str:
    data = b'{"id":"agent/%s:9:1","body":{"type":"fan.slow.v1"}}' % fault.target.encode()
    sim.server.write_raw(subjects.fact(sim.server.cluster, NodeId(fault.target)), data)
    return f"a newer agent on {fault.target} writes an event that this version doesn't know"


def _says(sim: Simulation, fault: Fault) -> str:
    """A named source says a fact that it would not say by itself. `detail`: event, life, fields."""
    name, life, given = msgspec.json.decode(fault.detail)
    kind = EVENTS[name]
    worker = "/" in fault.target
    who = f"{'worker' if worker else 'agent'}/{fault.target}"
    node = node_of(WorkerId(fault.target)) if worker else NodeId(fault.target)
    known = sim.state.sources.get(who)
    incarnation = life or (known.incarnation if known is not None else 1)
    fields = own_fields(sim, fault.target, incarnation) | given
    wanted = {f.name for f in msgspec.structs.fields(kind)}
    said = {f: v for f, v in fields.items() if f in wanted}
    body = msgspec.convert(said | {"type": tag_of(name)}, kind)
    client = _living(sim, fault.target, incarnation)
    if client is not None:
        client.publish(body)
    else:
        source = Source(who=who, incarnation=Incarnation(incarnation), counter=1000)
        envelope = Envelope(id=event_id(source), source=source, written_at_ns=0, body=body)
        sim.server.write_raw(subjects.fact(sim.server.cluster, node), encode(envelope))
    return f"{who} in its life {incarnation} says {name}"


def _living(sim: Simulation, name: str, incarnation: int) -> Client | None:
    """The connection of that life of an agent or worker, if it lives."""
    host = sim.hosts.get(name)
    if host is not None:
        return host.client if host.up and host.incarnation == incarnation else None
    trainee = sim.hosts[node_of(WorkerId(name))].workers.get(WorkerId(name))
    lives = trainee is not None and trainee.alive and trainee.life[1] == incarnation
    return trainee.client if trainee is not None and lives else None


def tag_of(name: str) -> str:
    """The wire tag of an event type."""
    return str(EVENTS[name].__struct_config__.tag)


def own_fields(sim: Simulation, name: str, incarnation: int) -> dict[str, object]:
    """What a source needn't be told about itself."""
    worker = sim.state.workers.get(name)
    if worker is None:
        return {"node": name}
    task = sim.state.tasks[worker.task]
    return {
        "task": worker.task,
        "worker": name,
        "incarnation": incarnation,
        "generation": task.generation,
        "iteration": task.iteration,
        "phase": "forward",
    }


# --- The control plane ----------------------------------------------------------------------------


def _ask(sim: Simulation, what: str, ask: Callable[[Engine], Coroutine[None, None, object]]) -> str:
    leaders = [i for i in sim.instances if i.alive and i.engine.leading]
    for instance in leaders:
        instance.obey(ask)
    return f"an operator asks to {what}" if leaders else ""


def _kill_control(sim: Scripted, fault: Fault) -> str:
    """`pick`: through how many doors of its ports it still goes; `for_ms`: how long it is away."""
    living = [i for i in sim.instances if i.alive]
    if not living:
        return ""
    instance = living[-1]
    sim.away_ms = fault.for_ms
    if not fault.pick:
        instance.crash()
        return f"control plane {instance.name} is killed"
    instance.crash_after(fault.pick)
    return f"control plane {instance.name} is killed at its effect {fault.pick} from now"


def _planner(sim: Scripted, fault: Fault) -> str:
    faults.KINDS["planner"](sim, fault)
    if fault.detail == "dead":
        return "the planner dies at its next answer"
    return f"the planner's next answer is {fault.detail}"


def _submit_again(sim: Simulation, fault: Fault) -> str:
    spec = next(s.spec for s in sim.options.tasks if s.spec.task == fault.target)
    return _ask(
        sim, f"run {spec.task} once more", lambda engine: engine.submit(spec, by="operator")
    )


def _quota(sim: Simulation, fault: Fault) -> str:
    """`target`: the tenant; `pick`: how many devices of all kinds its tasks may hold."""
    planning = sim.state.planning
    others = [q for q in planning.quotas if q.tenant != fault.target]
    quota = Quota(tenant=fault.target, max_devices=fault.pick)
    asked = msgspec.structs.replace(planning, quotas=(*others, quota))
    what = f"let tenant {fault.target} hold {fault.pick} device{'' if fault.pick == 1 else 's'}"
    return _ask(sim, what, lambda engine: engine.configure(asked, by="operator"))


KINDS: Final[dict[str, Callable[[Scripted, Fault], str]]] = {
    **faults.KINDS,
    "signal": faults.on_worker(_signal),
    "exit": faults.on_worker(_exit),
    "standstill": faults.on_worker(_stand_still),
    "cut-worker": faults.on_worker(_cut_worker),
    "bad-code": _bad_code,
    "mute": _mute,
    "old-beat": _old_beat,
    "start-agent": _start_agent,
    "give-back": _give_back,
    "store-again": _store_again,
    "say-again": _say_again,
    "unknown-of": _unknown,
    "says": _says,
    "kill-control": _kill_control,
    "planner": _planner,
    "submit-again": _submit_again,
    "quota": _quota,
}
