"""A cluster in which anything may happen between any two small steps, from one seed.

The pure core leads; agents are the real supervision table; workers are pretended (trainee.py)
around the real protocol machine of the shim. Orders may get lost and are said again; facts may
be late, lost with their writer, or repeated; limits may pass at any time. A small forerunner of
the simulator.
"""

from collections import deque

from tests.core.hosts import Hosts
from tests.core.story import SPEC
from tests.core.trainee import Trainee
from unicron import events as ev
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.fold_node import LOST
from unicron.controlplane.core.orders import open_orders
from unicron.controlplane.core.problem import allocations_of, problem_of
from unicron.controlplane.core.verdict import Verdict
from unicron.controlplane.testing.collective import Group
from unicron.controlplane.testing.training import Failed
from unicron.events import codec
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.problem import digest as problem_digest


class World(Hosts):
    """`run` does random things; `heal` ends the faults and waits until everything has an end."""

    def __init__(self, seed: int, specs=(SPEC,)) -> None:
        self.solving: tuple[int, object] | None = None
        self.asked: tuple[object, Verdict | None] = (None, None)
        self.foreign = 0
        self.specs = specs
        super().__init__(seed)

    # --- The log ------------------------------------------------------------------------------

    def append_raw(self, subject: str, data: bytes) -> None:
        """As a live reader does it: what isn't understood is folded all the same."""
        before = self.state
        recorded = codec.record(len(self.log) + 1, subject, data, len(self.log))
        self.log.append(recorded)
        self.chains.append(ev.extend_chain(self.chains[-1], recorded.seq, subject, data))
        self.state = fold(before, recorded)
        self.states.append(self.state)
        self.watch.folded(before, self.state)

    def verdict(self) -> Verdict | None:
        """What decide() says now; asked once for each state."""
        if self.asked[0] is not self.state:
            self.asked = (self.state, decide(self.state))
        return self.asked[1]

    def lead(self) -> None:
        """One decision, on a state that facts may have overtaken when it is written."""
        at, verdict = self.state, self.verdict()
        assert verdict is not None
        self.fresh += 1
        assert self.fresh < 150, f"no rest: {type(verdict.body).__name__} after {self.fresh}"
        self.watch.decided(at, verdict)
        for _ in range(self.rng.randint(0, 4)):
            self.rng.choice([self.land_some_fact, self.advise, self.train_somebody])()
        if self.state.seq > at.seq:
            self.foreign += 1
        self.decided += 1
        self.write(verdict, at)
        self.publish(self.log[-1], lossy=True)
        if isinstance(verdict.body, ev.PlanRequested):
            self.solving = (self.state.seq, problem_of(self.state))

    def input(self, body: ev.Decision) -> None:
        self.fresh = 0
        self.decide_input(body)

    def publish(self, recorded: ev.Recorded, *, lossy: bool) -> None:
        """The server sends a durable decision to whom it concerns; it may get lost."""
        body, term = recorded.envelope.body, recorded.envelope.term
        if isinstance(body, ev.WorkerStartOrdered | ev.WorkerStopOrdered):
            node = self.nodes[body.node]
            if node.up and not node.cut and not (lossy and self.rng.random() < 0.2):
                node.inbox.append((recorded.seq, term, body))
        if isinstance(body, ev.GenerationClosed | ev.TransitionOrdered):
            for trainee in self.living():
                mine = trainee.spec.task == body.task and not self.nodes[trainee.node].cut
                if mine and not (lossy and self.rng.random() < 0.2):
                    trainee.inbox.append((term, body))

    # --- What may happen next -----------------------------------------------------------------

    def group(self, order: ev.TransitionOrdered) -> Group:
        return self.groups.setdefault((order.task, order.generation), Group(order, self.rng))

    def possible(self) -> list:
        """Everything that may happen now without a fault and without time passing, as calls; one
        that has moved nothing says False."""
        calls = [self.lead] if self.verdict() is not None else []
        calls += [self.advise] if self.advisories else []
        calls += [lambda s=s: self.land(*s) for s in self.speakers()]
        for node in self.nodes.values():
            if node.up and not node.cut:
                calls += [lambda n=node: self.obey(n)] if node.inbox else []
            if node.up:
                calls += [lambda n=node: self.fork(n)] if node.forking else []
        for trainee in self.living():
            calls += [trainee.take_in] if trainee.inbox and not trainee.hung else []
            calls += [lambda t=trainee: self.train(t)] if trainee.runs else []
        if self.solving is not None:
            calls.append(self.answer_plan)
        return calls

    def speakers(self) -> list[tuple[str, int, deque]]:
        """Sources that have a fact to deliver and reach the log."""
        found = []
        for node in self.nodes.values():
            if node.cut:
                continue
            if node.incarnation and node.outbox:
                found.append((f"agent/{node.name}", node.incarnation, node.outbox))
            for name, trainee in node.workers.items():
                if trainee.outbox:
                    found.append((f"worker/{name}", trainee.life[1], trainee.outbox))
        return found

    def land(self, who: str, incarnation: int, outbox: deque) -> None:
        self.fresh = 0
        self.fact(who, incarnation, outbox.popleft())

    def land_some_fact(self) -> None:
        speakers = self.speakers()
        if speakers:
            self.land(*self.rng.choice(speakers))

    def train_somebody(self) -> None:
        living = self.living()
        if living:
            self.train(self.rng.choice(living))

    def train(self, trainee: Trainee) -> bool:
        try:
            return trainee.runs and trainee.step()
        except Failed as error:
            raise AssertionError(f"{trainee.life}: {error}") from error

    def again(self) -> bool:
        """An order that nobody confirmed is said again, perhaps when it is no longer open."""
        orders = open_orders(self.state)
        if not orders:
            return False
        self.publish(self.log[self.rng.choice(orders).seq - 1], lossy=False)
        return True

    # --- Solver, monitor, limits --------------------------------------------------------------

    def answer_plan(self, error: str = "") -> None:
        request, problem = self.solving
        self.solving = None
        if self.state.plan.request != request:
            return
        plan = dynamic_plan(problem)
        self.input(
            ev.PlanSolved(
                request=request,
                problem_digest=problem_digest(problem),
                source=plan.source,
                value=0 if error else plan.value_gflops_milli,
                waf_milli=0 if error else plan.waf_milli,
                allocations=() if error else allocations_of(plan),
                error=error,
            )
        )

    def opinions(self) -> list[ev.Decision]:
        """What the monitor thinks, as it would after long enough."""
        watched = [n for n in self.state.nodes.values() if n.status in ("healthy", "suspected")]
        silent = {n.node for n in watched if not self.beats(n)}
        found: list[ev.Decision] = []
        for node in sorted(watched, key=lambda n: n.node):
            common = {"node": node.node, "incarnation": node.incarnation, "evidence": "beats"}
            if node.node not in silent and node.status == "suspected":
                found.append(ev.NodeRecovered(**common))
            if node.node in silent and node.status == "healthy":
                found.append(ev.NodeSuspected(newest_fact=node.last_fact, **common))
        if len(watched) > 1 and 2 * len(silent) > len(watched):
            return [f for f in found if isinstance(f, ev.NodeRecovered)]
        return found

    def beats(self, known) -> bool:
        node = self.nodes[known.node]
        return node.up and not node.cut and node.incarnation == known.incarnation

    def pass_limit(self) -> bool:
        """One of the waits takes too long."""
        keys = sorted(deadlines(self.state))
        if not keys:
            return False
        self.input(ev.DeadlinePassed(key=self.rng.choice(keys), limit_ms=1))
        return True

    def time_out(self) -> bool:
        """A member that waits for others gives up."""
        waiting = [t for t in self.living() if t.may_give_up]
        if not waiting:
            return False
        self.rng.choice(waiting).lose_patience()
        return True

    # --- What trainees tell -------------------------------------------------------------------

    def reduced(self, spec: ev.TaskSpec, parts: tuple) -> None:
        self.watch.reduced(spec, parts)

    def committed(self, trainee: Trainee) -> None:
        self.watch.committed(trainee)

    # --- Running ------------------------------------------------------------------------------

    def begin(self, nodes: int, devices: int = 2) -> None:
        for number in range(1, nodes + 1):
            self.start_node(f"n{number}", devices)
        for spec in self.specs:
            self.input(ev.TaskSubmitted(spec=spec, by="test"))

    def until_it_trains(self) -> None:
        """Quiet steps until a first iteration has been reduced, or nothing can train."""
        for _ in range(1_000):
            if any(t.is_reduced for t in self.living()):
                return
            if not self.act_once():
                self.let_time_pass()

    def act_once(self) -> bool:
        """Something that is due, with all orders there are."""
        calls = self.possible()
        opinions = self.opinions()
        if opinions and self.rng.random() < 0.1:
            self.input(self.rng.choice(opinions))
            return True
        if self.rng.random() < 0.03 and self.again():
            return True
        if not calls:
            return False
        self.rng.choice(calls)()
        return True

    def run(self, actions: int, fault, rate: float) -> None:
        """Random steps, with `fault(world)` at that rate."""
        for _ in range(actions):
            if self.rng.random() < rate:
                fault(self)
            elif not self.act_once():
                self.let_time_pass()

    def let_time_pass(self) -> bool:
        """Nothing more happens by itself: orders are said again, then limits pass."""
        opinions = self.opinions()
        if opinions:
            self.input(opinions[0])
            return True
        before = self.progress()
        for order in open_orders(self.state):
            self.publish(self.log[order.seq - 1], lossy=False)
        while self.quiet_step():
            if self.progress() != before:
                return True
        return self.pass_limit() or self.time_out()

    def heal(self, limit: int = 8_000) -> None:
        """No more faults: everything must come to an end by itself, but for what only a person or
        the monitor of progress would see."""
        for _ in range(limit):
            if self.ended():
                return
            if not self.quiet_step() and not self.let_time_pass() and not self.call_for_help():
                self.watch.stuck("nothing can happen any more")
        self.watch.stuck(f"no end within {limit} steps")

    def call_for_help(self) -> bool:
        """The monitor of progress sees who hangs; hosts that don't let go of a worker start anew;
        an operator returns nodes."""
        for trainee in self.living():
            node, task = self.nodes[trainee.node], self.state.tasks[trainee.spec.task]
            if trainee.life[0] in node.unkillable:
                node.unkillable.clear()
                self.start_node(node.name)
                return True
            stands = trainee.life in {(m.worker, m.incarnation) for m in task.members}
            if trainee.hung and task.phase == "running" and stands:
                self.input(
                    ev.TaskStalled(
                        task=task.spec.task,
                        generation=task.generation,
                        behind=(trainee.life[0],),
                        stalled_ms=1000,
                        evidence="stands behind",
                    )
                )
                return True
        for known in self.state.nodes.values():
            apart = known.status == "isolated" and not known.reason.startswith(LOST)
            if apart or (known.status == "healthy" and known.given_up):
                self.input(ev.NodeReturned(node=known.node, by="test", reason="repaired"))
                return True
            if known.status == "isolated":
                self.start_node(known.node)
                return True
        return False

    def quiet_step(self) -> bool:
        """As act_once, but says whether anything moved: a trainee that only waits doesn't."""
        calls = self.possible()
        self.rng.shuffle(calls)
        return any(call() is not False for call in calls)

    def progress(self) -> tuple:
        """Changes when more has happened than that something was heard again."""
        trainees = tuple(
            (t.shim, t.stage, t.iteration, len(t.kept), t.is_reduced, len(t.outbox))
            for t in self.living()
        )
        agents = tuple((len(n.outbox), len(n.forking)) for n in self.nodes.values())
        return (self.state.seq, trainees, agents, len(self.advisories), self.solving is None)

    def ended(self) -> bool:
        """Every task and every incident has ended, and there is nothing left to say."""
        return (
            bool(self.state.tasks)
            and all(t.phase in ("completed", "failed") for t in self.state.tasks.values())
            and all(i.resolved for i in self.state.incidents.values())
            and self.verdict() is None
        )
