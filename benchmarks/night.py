"""A long log as a cluster writes it, made by the real core: what the benchmarks of the log read.

Nodes join, tasks train, workers are killed or raise, nodes are lost and come back, tasks end and
others begin. The decisions are those of decide(), with their basis; agents, workers and the
server's advisories are pretended, in the sizes of real ones; facts land between a decision and
what it was decided on. One seed gives the same bytes each time.
"""

import json
import random
from collections import deque
from collections.abc import Callable, Iterable

from unicron import events as ev
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.fold_task import awaited
from unicron.controlplane.core.limits import CLOSED_MS
from unicron.controlplane.core.problem import allocations_of, problem_of
from unicron.controlplane.core.state import FOLD_VERSION, ClusterState, WorkerState
from unicron.controlplane.core.verdict import LOGIC_VERSION, Verdict
from unicron.controlplane.runtime.writer import subject_of
from unicron.controlplane.testing.options import task_spec
from unicron.events import codec, subjects
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.problem import digest as problem_digest

CLUSTER = ev.ClusterId("bench")
BIRTH = "2026-01-01T00:00:00Z-bench"
_START_NS = 1_790_000_000_000_000_000
_STEP_NS = 3_000_000
_SERVER = "NC4BIGEJMZM66C65VOJFE5T7EGGQIEFCTQ2YMDKYGXGJWTVQVGCOI5IR"
_LIVES_FROM = 1_790_000_000_000_000_000  # agents number their lives by the clock
_FAULTS_OF_A_TASK = 12
_FOREIGN = 0.2
_TRACEBACK = "\n".join(f'  File "train/step_{n}.py", line {40 + n}, in forward' for n in range(6))


