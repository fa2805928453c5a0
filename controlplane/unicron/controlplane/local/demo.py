"""The demo: a real training task through a killed worker, one that hangs, one that raises, a lost
node and a joining one; then the same task undisturbed, and the comparison, bit for bit."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.local.cluster import ClusterFailed, LocalCluster
from unicron.controlplane.local.faultrows import FaultRow, batches, fault_rows
from unicron.controlplane.local.faults import KINDS, Fault
from unicron.controlplane.local.injector import Shot, fire
from unicron.controlplane.local.measure import Check, Work, checks, read_work
from unicron.controlplane.local.reference import Reference, run_reference
from unicron.controlplane.local.spec import demo_task
from unicron.controlplane.replay.export import export_history
from unicron.controlplane.replay.replayer import Replayer
from unicron.events import ConfigError, Recorded, TaskSpec, UnicronError

START_NODES = ("n1", "n2")
LATER_NODE = "n3"
START_DEVICES = 4
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
    """Everything that is shown or printed as JSON. `reference` None: its run failed, and a check
    says why."""

    options: DemoOptions
    state: ClusterState
    events: list[Recorded]
    shots: list[Shot]
    rows: list[FaultRow]
    checks: list[Check]
    work: Work
    reference: Reference | None
    digest: str | None
    took_s: float

    @property
    def ok(self) -> bool:
        """Everything held."""
        return all(check.ok for check in self.checks)

    @property
    def bit_identical(self) -> bool:
        """Parameters and optimizer state equal the reference's."""
        return self.reference is not None and self.digest == self.reference.state_digest


Say = Callable[[str], None]


