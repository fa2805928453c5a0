"""What can go wrong in a World, each as a function that does it once, if it can be done now."""

import msgspec

from tests.core.hosts import Node
from tests.core.trainee import Trainee
from tests.core.world import World
from unicron import events as ev
from unicron.controlplane.core.state import FOLD_VERSION
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.controlplane.testing.faults import EXCEPTIONS
from unicron.worker_shim import supervision


def _node(world: World, *, up: bool = True) -> Node | None:
    nodes = [n for n in world.nodes.values() if n.up == up]
    return world.rng.choice(nodes) if nodes else None


def _trainee(world: World) -> Trainee | None:
    """Somebody in a stage of training that chance has chosen first: short ones are hit as often
    as those in which most time is spent."""
    stages = sorted({t.stage for t in world.living()})
    if not stages:
        return None
    stage = world.rng.choice(stages)
    return world.rng.choice([t for t in world.living() if t.stage == stage])


def kill_worker(world: World) -> None:
    trainee = _trainee(world)
    if trainee is not None:
        signal = world.rng.choice([9, 11, 6, None])
        world.kill(world.nodes[trainee.node], trainee.life[0], signal)


def raise_exception(world: World) -> None:
    """Its training step raises: it says so and ends; which is heard first is open."""
    trainee = _trainee(world)
    if trainee is None or trainee.hung:
        return
    trainee.report(world.rng.choice(EXCEPTIONS), "it broke")
    world.kill(world.nodes[trainee.node], trainee.life[0], None)


def hang(world: World) -> None:
    """It does nothing any more; only SIGKILL helps."""
    trainee = _trainee(world)
    if trainee is not None:
        trainee.hung = True


def link_breaks(world: World) -> None:
    """A collective breaks between two healthy members."""
    trainee = _trainee(world)
    if trainee is not None and trainee.waits:
        trainee.break_off("connection reset")


def kill_node(world: World) -> None:
    """Power off."""
    node = _node(world)
    if node is None:
        return
    node.up, node.store_port = False, 0
    for name in list(node.workers):
        world.kill(node, name)
        node.workers[name].outbox.clear()
    node.outbox.clear()
    world.disconnect("agent", node.name, node.incarnation)


def kill_agent(world: World) -> None:
    """The agent dies and comes again; it kills what the earlier one left."""
    node = _node(world)
    if node is None:
        return
    world.disconnect("agent", node.name, node.incarnation)
    node.outbox.clear()
    node.up = False
    world.start_node(node.name)


def stop_agent(world: World) -> None:
    """An operator stops it: workers first, then the news."""
    node = _node(world)
    if node is None or len(world.nodes) < 2:
        return
    world.act(node, supervision.close(node.table, 0))
    for name in list(node.workers):
        world.kill(node, name)
    node.outbox.append(ev.AgentStopped(node=node.name, reason="it was told to stop"))
    world.disconnect("agent", node.name, node.incarnation)
    node.up, node.store_port = False, 0


def node_comes(world: World) -> None:
    """A new node, or one that was down."""
    down = _node(world, up=False)
    if down is not None and world.rng.random() < 0.7:
        world.start_node(down.name)
    elif len(world.nodes) < 5:
        world.start_node(f"n{len(world.nodes) + 1}")


def cut(world: World) -> None:
    """The node can't reach the log: facts wait, orders are lost, its connections close."""
    node = _node(world)
    if node is None or node.cut:
        return
    node.cut = True
    node.inbox.clear()
    world.disconnect("agent", node.name, node.incarnation)
    for name, trainee in node.workers.items():
        if trainee.alive:
            world.disconnect("worker", name, trainee.life[1])


def mend(world: World, node: Node | None = None) -> None:
    """The node reaches the log again."""
    node = node or _node(world)
    if node is None or not node.cut:
        return
    node.cut = False
    if node.up:
        world.connect("agent", node.name, node.incarnation)
    for name, trainee in node.workers.items():
        if trainee.alive:
            world.connect("worker", name, trainee.life[1])


def unkillable(world: World) -> None:
    """A worker hangs in the kernel: it can't be killed either."""
    trainee = _trainee(world)
    if trainee is not None:
        trainee.hung = True
        world.nodes[trainee.node].unkillable.add(trainee.life[0])


def cannot_start(world: World) -> None:
    """From now on, or no longer, nothing starts on a device."""
    node = _node(world)
    if node is not None:
        node.dead_devices ^= {world.rng.randrange(node.devices)}


def repeat_fact(world: World) -> None:
    """The log holds something twice: a retry whose answer was lost."""
    recorded = world.rng.choice(world.log)
    world.append_raw(recorded.subject, recorded.data)


def store_dies(world: World) -> None:
    """The agent starts another one, which may be heard of late."""
    node = _node(world)
    if node is not None:
        node.store_port = world.free_port()
        bound = ev.StoreBound(node=node.name, address="127.0.0.1", store_port=node.store_port)
        node.outbox.append(bound)