class Night:
    """`run` until the log is long enough. `log`: the entries; `state`: what they come to."""

    def __init__(
        self,
        *,
        nodes: int = 8,
        devices: int = 4,
        tasks: int = 3,
        seed: int = 1,
        after: Iterable[ev.Recorded] = (),
    ) -> None:
        """`after`: what stands in the log already."""
        self.state = ClusterState()
        self.log: list[ev.Recorded] = []
        self._chain = ev.EMPTY_CHAIN
        for recorded in after:
            self._take(recorded)
        self._rng = random.Random(seed)
        self._devices, self._tasks = devices, tasks
        self._counters: dict[tuple[str, int], int] = {}
        self._connections: dict[str, int] = {}
        self._due: deque[Callable[[], None]] = deque()
        self._faults: dict[str, int] = {}
        self._lives, self._submitted = 0, 0
        self._input(
            ev.LeadershipTaken(
                cluster=CLUSTER,
                instance="a",
                logic_version=LOGIC_VERSION,
                fold_version=FOLD_VERSION,
                version="bench",
            )
        )
        for number in range(1, nodes + 1):
            self._join(ev.NodeId(f"n{number}"))

    def run(self, events: int) -> "Night":
        """Until there are that many entries, or a few more."""
        while len(self.log) < events:
            verdict = decide(self.state)
            if verdict is not None:
                self._decided(verdict)
            elif self._due:
                self._due.popleft()()
            else:
                self._something_happens()
        return self

    # --- Writing ----------------------------------------------------------------------------------

    def _raw(self, subject: str, data: bytes) -> None:
        seq = len(self.log) + 1
        self._take(codec.record(seq, subject, data, _START_NS + seq * _STEP_NS))

    def _take(self, recorded: ev.Recorded) -> None:
        self.log.append(recorded)
        self._chain = ev.extend_chain(self._chain, recorded.seq, recorded.subject, recorded.data)
        self.state = fold(self.state, recorded)

    def _write(self, subject: str, who: str, life: int, body: ev.AnyEvent, **more: object) -> None:
        key = (who, life)
        self._counters[key] = self._counters.get(key, 0) + 1
        source = ev.Source(who=who, incarnation=ev.Incarnation(life), counter=self._counters[key])
        envelope = ev.Envelope(
            id=ev.event_id(source),
            source=source,
            written_at_ns=_START_NS + len(self.log) * _STEP_NS,
            body=body,
            **more,  # type: ignore[arg-type]
        )
        self._raw(subject, codec.encode(envelope))

    def _fact(self, kind: str, name: str, life: int, body: ev.AnyFact) -> None:
        node = ev.NodeId(name.partition("/")[0])
        self._write(subjects.fact(CLUSTER, node), f"{kind}/{name}", life, body)

    def _later(self, kind: str, name: str, life: int, body: ev.AnyFact) -> None:
        self._due.append(lambda: self._fact(kind, name, life, body))

    def _input(self, body: ev.AnyDecision) -> None:
        self._write(subject_of(CLUSTER, body), "control/a", 1, body, term=self.state.term)

    def _decided(self, verdict: Verdict) -> None:
        at = self.state
        basis = ev.Basis(
            decided_at=at.seq,
            chain=self._chain.hex(),
            state_digest=digest(at),
            logic_version=LOGIC_VERSION,
        )
        if self._due and self._rng.random() < _FOREIGN:
            self._due.popleft()()
        body = verdict.body
        self._write(
            subject_of(CLUSTER, body),
            "control/a",
            1,
            body,
            term=at.term,
            cause=verdict.cause,
            incident=verdict.incident,
            basis=basis,
        )
        self._react(body)

    def _advise(self, kind: str, client: str, number: int) -> None:
        """As a nats-server reports it."""
        at = f"2026-11-30T14:31:01.{len(self.log) % 10**9:09}Z"
        report = {
            "type": f"io.nats.server.advisory.v1.client_{kind}",
            "id": f"Sa64b0gp5o27b2AW4G{len(self.log):05}",
            "timestamp": at,
            "server": {
                "name": "unicron-bench",
                "host": "127.0.0.1",
                "id": _SERVER,
                "ver": "2.15.1",
                "feature_flags": {"js_ack_fc_v2": False, "js_raft_delete_range": True},
                "jetstream": True,
                "flags": 7,
                "seq": len(self.log),
                "time": at,
            },
            "client": {
                "start": at,
                "host": "127.0.0.1",
                "id": number,
                "acc": "UNICRON",
                "user": "node",
                "name": client,
                "lang": "python3",
                "ver": "2.16.0",
                "kind": "Client",
                "client_type": "nats",
            },
        }
        if kind == "disconnect":
            report["reason"] = "Client Closed"
        self._raw(subjects.advisory(CLUSTER, kind), json.dumps(report).encode())

    def _connect(self, client: str) -> None:
        self._connections[client] = len(self.log) + 10
        self._advise("connect", client, self._connections[client])

    def _disconnect(self, client: str) -> None:
        if client in self._connections:
            self._advise("disconnect", client, self._connections.pop(client))

    # --- Agents, workers and the solver answer ----------------------------------------------------

    def _react(self, body: ev.AnyDecision) -> None:
        match body:
            case ev.WorkerStartOrdered():
                self._start(body)
            case ev.WorkerStopOrdered():
                self._due.append(lambda: self._end(self.state.workers[body.worker], ordered=True))
            case ev.GenerationClosed():
                for name in awaited(self.state, self.state.tasks[body.task]):
                    self._quiesce(self.state.workers[name], body)
            case ev.TransitionOrdered():
                for member in body.members:
                    self._go_on(body, member)
            case ev.PlanRequested():
                self._solve()
            case _:
                pass

    def _start(self, body: ev.WorkerStartOrdered) -> None:
        life = {"task": body.task, "worker": body.worker, "incarnation": body.incarnation}
        agent = self.state.nodes[body.node].incarnation
        self._later("agent", body.node, agent, ev.WorkerStarted(pid=12_345, **life))
        self._due.append(lambda: self._connect(f"worker/{body.worker}/{body.incarnation}"))
        prepared = ev.WorkerPrepared(
            parameters=213_440,
            threads=1,
            torch="2.9.1+cpu",
            megatron="0.14.1",
            spec_digest="3f1c" * 16,
            **life,
        )
        self._later("worker", body.worker, body.incarnation, prepared)

    def _quiesce(self, worker: WorkerState, close: ev.GenerationClosed) -> None:
        answer = ev.MemberQuiesced(
            task=close.task,
            worker=worker.worker,
            incarnation=worker.incarnation,
            generation=close.generation,
            iteration=self.state.tasks[close.task].iteration if worker.joined else -1,
            phase="forward",
            kept=(),
            reduced=False,
            voted=False,
        )
        self._later("worker", worker.worker, worker.incarnation, answer)

    def _go_on(self, order: ev.TransitionOrdered, member: ev.OrderedMember) -> None:
        at = self.state.tasks[order.task].iteration if order.planned else order.iteration
        life = {
            "task": order.task,
            "worker": member.worker,
            "incarnation": member.incarnation,
            "generation": order.generation,
        }
        ready = ev.MemberReady(iteration=at, unblock_ms=31, regroup_ms=64, transfer_ms=12, **life)
        committed = ev.MemberCommitted(iteration=at + 10, **life)
        self._later("worker", member.worker, member.incarnation, ready)
        self._later("worker", member.worker, member.incarnation, committed)

    def _solve(self) -> None:
        problem = problem_of(self.state)
        plan = dynamic_plan(problem)
        answer = ev.PlanSolved(
            request=self.state.plan.request,
            problem_digest=problem_digest(problem),
            source=plan.source,
            value=plan.value_gflops_milli,
            waf_milli=plan.waf_milli,
            allocations=allocations_of(plan),
            took_ms=40,
        )
        self._due.append(lambda: self._input(answer))

    # --- What happens -----------------------------------------------------------------------------

    def _join(self, node: ev.NodeId) -> None:
        self._lives += 1
        life = _LIVES_FROM + self._lives
        self._connect(f"agent/{node}/{life}")
        started = ev.AgentStarted(
            node=node,
            address="192.0.2.1",
            store_port=40_123,
            devices=self._devices,
            device_kind="h100",
            rack="r1",
        )
        self._fact("agent", node, life, started)

    def _something_happens(self) -> None:
        running = [t for t in self.state.tasks.values() if t.phase == "running"]
        if sum(t.phase not in ("completed", "failed") for t in self.state.tasks.values()) < (
            self._tasks
        ):
            self._submitted += 1
            spec = task_spec(
                f"gpt-{self._submitted}",
                iterations=100_000,
                micro_batches=64,
                min_devices=6,
                max_devices=10,
            )
            self._input(ev.TaskSubmitted(spec=spec, by="bench"))
            return
        away = [n.node for n in self.state.nodes.values() if n.status in ("lost", "isolated")]
        if away and self._rng.random() < 0.5:
            self._join(away[0])
            return
        task = self._rng.choice(running)
        name = task.spec.task
        self._faults[name] = self._faults.get(name, 0) + 1
        if self._faults[name] > _FAULTS_OF_A_TASK:
            self._finish(task.spec.task)
            return
        victim = self.state.workers[self._rng.choice(task.members).worker]
        kind = self._rng.choice(["killed", "killed", "raises", "raises", "lost"])
        if kind == "lost" and not away:
            self._lose(victim.node)
        elif kind == "raises":
            self._raise(victim)
        else:
            self._end(victim, ordered=False)

    def _finish(self, name: ev.TaskId) -> None:
        task = self.state.tasks[name]
        for member in task.members:
            finished = ev.MemberFinished(
                task=name,
                worker=member.worker,
                incarnation=member.incarnation,
                generation=task.generation,
                iteration=100_000,
                state_digest="ab" * 32,
            )
            self._later("worker", member.worker, member.incarnation, finished)

    def _end(self, worker: WorkerState, *, ordered: bool) -> None:
        agent = self.state.nodes[worker.node]
        if f"worker/{worker.worker}/{worker.incarnation}" not in self._connections:
            return  # with its node
        exited = ev.WorkerExited(
            task=worker.task,
            worker=worker.worker,
            incarnation=worker.incarnation,
            exit_code=0 if ordered else None,
            signal=None if ordered else 9,
            ordered=ordered,
            iteration=self.state.tasks[worker.task].iteration,
            micro_batches_done=3,
            phase="forward",
        )
        self._disconnect(f"worker/{worker.worker}/{worker.incarnation}")
        if not ordered:
            self._peers_complain(worker)
        self._fact("agent", worker.node, agent.incarnation, exited)

    def _peers_complain(self, worker: WorkerState) -> None:
        task = self.state.tasks[worker.task]
        peers = [m for m in task.members if m.worker != worker.worker]
        for member in self._rng.sample(peers, min(2, len(peers))):
            error = ev.PeerErrorReported(
                task=worker.task,
                worker=member.worker,
                incarnation=member.incarnation,
                generation=task.generation,
                iteration=task.iteration,
                phase="reduce",
                error="[gloo/transport/tcp/pair.cc:537] Connection closed by peer [192.0.2.1]",
            )
            self._later("worker", member.worker, member.incarnation, error)

    def _raise(self, worker: WorkerState) -> None:
        task = self.state.tasks[worker.task]
        error = ev.ExceptionReported(
            task=worker.task,
            worker=worker.worker,
            incarnation=worker.incarnation,
            generation=task.generation,
            iteration=task.iteration,
            phase="forward",
            kind="RuntimeError",
            message="the loss is not finite",
            traceback=f"Traceback (most recent call last):\n{_TRACEBACK}\nRuntimeError",
        )
        self._fact("worker", worker.worker, worker.incarnation, error)

    def _lose(self, node: ev.NodeId) -> None:
        """Without power: connections close, and stay so for as long as the limit."""
        for client in list(self._connections):
            if client.startswith((f"worker/{node}/", f"agent/{node}/")):
                self._disconnect(client)
        for key in [k for k in deadlines(self.state) if k.startswith(f"closed:{node}:")]:
            self._input(ev.DeadlinePassed(key=key, limit_ms=CLOSED_MS))
