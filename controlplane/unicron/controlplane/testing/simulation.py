"""One run: a cluster on virtual time, its faults, and what must hold.

Three phases. Safety: things go wrong, and every invariant holds after every event. Liveness: what
broke is mended, and every task and incident comes to an end within a limit. Audit: the log is
replayed and judged (audit.py).
"""

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine
from functools import partial

from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.invariants import Violation, samples_violations
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.tables import ENDED
from unicron.controlplane.runtime.engine import Engine
from unicron.controlplane.runtime.memory import MemorySnapshots
from unicron.controlplane.testing import trace, virtual
from unicron.controlplane.testing.collective import Group, Life
from unicron.controlplane.testing.faults import KINDS
from unicron.controlplane.testing.hosts import Host
from unicron.controlplane.testing.instances import Instance
from unicron.controlplane.testing.network import Link
from unicron.controlplane.testing.options import Fault, Options, task_spec
from unicron.controlplane.testing.outcome import Outcome
from unicron.controlplane.testing.pace import Pace
from unicron.controlplane.testing.recount import Recount
from unicron.controlplane.testing.server import Server
from unicron.controlplane.testing.solver import PretendedSolver
from unicron.controlplane.testing.training import Training
from unicron.controlplane.testing.truth import Truth
from unicron.events import NodeId, Recorded, Sequence, TaskSpec, TransitionOrdered, WorkerId

CLUSTER = "sim"
_LOOK_S = 0.5
_SETTLE_S = 1.0
_ASK_AGAIN_MS = 2000
_REPAIR_MS = 5000