def wrong_opinion(world: World) -> None:
    """The monitor is wrong about a node, and may be overtaken by a fact of it."""
    nodes = [n for n in world.state.nodes.values() if n.status == "healthy"]
    if nodes:
        node = world.rng.choice(nodes)
        late = world.rng.random() < 0.5
        world.land_some_fact()
        world.input(
            ev.NodeSuspected(
                node=node.node,
                incarnation=node.incarnation,
                newest_fact=node.last_fact if late else world.state.nodes[node.node].last_fact,
                evidence="silent for 2000 ms",
            )
        )


def measured(world: World) -> None:
    """The monitor says what an iteration takes a task, right or wrong by any factor."""
    running = [t for t in world.state.tasks.values() if t.phase == "running"]
    if not running:
        return
    task, rng = world.rng.choice(running), world.rng
    world.input(
        ev.TaskMeasured(
            task=task.spec.task,
            generation=task.generation,
            tensor_parallel=1,
            pipeline_parallel=1,
            data_parallel=len(task.members),
            device_kind="cpu",
            iteration=rng.randint(0, task.spec.iterations),
            step_us=rng.choice([1, 10_000, 20_000, 2**50, rng.randint(1, 10**9)]),
            spread_us=0,
            samples=rng.randint(1, 9),
            transition_ms=rng.choice([None, 0, 200, 2**60]),
        )
    )


def limit_passes(world: World) -> None:
    world.pass_limit()


def solver_fails(world: World) -> None:
    if world.solving is not None:
        world.answer_plan(error="no answer")


def leader_changes(world: World) -> None:
    world.input(
        ev.LeadershipTaken(
            cluster="c",
            instance="i1",
            logic_version=LOGIC_VERSION,
            fold_version=FOLD_VERSION,
            version="test",
        )
    )


def node_returned(world: World) -> None:
    """An operator gives an isolated node back."""
    apart = [n for n in world.state.nodes.values() if n.status == "isolated"]
    if apart:
        node = world.rng.choice(apart)
        world.input(ev.NodeReturned(node=node.node, by="test", reason="repaired"))


def unknown_event(world: World) -> None:
    """Written by a newer version of an agent."""
    world.append_raw("unicron.c.fact.n1", b'{"id":"x:1:1","body":{"type":"fan.slow.v1"}}')


def configured(world: World) -> None:
    """An operator configures the cluster: quotas, speeds, failure rates."""
    rng = world.rng
    limits = [ev.Quota(tenant="lab", max_devices=n, kind=k) for n in (0, 1, 3) for k in ("", "cpu")]
    speeds = [ev.DeviceSpeed(kind="cpu", gflops=g) for g in (1, 500, 900_000)]
    planning = ev.Planning(
        quotas=tuple(rng.sample(limits, rng.randint(0, 1))),
        devices=tuple(rng.sample(speeds, rng.randint(0, 1))),
        node_mtbf_ms=rng.choice([0, 60_000, 10**9]),
        link_bytes_per_s=rng.choice([0, 10**6, 10**9]),
        measured_step_times=rng.choice([True, True, False]),
    )
    configure(world, planning)


def configure(world: World, planning: ev.Planning) -> None:
    if planning != world.state.planning:
        world.input(ev.ClusterConfigured(planning=planning, by="test", digest=""))


def submit(world: World) -> None:
    """Another task; some can't be run at all."""
    number = len(world.state.tasks)
    if number < 4:
        spec = msgspec.structs.replace(
            world.specs[0],
            task=ev.TaskId(f"t{number}"),
            weight_milli=world.rng.choice([100, 1000, 5000]),
            min_devices=world.rng.choice([0, 1, 2, 3]),
            max_devices=world.rng.choice([0, 3, 8, 8]),
            tenant=world.rng.choice(["", "lab"]),
            device_kinds=world.rng.choice([(), ("cpu",)]),
            min_gflops=world.rng.choice([0, 0, 50, 10**6]),
            priority=world.rng.choice([0, 5]),
            avoid=world.rng.choice([(), (ev.NodeId("n1"),)]),
        )
        world.input(ev.TaskSubmitted(spec=spec, by="test"))


WEIGHTS = {
    kill_worker: 12,
    raise_exception: 4,
    hang: 2,
    link_breaks: 4,
    kill_node: 2,
    kill_agent: 2,
    stop_agent: 1,
    node_comes: 6,
    cut: 2,
    mend: 6,
    unkillable: 1,
    cannot_start: 2,
    repeat_fact: 6,
    store_dies: 1,
    wrong_opinion: 3,
    measured: 4,
    limit_passes: 4,
    solver_fails: 3,
    leader_changes: 2,
    node_returned: 2,
    unknown_event: 1,
    submit: 8,
    configured: 3,
}


def anything(world: World) -> None:
    """One fault."""
    fault = world.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    world.watch.count(fault.__name__)
    fault(world)


def repair(world: World) -> None:
    """All that broke is mended, and one more node comes: what is left must end by itself. No quota
    keeps anybody out any more."""
    configure(world, ev.Planning())
    for node in list(world.nodes.values()):
        node.dead_devices.clear()
        mend(world, node)
        if not node.up:
            world.start_node(node.name)
    if len(world.nodes) < 6:
        world.start_node("n9")
