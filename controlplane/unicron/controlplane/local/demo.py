"""The demo: two real training tasks through a killed worker, one that hangs, one that raises, a
lost node, which makes the lighter task give a device to the heavier one, and a joining node; then
the same tasks undisturbed, and the comparison, bit for bit."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local.cluster import LocalCluster
from unicron.controlplane.local.compared import TaskOutcome, outcome_of, verdicts
from unicron.controlplane.local.faultrows import FaultRow, batches, fault_rows
from unicron.controlplane.local.faults import KINDS, Fault
from unicron.controlplane.local.injector import Shot, fire
from unicron.controlplane.local.measure import Check, read_works
from unicron.controlplane.local.moments import ended, noticed, stopped, trains, whole
from unicron.controlplane.local.pacing import Pacing, committed
from unicron.controlplane.local.reference import Reference, run_reference
from unicron.controlplane.local.spec import two_tasks
from unicron.controlplane.replay.export import export_history
from unicron.events import ConfigError, Recorded, UnicronError

START_NODES = ("n1", "n2")
LATER_NODE = "n3"
#: Devices of the first nodes, half of them for each task, and of the later one.
NODE_DEVICES, LATER_DEVICES = 4, 2
START_DEVICES = 4
#: Of the undisturbed runs; what they come to doesn't depend on it.
REFERENCE_RANKS = 2
#: Where the task has to be for the third node to come when no fault made room for it.
JOIN_AT = 0.6
#: How far behind the place where the task stands a fault is put whose iteration is over by then.
_LATER = 2
_TRAIN_LIMIT_S = 900.0
_TEMP_PATH_MAX = 75


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for. `url` None: a server of the demo's own."""

    iterations: int
    seed: int
    faults: tuple[Fault, ...]
    log_path: Path
    keep: Path | None = None
    url: str | None = None
    port: int | None = None
    cluster: str = "demo"


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is shown or printed as JSON. `tasks`: the heavier one first."""

    options: DemoOptions
    state: ClusterState
    events: list[Recorded]
    shots: list[Shot]
    rows: list[FaultRow]
    checks: list[Check]
    tasks: tuple[TaskOutcome, ...]
    took_s: float

    @property
    def ok(self) -> bool:
        """Everything held."""
        return all(check.ok for check in self.checks)

    @property
    def bit_identical(self) -> bool:
        """Parameters and optimizer state of each task equal its reference's."""
        return all(task.bit_identical for task in self.tasks)


Say = Callable[[str], None]


