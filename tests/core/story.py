"""A cluster told event by event: the pure core with pretended agents and shims, no I/O.

A `Story` folds facts and lets decide() answer until it has nothing to say. The pretended shims
answer orders at once unless a test holds them back.
"""

from pathlib import Path

from unicron import events as ev
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.limits import CLOSED_MS
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.controlplane.testing.options import task_spec
from unicron.events import codec

SPEC = task_spec("gpt", iterations=100, micro_batches=12)

#: When the stream stored the first event, and how much later each next one comes.
STARTS_NS = 1_790_000_000_000_000_000
STEP_NS = 1_000_000


class Story:
    """One cluster named "c" with one leading instance."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.log: list[ev.Recorded] = []
        self.states: list[ClusterState] = [self.state]
        self.chains: list[bytes] = [ev.EMPTY_CHAIN]
        self.now_ns = STARTS_NS
        self.counters: dict[tuple[str, int], int] = {}
        self.decided = 0
        self.held: list[tuple[str, str]] = []
        self.decide_input(
            ev.LeadershipTaken(
                cluster="c",
                instance="i1",
                logic_version=LOGIC_VERSION,
                fold_version=FOLD_VERSION,
                version="test",
            )
        )

    # --- writing ------------------------------------------------------------------------------

    def _append(self, who: str, incarnation: int, body: ev.Event, term: int = 0, **kw: object):
        key = (who, incarnation)
        self.counters[key] = self.counters.get(key, 0) + 1
        source = ev.Source(who=who, incarnation=incarnation, counter=self.counters[key])
        envelope = ev.Envelope(
            id=ev.event_id(source),
            source=source,
            written_at_ns=0,
            body=body,
            term=term,
            **kw,  # type: ignore[arg-type]
        )
        tree = "control.task.gpt" if isinstance(body, ev.Decision) else "fact.n"
        self.append_raw(f"unicron.c.{tree}", codec.encode(envelope))

    def append_raw(self, subject: str, data: bytes) -> None:
        """Put bytes into the log and fold them."""
        recorded = codec.record(len(self.log) + 1, subject, data, self.now_ns, strict=True)
        self.now_ns += STEP_NS
        self.log.append(recorded)
        self.chains.append(ev.extend_chain(self.chains[-1], recorded.seq, subject, data))
        self.state = fold(self.state, recorded)
        self.states.append(self.state)

    def fact(self, who: str, incarnation: int, body: ev.Event) -> None:
        """A fact lands; nothing is decided yet."""
        self._append(who, incarnation, body)

    def decide_input(self, body: ev.Decision) -> None:
        """The leader writes what isn't decided by decide(): opinions, deadlines, submissions."""
        self._append("control/i1", 1, body, term=self.state.term)

    def step(self) -> ev.Decision | None:
        """One decision, if there is one."""
        verdict = decide(self.state)
        if verdict is None:
            return None
        self.decided += 1
        self.write(verdict, self.state)
        return verdict.body

    def write(self, verdict, at: ClusterState) -> None:
        """Append what was decided on the state `at`."""
        basis = ev.Basis(
            decided_at=at.seq,
            chain=self.chains[at.seq].hex(),
            state_digest=digest(at),
            logic_version=LOGIC_VERSION,
        )
        self._append(
            "control/i1",
            1,
            verdict.body,
            term=at.term,
            cause=verdict.cause,
            incident=verdict.incident,
            basis=basis,
        )

    def settle(self, limit: int = 200) -> list[ev.Decision]:
        """Decide until there is nothing to decide and no pretended answer is due."""
        made: list[ev.Decision] = []
        for _ in range(limit):
            body = self.step()
            if body is not None:
                made.append(body)
                self.react(body)
            else:
                return made
        raise AssertionError(f"no rest after {limit} decisions: {made[-6:]}")

    # --- pretended agents and shims ------------------------------------------------------------

    def react(self, body: ev.Decision) -> None:
        """What agents, shims and the solver do about a decision, at once."""
        match body:
            case ev.WorkerStartOrdered():
                if ("start", body.worker) in self.held:
                    return
                self.prepare(body)
            case ev.WorkerStopOrdered():
                worker = self.state.workers[body.worker]
                if ("stop", body.worker) not in self.held:
                    self.exit(worker.worker, signal=9, ordered=True)
            case ev.GenerationClosed():
                self.quiesce_all(body)
            case ev.TransitionOrdered():
                self.ready_all(body)
            case ev.PlanRequested():
                self.solve()
            case _:
                pass

    def prepare(self, body: ev.WorkerStartOrdered) -> None:
        common = {"task": body.task, "worker": body.worker, "incarnation": body.incarnation}
        agent = self.state.nodes[body.node]
        self.fact(f"agent/{body.node}", agent.incarnation, ev.WorkerStarted(pid=1, **common))
        self.connect("worker", body.worker, body.incarnation)
        self.fact(
            f"worker/{body.worker}",
            body.incarnation,
            ev.WorkerPrepared(
                parameters=1, threads=1, torch="2", megatron="0", spec_digest="s", **common
            ),
        )

    def quiesce_all(self, body: ev.GenerationClosed) -> None:
        from unicron.controlplane.core.fold_task import awaited

        task = self.state.tasks[body.task]
        for name in awaited(self.state, task):
            if ("quiesce", name) not in self.held:
                self.quiesce(name)

    def quiesce(self, name: str, iteration: int | None = None, kept=(), reduced=False) -> None:
        worker = self.state.workers[name]
        task = self.state.tasks[worker.task]
        if iteration is None:
            iteration = task.iteration if worker.joined else -1
        self.fact(
            f"worker/{name}",
            worker.incarnation,
            ev.MemberQuiesced(
                task=worker.task,
                worker=worker.worker,
                incarnation=worker.incarnation,
                generation=task.generation,
                iteration=iteration,
                phase="forward",
                kept=tuple(kept),
                reduced=reduced,
                voted=False,
            ),
        )

    def ready_all(self, body: ev.TransitionOrdered) -> None:
        task = self.state.tasks[body.task]
        iteration = body.iteration if not body.planned else task.iteration
        for member in body.members:
            if ("ready", member.worker) not in self.held:
                self.ready(body, member, iteration)

    def ready(self, body: ev.TransitionOrdered, member: ev.OrderedMember, iteration: int) -> None:
        common = {
            "task": body.task,
            "worker": member.worker,
            "incarnation": member.incarnation,
            "generation": body.generation,
        }
        who = f"worker/{member.worker}"
        self.fact(who, member.incarnation, ev.MemberReady(iteration=iteration, **common))
        if ("commit", member.worker) not in self.held:
            self.fact(
                who, member.incarnation, ev.MemberCommitted(iteration=iteration + 1, **common)
            )

    def solve(self) -> None:
        from unicron.controlplane.core.problem import allocations_of, problem_of
        from unicron.planner.dynamic import dynamic_plan
        from unicron.planner.problem import digest as problem_digest

        at = self.state.plan.request
        problem = problem_of(self.states[at])
        plan = dynamic_plan(problem)
        self.decide_input(
            ev.PlanSolved(
                request=at,
                problem_digest=problem_digest(problem),
                source=plan.source,
                value=plan.value_gflops_milli,
                waf_milli=plan.waf_milli,
                allocations=allocations_of(plan),
            )
        )

    # --- reading ------------------------------------------------------------------------------

    def history(self, path: Path) -> Path:
        """The log so far as a history file."""
        header = ev.HistoryHeader(cluster="c", birth="told", version="test")
        ev.write_history(path, header, self.log)
        return path

    # --- what happens -------------------------------------------------------------------------

    def connect(self, kind: str, name: str, incarnation: int) -> None:
        number = len(self.log)
        client = f"{kind}/{name}/{incarnation}"
        body = ev.ConnectionOpened(client=client, server="s", client_number=number)
        self.fact("server/s", 0, body)

    def disconnect(self, kind: str, name: str, incarnation: int) -> None:
        client = f"{kind}/{name}/{incarnation}"
        number = int(self.state.connections[client].rpartition("/")[2])
        body = ev.ConnectionClosed(client=client, server="s", client_number=number, reason="x")
        self.fact("server/s", 0, body)

    def join(self, node: str, incarnation: int = 1, devices: int = 2) -> None:
        self.connect("agent", node, incarnation)
        self.fact(
            f"agent/{node}",
            incarnation,
            ev.AgentStarted(
                node=node,
                address="127.0.0.1",
                store_port=1,
                devices=devices,
                device_kind="cpu",
            ),
        )

    def submit(self, spec: ev.TaskSpec = SPEC) -> None:
        self.decide_input(ev.TaskSubmitted(spec=spec, by="test"))

    def exit(self, name: str, signal: int | None = 9, ordered: bool = False) -> None:
        worker = self.state.workers[name]
        agent = self.state.nodes[worker.node]
        self.fact(
            f"agent/{worker.node}",
            agent.incarnation,
            ev.WorkerExited(
                task=worker.task,
                worker=worker.worker,
                incarnation=worker.incarnation,
                exit_code=None if signal else 0,
                signal=signal,
                ordered=ordered,
            ),
        )

    def raises(
        self, name: str, kind: str, message: str, *, generation: int = 1, iteration: int = 1
    ) -> None:
        """The worker's training step raises, in its forward pass."""
        worker = self.state.workers[name]
        self.fact(
            f"worker/{name}",
            worker.incarnation,
            ev.ExceptionReported(
                task=worker.task,
                worker=worker.worker,
                incarnation=worker.incarnation,
                generation=ev.Generation(generation),
                iteration=iteration,
                phase="forward",
                kind=kind,
                message=message,
            ),
        )

    def lose(self, node: str) -> None:
        """Power off: the connections of the agent and of all its workers close, and stay so."""
        self.cut(node)
        self.stay_closed(node)

    def stay_closed(self, node: str) -> None:
        """What is closed of it outlasts the limit, if that is running."""
        for key in [key for key in deadlines(self.state) if key.startswith(f"closed:{node}:")]:
            self.decide_input(ev.DeadlinePassed(key=key, limit_ms=CLOSED_MS))

    def cut(self, node: str) -> None:
        """The connections of the agent and of all its workers close."""
        found = self.state.nodes[node]
        self.disconnect("agent", node, found.incarnation)
        for worker in list(self.state.workers.values()):
            if worker.node == node and worker.status in ("prepared", "member", "started"):
                self.disconnect("worker", worker.worker, worker.incarnation)


def running(nodes: int = 2) -> Story:
    """A story in which task "gpt" trains on `nodes` nodes of two devices."""
    story = Story()
    for n in range(1, nodes + 1):
        story.join(f"n{n}")
    story.settle()
    story.submit()
    story.settle()
    return story