class Simulation:
    """Made for one run: `run(options)`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._loop = asyncio.get_running_loop()
        seed = options.seed
        self._net_rng = random.Random(f"{seed}:net")
        self._group_rng = random.Random(f"{seed}:group")
        self._rng = random.Random(f"{seed}:rest")
        self._lease_rng = random.Random(f"{seed}:lease")
        self.pace = Pace(options.pace, random.Random(f"{seed}:pace"))
        self.hosts: dict[str, Host] = {}
        self.instances: list[Instance] = []
        self.server = Server(CLUSTER, self._stored, window_ms=options.window_ms)
        self._kept = MemorySnapshots()
        self.state = ClusterState()
        self.lines: list[str] = [trace.header()]
        self.violations: list[Violation] = []
        self.moods: list[tuple[int, str]] = []
        self.declared: set[Life] = set()
        self.fired_kinds: dict[str, int] = {}
        self._groups: dict[tuple[str, int], Group] = {}
        self._asked_for: dict[str, None] = {}
        self._specs = 0
        self._ports = 20_000
        self._healing = False
        self._truth = Truth(self)
        self._recount = Recount()

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._loop.time()

    @property
    def log(self) -> list[Recorded]:
        return self.server.stream.entries

    # --- The run ------------------------------------------------------------------------------

    async def run(self) -> Outcome:
        self._begin()
        if self.options.faults:
            self.later(self.options.faults_ms // 4, self._keep_busy)
            self.later(_REPAIR_MS, self._repairs)
        await self._until(lambda: False, self.options.faults_ms / 1000)
        self._healing = True
        self._note("simulator", "no more faults: everything is mended")
        self.pace.hurry()
        self._repair()
        return await self._finish(self.options.heal_ms / 1000)

    def _begin(self) -> None:
        """Everything that the options name comes at its time."""
        self._loop.set_exception_handler(self._raised)
        for node in self.options.nodes:
            host = self.add_host(node.name, node.devices, node.kind)
            self.later(node.at_ms, host.start)
        for submission in self.options.tasks:
            self._specs += 1
            self.later(submission.at_ms, partial(self._submit, submission.spec))
        for fault in self.options.faults:
            self.later(fault.at_ms, partial(self._fault, fault))
        for number in range(self.options.instances):
            self.start_instance("abcde"[number])

    async def _finish(self, limit_s: float) -> Outcome:
        """Everything must come to an end within the limit."""
        alive = await self._until(self._ended, limit_s)
        stuck = "" if alive or self.violations else self._why_stuck()
        if alive:
            await asyncio.sleep(_SETTLE_S)
        return self._outcome(stuck)

    def _outcome(self, stuck: str) -> Outcome:
        self._agree()
        return Outcome(
            seed=self.options.seed,
            seconds=self.now_s,
            log=tuple(self.log),
            lines=tuple(self.lines),
            fired=dict(sorted(self.fired_kinds.items())),
            violations=tuple(self.violations),
            stuck=stuck,
            state=self.state,
            ends=self._recount.ends,
        )

    async def _until(self, done: Callable[[], bool], limit_s: float) -> bool:
        end = self.now_s + limit_s
        while self.now_s < end and not self.violations:
            if done():
                return True
            await asyncio.sleep(min(_LOOK_S, max(0.0, end - self.now_s)))
        return False

    def _ended(self) -> bool:
        """Every task and every incident has an end, and nobody has anything more to say."""
        state = self.state
        return (
            len(state.tasks) == self._specs
            and all(t.phase in ENDED for t in state.tasks.values())
            and all(i.resolved for i in state.incidents.values())
            and not state.plan.request
            and decide(state) is None
            and all(i.engine.state.seq == state.seq for i in self.instances if i.alive)
        )

    def _why_stuck(self) -> str:
        state = self.state
        tasks = [f"{t.spec.task} is {t.phase}" for t in state.tasks.values()]
        open_ = [i.incident for i in state.incidents.values() if not i.resolved]
        nodes = [f"{n.node} is {n.status}" for n in state.nodes.values()]
        next_ = decide(state)
        return (
            f"{', '.join(tasks) or 'no task'}; open incidents {open_}; {', '.join(nodes)}; "
            f"decide() says {type(next_.body).__name__ if next_ else 'nothing'}"
        )

    # --- What was stored ----------------------------------------------------------------------

    def _stored(self, recorded: Recorded) -> None:
        before = self.state
        try:
            self.state = fold(before, recorded)
        except Exception as error:
            self.complain("fold_is_total", f"{type(error).__name__}: {error}", recorded.seq)
            raise
        self.lines.append(trace.line(self.now_s, recorded, before, self.state))
        if self.state.void == before.void and self.state.duplicates == before.duplicates:
            wrong = [*self._truth.false_alarms(recorded, before)]
            wrong += self._recount.taken(recorded, self.state)
            for name, what in wrong:
                self.complain(name, what, recorded.seq)

    def _raised(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Nothing in a run may raise unheard."""
        error = context.get("exception")
        what = context["message"] if error is None else f"{type(error).__name__}: {error}"
        if isinstance(error, BaseException):
            what = f"{what} ({traceback.extract_tb(error.__traceback__)[-1]})"
        self.complain("nothing_raises", str(what))

    def complain(self, invariant: str, what: str, seq: int | None = None) -> None:
        """Something that must hold doesn't."""
        at = self.state.seq if seq is None else Sequence(seq)
        self.violations.append(Violation(invariant=invariant, what=what, seq=at))

    def _agree(self) -> None:
        """Whoever has folded the whole log holds the same state."""
        for instance in self.instances:
            state = instance.engine.state
            if instance.alive and state.seq == self.state.seq and state != self.state:
                self.complain("instances_agree", f"{instance.name} holds another state")

    # --- What trainees tell -------------------------------------------------------------------

    def group(self, order: TransitionOrdered) -> Group:
        key = (order.task, order.generation)
        return self._groups.setdefault(key, Group(order, self._group_rng))

    def reduced(self, spec: TaskSpec, parts: tuple[tuple[int, frozenset[int]], ...]) -> None:
        self.violations += samples_violations(spec, parts, self.state.seq)

    def committed(self, trainee: Training) -> None:
        """Nothing to do: iterations are compared when they are reduced."""

    def failed(self, trainee: Training, why: str) -> None:
        self.complain("orders_fit_what_members_hold", f"{trainee.life[0]} {why}")

    def two_on_a_device(self, worker: WorkerId) -> None:
        self.complain("one_process_per_device", f"two processes on the device of {worker}")

    # --- Parts --------------------------------------------------------------------------------

    def link(self) -> Link:
        return Link(self.options.weather, self._net_rng)

    def free_port(self) -> int:
        self._ports += 1
        return self._ports

    def store_stands(self, port: int) -> bool:
        return any(h.store_port == port for h in self.hosts.values())

    def later(self, ms: int, call: Callable[[], object]) -> None:
        self._loop.call_later(ms / 1000, call)

    def add_host(self, name: str, devices: int, kind: str = "cpu") -> Host:
        skew_ms = self._rng.randint(-self.options.skew_ms, self.options.skew_ms)
        host = Host(self, NodeId(name), devices, kind=kind, skew_ns=skew_ms * 1_000_000)
        self.hosts[name] = host
        return host

    def bring_up(self, host: Host) -> None:
        if not host.up:
            host.start()

    def start_instance(self, name: str) -> None:
        self.instances = [i for i in self.instances if i.alive]
        skew_ms = self._rng.randint(-self.options.skew_ms, self.options.skew_ms)
        self.instances.append(
            Instance(
                self.server,
                name,
                self.link(),
                lambda _: PretendedSolver(self._mood),
                skew_ns=skew_ms * 1_000_000,
                on_end=self._instance_ended,
                lease_link=self._lease_link(),
                kept=self._kept,
            )
        )

    def _lease_link(self) -> Link | None:
        """With several instances the lease may be late or lost; one alone doesn't notice it."""
        if self.options.instances == 1:
            return None
        return Link(self.options.weather, self._lease_rng)

    def _mood(self) -> tuple[int, str]:
        if self.moods and not self._healing:
            return self.moods.pop(0)
        return self._rng.randint(50, 800), "good"

    def _instance_ended(
        self, instance: Instance, why: str, violations: tuple[Violation, ...]
    ) -> None:
        self._note(f"control/{instance.name}", f"the process ends: {why}")
        self.violations += violations
        if why.startswith("bug") and not violations:
            self.complain("the_engine_goes_on", why)
        if self._is_wanted(instance.name):  # as a service manager does
            self.later(self._restart_ms(), lambda: self._restart(instance.name))

    def _is_wanted(self, name: str) -> bool:
        """Each of several has a service manager of its own; one alone may have got a rival, who
        does as well."""
        living = [i.name for i in self.instances if i.alive]
        return name not in living and (self.options.instances > 1 or not living)

    def _restart_ms(self) -> int:
        """How long a service manager takes."""
        return self._rng.randint(200, 3000)

    def _restart(self, name: str) -> None:
        if self._is_wanted(name):
            self.start_instance(name)
            self._note(f"control/{name}", "the process begins again")

    def _note(self, who: str, what: str) -> None:
        self.lines.append(trace.note(self.now_s, who, what))

    # --- Faults and repairs -------------------------------------------------------------------

    def _fault(self, fault: Fault) -> None:
        if not self._healing:
            self.fired(fault, KINDS[fault.kind](self, fault))

    def fired(self, fault: Fault, what: str) -> None:
        """It was done, unless `what` is empty."""
        if what:
            self.fired_kinds[fault.kind] = self.fired_kinds.get(fault.kind, 0) + 1
            self._note("fault", what)

    def submit_another(self, pick: int) -> str:
        """One more task, unless there are many; some can't be run at all."""
        running = sum(t.phase not in ENDED for t in self.state.tasks.values())
        if running >= 4 or self._healing:
            return ""
        self._specs += 1
        spec = task_spec(
            f"late{self._specs}",
            iterations=40 + pick % 100,
            micro_batches=5 + pick % 8,
            weight_milli=(100, 1000, 5000)[pick % 3],
            min_devices=pick % 4,
            max_devices=(0, 3, 8, 12, 12)[pick % 5],
        )
        self._submit(spec)
        return f"another task is submitted: {spec.task}"

    def _keep_busy(self) -> None:
        """While things go wrong there is always a task for them to hit."""
        state = self.state
        if len(state.tasks) == self._specs and all(t.phase in ENDED for t in state.tasks.values()):
            self.submit_another(5 * self._rng.randrange(1000) + 3)
        if not self._healing:
            self.later(_ASK_AGAIN_MS, self._keep_busy)

    def _submit(self, spec: TaskSpec) -> None:
        self._operate(
            lambda engine: engine.submit(spec, by="operator"),
            lambda: spec.task in self.state.tasks,
        )

    def _operate(
        self, ask: Callable[[Engine], Coroutine[None, None, object]], done: Callable[[], bool]
    ) -> None:
        """An operator asks whoever leads, again and again until it is done."""
        if done():
            return
        for instance in self.instances:
            if instance.alive and instance.engine.leading:
                instance.obey(ask)
        self.later(_ASK_AGAIN_MS, lambda: self._operate(ask, done))

    def _give_back(self, name: NodeId) -> None:
        def done() -> bool:
            node = self.state.nodes[name]
            over = node.status != "isolated" and not node.given_up
            if over:
                self._asked_for.pop(name, None)
            return over

        self._operate(lambda engine: engine.give_back(name, "operator", "repaired"), done)

    def _repair(self) -> None:
        """What broke is mended, as people and service managers would do it."""
        for instance in self.instances:
            instance.go_on()
            instance.mend()
        for host in self.hosts.values():
            host.mend()
            host.dead_devices.clear()
            host.reinstall()
            self.bring_up(host)

    def _repairs(self) -> None:
        """From time to time somebody looks after what doesn't come back by itself."""
        for node in self.state.nodes.values():
            sick = node.status == "isolated" and node.sick
            if (sick or node.given_up) and node.node not in self._asked_for:
                self._asked_for[node.node] = None
                self._give_back(node.node)
        for host in self.hosts.values():
            if host.unkillable:
                host.start()
        self.later(_REPAIR_MS, self._repairs)


def run(options: Options) -> Outcome:
    """Run it to its end; the same options give the same outcome, byte for byte."""

    async def main() -> Outcome:
        return await Simulation(options).run()

    return virtual.run(main)