class Demo:
    """One run. `say` gets a line for each thing that a person would want to know at once;
    `progress` the iterations of the heavier task that are committed."""

    def __init__(
        self, options: DemoOptions, say: Say, progress: Callable[[str, int], None]
    ) -> None:
        self.options = options
        self.spec, self.light = two_tasks(options.iterations, options.seed)
        self._say = say
        self._progress = progress
        self._shots: list[Shot] = []

    async def run(self) -> DemoResult:
        """The whole demo.

        Raises:
            ConfigError, ClusterFailed: it could not be run to its end. Nothing is left behind.
        """
        start = time.monotonic()
        root = _run_folder()
        options = self.options
        cluster = LocalCluster(
            root,
            options.cluster,
            self.spec,
            beside=(self.light,),
            devices=NODE_DEVICES,
            url=options.url,
            port=options.port,
            on_restart=self._say,
        )
        try:
            try:
                await self._main_run(cluster)
            except Exception:
                self._write_log(cluster)  # it tells what went wrong
                raise
            events, state = list(cluster.events), cluster.state  # what follows is our own exit
            self._write_log(cluster)
            works = read_works(cluster.journals(), events)
            undisturbed = await self._references(cluster)
            tasks = tuple(
                outcome_of(spec, state, works[spec.task], undisturbed[spec.task])
                for spec in cluster.specs
            )
            return DemoResult(
                options=options,
                state=state,
                events=events,
                shots=self._shots,
                rows=fault_rows(self._shots, state, events, works),
                checks=verdicts(tasks, state, events),
                tasks=tasks,
                took_s=time.monotonic() - start,
            )
        finally:
            await cluster.stop()
            self._put_away(root)

    async def _main_run(self, cluster: LocalCluster) -> None:
        self._say("starting nats-server, control plane, nodes n1 and n2 with four devices each")
        await cluster.start()
        await cluster.start_control(when_nodes=len(START_NODES))
        for node in START_NODES:
            await cluster.start_agent(node)
        sizes = {spec.task: START_DEVICES for spec in cluster.specs}
        beside = [asyncio.create_task(Pacing(cluster, self.light, self.spec).run())]
        try:
            await cluster.until("both tasks train", trains(sizes), 120.0)
            self._say(
                f"workers ready: tasks {self.spec.task} and {self.light.task} train at DP "
                f"{START_DEVICES} each, {self.spec.micro_batches} micro-batches an iteration; "
                f"{self.light.task} weighs a quarter, and sleeps before each of them to leave "
                f"the cores to {self.spec.task}; their devices share cores, so plans go by what is "
                "assumed of devices, not by how long iterations are measured to take"
            )
            beside.append(asyncio.create_task(self._watch(cluster)))
            for fault in self.options.faults:
                await self._inject(cluster, fault)
            await self._third_node(cluster)
            await cluster.until("the tasks end", ended, _TRAIN_LIMIT_S)
            await cluster.until("their workers are stopped", stopped, 30.0)
            await beside[0]  # it has ended with the heavier task; if it failed, say so
        finally:
            for task in beside:
                task.cancel()

    async def _inject(self, cluster: LocalCluster, fault: Fault) -> None:
        await cluster.until("the tasks are whole again", whole, 120.0)
        kind = KINDS[fault.kind]
        shot = await fire(cluster, self._not_too_late(fault, committed(cluster, self.spec)), 120.0)
        self._shots.append(shot)
        self._say(
            f"{kind.words} {fault.target} in iteration {shot.iteration} "
            f"({shot.phase}, {batches(shot.done)} done)"
        )
        if kind.harms:
            await cluster.until("it is noticed", lambda s: noticed(s, shot), 30.0)

    def _not_too_late(self, fault: Fault, at: int) -> Fault:
        """A fault before it may have taken longer than the room it had: then it comes later."""
        later = at + _LATER
        if not at >= fault.iteration > 0 or later >= self.options.iterations:
            return fault
        self._say(f"{fault}: the task is already in iteration {at}, so it comes in {later}")
        return msgspec.structs.replace(fault, iteration=later)

    async def _third_node(self, cluster: LocalCluster) -> None:
        """It comes when the faults are dealt with, or late in an undisturbed run."""
        if self.options.faults:
            await cluster.until("the tasks are whole again", whole, 120.0)
        else:
            at = int(JOIN_AT * self.options.iterations)
            await self._until_iteration(cluster, at)
        if ended(cluster.state):
            return
        self._say(f"starting node {LATER_NODE} with two devices")
        await cluster.start_agent(LATER_NODE, LATER_DEVICES)

    async def _until_iteration(self, cluster: LocalCluster, iteration: int) -> None:
        while not ended(cluster.state):
            if committed(cluster, self.spec) >= iteration:
                return
            await asyncio.sleep(0.1)  # pages of other processes: nobody can set an event

    async def _watch(self, cluster: LocalCluster) -> None:
        """Progress, and a line for each incident and each change of size."""
        said: set[str] = set()
        sizes = {str(spec.task): START_DEVICES for spec in cluster.specs}
        while True:
            await asyncio.sleep(0.1)
            self._progress("training", committed(cluster, self.spec))
            state = cluster.state
            for incident in sorted(state.incidents.values(), key=lambda i: i.opened):
                if incident.incident not in said:
                    said.add(incident.incident)
                    self._say(f"{incident.incident} SEV{incident.severity}: {incident.what}")
            for name, task in state.tasks.items():
                size = len(task.members)
                if task.phase == "running" and sizes[name] != size:
                    sizes[name] = size
                    self._say(f"task {name} trains at DP {size}, generation {task.generation}")

    # --- the end ----------------------------------------------------------------------------------

    async def _references(self, cluster: LocalCluster) -> dict[str, Reference | UnicronError]:
        """The undisturbed runs, or why there are none: what the main run showed is told anyway."""
        self._say("the same tasks again, undisturbed, for reference")
        found: dict[str, Reference | UnicronError] = {}
        for spec in cluster.specs:
            name = "reference" if spec is self.spec else f"reference of {spec.task}"

            def told(done: int, name: str = name) -> None:
                self._progress(name, done)

            try:
                template = await cluster.living_template()
                found[spec.task] = await run_reference(
                    cluster.root, template, spec, REFERENCE_RANKS, told
                )
            except UnicronError as error:
                self._say(f"the reference run of {spec.task} failed: {error.what}")
                found[spec.task] = error
        return found

    def _write_log(self, cluster: LocalCluster) -> None:
        if not cluster.events:
            return
        export_history(
            self.options.log_path,
            cluster.events,
            cluster=cluster.name,
            birth=cluster.birth,
            version=cluster.version,
        )

    def _put_away(self, root: Path) -> None:
        keep = self.options.keep
        if keep is not None:
            ignored = shutil.ignore_patterns("*.sock", "passwords.json", "*.conf")
            shutil.copytree(root, keep, ignore=ignored, dirs_exist_ok=True)
        shutil.rmtree(root, ignore_errors=True)


def _run_folder() -> Path:
    """A temporary folder whose path leaves room for the unix sockets in it (107 bytes in all)."""
    if len(tempfile.gettempdir()) > _TEMP_PATH_MAX:
        raise ConfigError(
            f"the path of the temporary folder is too long: {tempfile.gettempdir()}",
            why=f"unix sockets live in it; {_TEMP_PATH_MAX} characters leave room for their names",
            fix="set TMPDIR to a shorter path, such as /tmp",
            code="E-TMPDIR",
        )
    return Path(tempfile.mkdtemp(prefix="unicron-"))
