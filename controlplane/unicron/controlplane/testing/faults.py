"""What can go wrong in a simulated cluster: each kind does it once, if it can be done now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unicron.controlplane.runtime.ports import Hold
from unicron.controlplane.testing.options import Fault
from unicron.controlplane.testing.trainee import Trainee
from unicron.controlplane.testing.training import TORCH
from unicron.events import NodeId, subjects

if TYPE_CHECKING:
    from unicron.controlplane.testing.hosts import Host
    from unicron.controlplane.testing.simulation import Simulation

#: Does it, and says what it did; "" if there was nothing to do it to.
Kind = Callable[["Simulation", Fault], str]

#: Phases in which a worker can be hit, as its progress page names them.
PHASES: Final = (
    "build",
    "prepared",
    "regroup",
    "transfer",
    "forward",
    "reduction",
    "vote",
    "voted",
    "quiesced",
)
EXCEPTIONS: Final = (
    "software",
    "loss.not_finite",
    "out_of_memory",
    "cuda.error",
    "cuda.ecc",
    "network.error",
    "something.new",
)
_OTHER_TORCH: Final = "3"
_SIGNALS: Final = (9, 11, 6, 9, 15, 9, 7, None)


# --- Workers --------------------------------------------------------------------------------------


def _trainee(sim: Simulation, fault: Fault) -> Trainee | None:
    living = [t for h in sim.hosts.values() for t in h.workers.values() if t.alive and not t.hung]
    if fault.target:
        living = [t for t in living if t.life[0] == fault.target]
    return living[fault.pick % len(living)] if living else None


def on_worker(act: Callable[[Simulation, Fault, Trainee], str]) -> Kind:
    """Do it to a worker: now, or once it comes to the phase in `detail`, if there is one."""

    def do(sim: Simulation, fault: Fault) -> str:
        trainee = _trainee(sim, fault)
        if trainee is None:
            return ""
        phase = fault.detail.partition("@")[2]
        if not phase or trainee.phase == phase:
            return act(sim, fault, trainee)
        trainee.trap = (phase, lambda: sim.fired(fault, act(sim, fault, trainee)))
        return ""

    return do


def _kill(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    signal, phase = _SIGNALS[fault.pick % len(_SIGNALS)], trainee.phase
    sim.hosts[trainee.node].kill(trainee, signal, None if signal else 1)
    return f"{trainee.life[0]} ends in {phase}, signal {signal}"


def _hang(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    trainee.hung = True
    return f"{trainee.life[0]} hangs in {trainee.phase}"


def _unkillable(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    trainee.hung = True
    sim.hosts[trainee.node].unkillable.add(trainee.life[0])
    return f"{trainee.life[0]} hangs in the kernel, in {trainee.phase}"


def _raise(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    if trainee.client is None:
        return ""
    kind = fault.detail.partition("@")[0] or "software"
    trainee.raise_exception(kind, "told to fail")
    return f"{trainee.life[0]} raises {kind}"


def _reset(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    if not trainee.waits:
        return ""
    phase = trainee.phase
    trainee.break_off("connection reset by peer")
    trainee.wake()
    return f"{trainee.life[0]} loses its connections in {phase}"


def _slow(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    trainee.slowness_percent = 300
    sim.later(fault.for_ms, lambda: setattr(trainee, "slowness_percent", 100))
    return f"{trainee.life[0]} is three times as slow for {fault.for_ms} ms"


def _section(sim: Simulation, fault: Fault, trainee: Trainee) -> str:
    """A long section that was declared: nobody is to be blamed for it."""
    if trainee.stage != "compute":
        return ""
    trainee.section_ms = fault.for_ms
    sim.declared.add(trainee.life)
    return f"{trainee.life[0]} is in a declared section for {fault.for_ms // 2} ms"


# --- Nodes ----------------------------------------------------------------------------------------


def _host(sim: Simulation, fault: Fault, *, up: bool = True) -> Host | None:
    found = [h for h in sim.hosts.values() if h.up == up]
    if fault.target:
        found = [h for h in found if h.name == fault.target]
    return found[fault.pick % len(found)] if found else None


def _power_off(sim: Simulation, fault: Fault) -> str:
    host = _host(sim, fault)
    if host is None:
        return ""
    seen = fault.detail == "seen"
    host.power_off(0.0 if seen else 4.0)
    sim.later(fault.for_ms, lambda: sim.bring_up(host))
    return f"node {host.name} loses power, {'and its connections close' if seen else 'silently'}"


def _kill_agent(sim: Simulation, fault: Fault) -> str:
    host = _host(sim, fault)
    if host is None:
        return ""
    host.kill_agent()
    sim.later(fault.for_ms, lambda: sim.bring_up(host))
    return f"the agent of {host.name} is killed, its workers live on"


def _stop_agent(sim: Simulation, fault: Fault) -> str:
    host = _host(sim, fault)
    if host is None or len(sim.hosts) < 2:
        return ""
    host.stop("it was told to stop")
    sim.later(fault.for_ms, lambda: sim.bring_up(host))
    return f"the agent of {host.name} is told to stop"


def _join(sim: Simulation, fault: Fault) -> str:
    if len(sim.hosts) >= sim.options.nodes_max and not fault.target:
        return ""
    host = sim.add_host(fault.target or f"n{len(sim.hosts) + 1}", 2 + fault.pick % 3)
    host.start()
    return f"node {host.name} comes, with {host.devices} devices"


def _cut(sim: Simulation, fault: Fault) -> str:
    host = _host(sim, fault)
    if host is None or host.is_cut:
        return ""
    host.cut(0.0 if fault.detail == "seen" else 4.0)
    sim.later(fault.for_ms, host.mend)
    return f"node {host.name} can't reach the log for {fault.for_ms} ms"


def _dead_device(sim: Simulation, fault: Fault) -> str:
    host = _host(sim, fault)
    if host is None:
        return ""
    device = fault.pick % host.devices
    host.dead_devices.add(device)
    sim.later(fault.for_ms, lambda: host.dead_devices.discard(device))
    return f"nothing starts on device {device} of {host.name} for {fault.for_ms} ms"


def _other_software(sim: Simulation, fault: Fault) -> str:
    """Somebody installs another version: whoever starts there computes other bits."""
    host = _host(sim, fault)
    if host is None or host.torch != TORCH:
        return ""
    host.torch = _OTHER_TORCH
    sim.later(fault.for_ms, host.reinstall)
    return f"what starts on {host.name} runs other software for {fault.for_ms} ms"


def _store(sim: Simulation, fault: Fault) -> str:
    host = _host(sim, fault)
    if host is None or not host.store_port:
        return ""
    host.lose_store()
    return f"the store of {host.name} is killed"


# --- The log --------------------------------------------------------------------------------------


def _outage(sim: Simulation, fault: Fault) -> str:
    """The server is away for everybody."""
    cut = [h for h in sim.hosts.values() if h.up and not h.is_cut]
    instances = [i for i in sim.instances if i.alive and i.link.up]
    for host in cut:
        host.cut(0.0)
    for instance in instances:
        instance.cut()

    def over() -> None:
        for instance in instances:
            instance.mend()
        for host in cut:
            host.mend()

    sim.later(fault.for_ms, over)
    return f"the log is away for {fault.for_ms} ms"


def _repeat_fact(sim: Simulation, fault: Fault) -> str:
    """The log stores a fact twice: a retry beyond the duplicate window."""
    facts = [r for r in sim.log if subjects.tree_of(r.subject) == "fact"]
    if not facts:
        return ""
    fact = facts[-1 - fault.pick % min(50, len(facts))]
    sim.server.write_raw(fact.subject, fact.data)
    return f"#{fact.seq} is stored once more"


def _old_order(sim: Simulation, fault: Fault) -> str:
    """An order from long ago arrives once more."""
    orders = [r for r in sim.log if subjects.tree_of(r.subject) == "control"]
    if not orders:
        return ""
    order = orders[-1 - fault.pick % len(orders)]
    sim.server.republish(order)
    return f"#{order.seq} is said once more"


def _unknown_event(sim: Simulation, fault: Fault) -> str:
    """Written by a newer version of an agent."""
    data = b'{"id":"x:1:%d","body":{"type":"fan.slow.v1"}}' % fault.pick
    sim.server.write_raw(subjects.fact(sim.server.cluster, NodeId("n1")), data)
    return "a newer agent writes an event that this version doesn't know"


# --- The control plane ----------------------------------------------------------------------------


def _crash(sim: Simulation, fault: Fault) -> str:
    living = [i for i in sim.instances if i.alive]
    if not living:
        return ""
    instance, effects = living[fault.pick % len(living)], fault.pick % 7
    instance.crash_after(effects)
    return f"control plane {instance.name} is killed at its effect {effects} from now"


def _stop(sim: Simulation, fault: Fault) -> str:
    living = [i for i in sim.instances if i.alive]
    if not living:
        return ""
    instance = living[fault.pick % len(living)]
    instance.stop()
    sim.later(fault.for_ms, instance.go_on)
    return f"control plane {instance.name} is stopped for {fault.for_ms} ms"


def _cut_control(sim: Simulation, fault: Fault) -> str:
    living = [i for i in sim.instances if i.alive and i.link.up]
    if not living:
        return ""
    instance = living[fault.pick % len(living)]
    instance.cut()
    sim.later(fault.for_ms, instance.mend)
    return f"control plane {instance.name} can't reach the log for {fault.for_ms} ms"


def _second_leader(sim: Simulation, fault: Fault) -> str:
    if sum(i.alive for i in sim.instances) > 1:
        return ""
    name = "b" if any(i.alive and i.name == "a" for i in sim.instances) else "a"
    sim.start_instance(name)
    return f"another control plane begins: {name}"


def _lease(sim: Simulation, fault: Fault) -> str:
    """Lost by its keeper, or let go by hand while its holder leads: two may lead at once."""
    stream = sim.server.stream
    if not stream.hold.holder:
        return ""
    holder = stream.hold.holder.partition("/")[0]
    lost = fault.detail == "lost"
    stream.hold = Hold() if lost else Hold("", stream.hold.revision + 1)
    return f"the lease of {holder} is {'lost' if lost else 'let go'}"


def _planner(sim: Simulation, fault: Fault) -> str:
    delay_ms = {"late": 12_000, "lost": 0, "dead": 300, "wrong": 400}[fault.detail]
    sim.moods.append((delay_ms, fault.detail))
    return f"the planner's next answer: {fault.detail}"


def _submit(sim: Simulation, fault: Fault) -> str:
    return sim.submit_another(fault.pick)


KINDS: Final[dict[str, Kind]] = {
    "kill": on_worker(_kill),
    "hang": on_worker(_hang),
    "exception": on_worker(_raise),
    "reset": on_worker(_reset),
    "slow": on_worker(_slow),
    "section": on_worker(_section),
    "unkillable": on_worker(_unkillable),
    "power": _power_off,
    "agent": _kill_agent,
    "stop-agent": _stop_agent,
    "join": _join,
    "cut": _cut,
    "device": _dead_device,
    "store": _store,
    "software": _other_software,
    "outage": _outage,
    "repeat": _repeat_fact,
    "old-order": _old_order,
    "unknown": _unknown_event,
    "crash": _crash,
    "stop": _stop,
    "cut-control": _cut_control,
    "second": _second_leader,
    "lease": _lease,
    "planner": _planner,
    "submit": _submit,
}