class Demo:
    """One run. `say` gets a line for each thing that a person would want to know at once;
    `progress` the iterations committed."""

    def __init__(
        self, options: DemoOptions, say: Say, progress: Callable[[str, int], None]
    ) -> None:
        self.options = options
        self.spec: TaskSpec = demo_task(options.iterations, options.seed)
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
            work = read_work(cluster.journals())
            reference = await self._reference(cluster)
            return self._result(events, state, work, reference, time.monotonic() - start)
        finally:
            await cluster.stop()
            self._put_away(root)

    async def _main_run(self, cluster: LocalCluster) -> None:
        self._say("starting nats-server, control plane, nodes n1 and n2 with two devices each")
        await cluster.start()
        await cluster.start_control(when_nodes=len(START_NODES))
        for node in START_NODES:
            await cluster.start_agent(node)
        await cluster.until("the task trains", _trains(START_DEVICES), 120.0)
        self._say(
            f"workers ready: task {self.spec.task} trains at DP {START_DEVICES}, "
            f"{self.spec.micro_batches} micro-batches an iteration"
        )
        watching = asyncio.create_task(self._watch(cluster))
        try:
            for fault in self.options.faults:
                await self._inject(cluster, fault)
            await self._third_node(cluster)
            await cluster.until("the task ends", _ended, _TRAIN_LIMIT_S)
            await cluster.until("its workers are stopped", _stopped, 30.0)
        finally:
            watching.cancel()

    async def _inject(self, cluster: LocalCluster, fault: Fault) -> None:
        await cluster.until("the task is whole again", _whole, 120.0)
        kind = KINDS[fault.kind]
        shot = await fire(cluster, self._not_too_late(fault, _committed(cluster)), 120.0)
        self._shots.append(shot)
        self._say(
            f"{kind.words} {fault.target} in iteration {shot.iteration} "
            f"({shot.phase}, {batches(shot.done)} done)"
        )
        if kind.harms:
            await cluster.until("it is noticed", lambda s: _noticed(s, shot), 30.0)

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
            await cluster.until("the task is whole again", _whole, 120.0)
        else:
            at = int(JOIN_AT * self.options.iterations)
            await self._until_iteration(cluster, at)
        if _ended(cluster.state):
            return
        self._say(f"starting node {LATER_NODE} with two devices")
        await cluster.start_agent(LATER_NODE)

    async def _until_iteration(self, cluster: LocalCluster, iteration: int) -> None:
        while not _ended(cluster.state) and _committed(cluster) < iteration:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # pages of other processes: nobody can set an event

    async def _watch(self, cluster: LocalCluster) -> None:
        """Progress, and a line for each incident and each change of size."""
        said: set[str] = set()
        size = START_DEVICES
        while True:
            await asyncio.sleep(0.1)
            self._progress("training", _committed(cluster))
            state = cluster.state
            for incident in sorted(state.incidents.values(), key=lambda i: i.opened):
                if incident.incident not in said:
                    said.add(incident.incident)
                    self._say(f"{incident.incident} SEV{incident.severity}: {incident.what}")
            task = state.tasks.get(self.spec.task)
            if task is not None and task.phase == "running" and len(task.members) != size:
                size = len(task.members)
                self._say(
                    f"task {self.spec.task} trains at DP {size}, generation {task.generation}"
                )

    # --- the end ----------------------------------------------------------------------------------

    async def _reference(self, cluster: LocalCluster) -> Reference | UnicronError:
        """The undisturbed run, or why there is none: what the main run showed is told anyway."""
        try:
            template = await cluster.living_template()
            self._say("the same task again, undisturbed, for reference")
            return await run_reference(
                cluster.root,
                template,
                self.spec,
                START_DEVICES,
                lambda done: self._progress("reference", done),
            )
        except UnicronError as error:
            self._say(f"the reference run failed: {error.what}")
            return error

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

    def _result(
        self,
        events: list[Recorded],
        state: ClusterState,
        work: Work,
        reference: Reference | UnicronError,
        took_s: float,
    ) -> DemoResult:
        digest = next(iter(state.tasks[self.spec.task].finished.values()), None)
        held = checks(self.spec, state, events, work)
        held += _compared(self.spec, digest, work, reference)
        held.append(_replays(events))
        return DemoResult(
            options=self.options,
            state=state,
            events=events,
            shots=self._shots,
            rows=fault_rows(self._shots, state, events, work),
            checks=held,
            work=work,
            reference=reference if isinstance(reference, Reference) else None,
            digest=digest,
            took_s=took_s,
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


def _compared(
    spec: TaskSpec, digest: str | None, ours: Work, reference: Reference | UnicronError
) -> list[Check]:
    """Final state and losses against the reference's."""
    same, losses = (
        "the final state is bit-identical",
        "the loss of every iteration is the reference's",
    )
    if isinstance(reference, UnicronError):
        detail = f"can't be said: the reference run failed, {reference.what}"
        return [Check(name=name, ok=False, detail=detail) for name in (same, losses)]
    theirs = reference.work
    wrong = [
        i
        for i in range(spec.iterations)
        if len(ours.losses.get(i, ())) != 1 or ours.losses[i] != theirs.losses.get(i)
    ]
    return [
        Check(
            name=same,
            ok=digest == reference.state_digest,
            detail=f"{(digest or '?')[:16]} against {reference.state_digest[:16]}",
        ),
        Check(
            name=losses,
            ok=not wrong,
            detail=f"{spec.iterations} iterations" if not wrong else f"not in {wrong[:8]}",
        ),
    ]


def _replays(events: list[Recorded]) -> Check:
    name = "the log replays, and every decision is decided again"
    try:
        report = Replayer(events).verify()
        report.require()
    except UnicronError as error:
        return Check(name=name, ok=False, detail=error.what)
    return Check(name=name, ok=True, detail=f"{report.events} events, {report.redecided} decisions")


def _committed(cluster: LocalCluster) -> int:
    """Iterations committed by any worker, from their pages."""
    from unicron.worker_shim.page import PageReader

    newest = 0
    for worker in cluster.state.workers.values():
        reader = PageReader(cluster.page_path(worker.worker, worker.incarnation))
        progress = reader.read()
        reader.close()
        if progress is not None:
            newest = max(newest, progress.iteration)
    return newest


def _trains(devices: int) -> Callable[[ClusterState], bool]:
    def holds(state: ClusterState) -> bool:
        task = next(iter(state.tasks.values()), None)
        return task is not None and task.phase == "running" and len(task.members) == devices

    return holds


def _ended(state: ClusterState) -> bool:
    return bool(state.tasks) and all(
        t.phase in ("completed", "failed") for t in state.tasks.values()
    )


def _stopped(state: ClusterState) -> bool:
    return all(w.status in ("exited", "lost", "failed") for w in state.workers.values())


def _whole(state: ClusterState) -> bool:
    """No incident is open and the running generation has proved itself (or all is over)."""
    if _ended(state):
        return True
    if any(not i.resolved for i in state.incidents.values()):
        return False
    return all(
        t.phase == "running" and set(t.committed) == {m.worker for m in t.members}
        for t in state.tasks.values()
    )


def _noticed(state: ClusterState, shot: Shot) -> bool:
    if _ended(state):
        raise ClusterFailed("the task ended before the fault was noticed", code="E-FAULT-MISSED")
    return any(any(e > shot.seq for e in i.evidence) for i in state.incidents.values())
