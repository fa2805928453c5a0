"""A pretended worker: the real protocol machine of the shim, around training that is only counted.

It mirrors the loop of unicron.worker_shim.worker step by step, so that something else may happen
between any two of its steps. A collective is a barrier of its generation's group.
"""

from collections import deque

from unicron import events as ev
from unicron.events.gradient_tree import assign
from unicron.worker_shim import core


class Broken(Exception):
    """A collective can't be completed any more: somebody of the group has gone."""


class Failed(Exception):
    """The real training thread would raise here: the worker reports it and ends."""


class Group:
    """The collectives of one generation. A barrier is complete once everybody has come to it, and
    stays so for those who haven't noticed yet."""

    def __init__(self, order: ev.TransitionOrdered, rng) -> None:
        self.rng = rng
        self.people = tuple((m.worker, m.incarnation) for m in order.members)
        self.entered: dict[tuple[str, int], Trainee] = {}
        self.gone: set[tuple[str, int]] = set()
        self.came: dict[object, dict[tuple[str, int], object]] = {}

    def arrive(self, barrier: object, who: "Trainee", value: object = None) -> list[object] | None:
        """Everybody's values once all have come; None while some are still to come."""
        came = self.came.setdefault(barrier, {})
        came.setdefault(who.identity, value)
        if self.gone and self.rng.random() < 0.5:
            raise Broken  # it may or may not have got through before the others left
        if len(came) == len(self.people):
            return [came[person] for person in self.people]
        if self.gone - set(came):
            raise Broken
        return None

    def donor(self, rank: int) -> "Trainee | None":
        return self.entered.get(self.people[rank])


class Trainee:
    """One life of a worker. `step` does the next small thing, if there is one to do now."""

    def __init__(self, world, start: ev.WorkerStartOrdered) -> None:
        self.world = world
        self.spec = start.spec
        self.identity = (start.worker, start.incarnation)
        self.shim = core.Shim(task=start.task, worker=start.worker, incarnation=start.incarnation)
        self.inbox: deque[tuple[int, ev.Decision]] = deque()
        self.outbox: deque[ev.Fact] = deque()
        self.alive, self.hung = True, False
        self.iteration, self.has_state = 0, False
        self.kept: set[int] = set()
        self.reduced = self.voted = False
        self.group: Group | None = None
        self.order: ev.TransitionOrdered | None = None
        self.stage = ""
        self.assignment: tuple[tuple[int, ...], ...] = ()
        self.rank = 0
        self.first_commit = True
        self.newest = 0
        self.say(
            ev.WorkerPrepared,
            parameters=1,
            threads=1,
            torch="2",
            megatron="0",
            spec_digest=start.task,
        )

    @property
    def node(self) -> str:
        return ev.node_of(self.identity[0])

    def say(self, kind, /, **fields) -> None:
        worker, incarnation = self.identity
        task = self.spec.task
        self.outbox.append(kind(task=task, worker=worker, incarnation=incarnation, **fields))

    def hear(self) -> None:
        """Take in the next order."""
        term, body = self.inbox.popleft()
        self.shim, _ = core.on_order(self.shim, term, body)

    def die(self) -> None:
        self.alive = False
        self.leave()

    def leave(self) -> None:
        if self.group is not None:
            self.group.gone.add(self.identity)
        self.group, self.stage = None, ""

    # --- The loop -----------------------------------------------------------------------------

    def step(self) -> bool:
        """False if it can only wait."""
        if not self.alive or self.hung:
            return False
        if self.stage and core.must_stop(self.shim) and self.stage != "step":
            self.stage = ""  # interrupted; it answers next
            return True
        try:
            if self.stage:
                return getattr(self, f"_{self.stage}")()
            return self._next()
        except Broken:
            self.break_off("connection closed by peer")
            return True

    def break_off(self, error: str) -> None:
        """A collective failed here: leave, say so, await the close."""
        generation, phase = self.shim.standing, self.stage
        self.leave()
        if core.must_stop(self.shim):
            return
        self.shim = core.broke(self.shim)
        self.say(
            ev.PeerErrorReported,
            generation=generation,
            iteration=self.iteration,
            phase=phase,
            error=error,
        )

    @property
    def waits(self) -> bool:
        """It stands in a barrier, whose limit may pass."""
        return (
            self.alive and not self.hung and self.stage in ("regroup", "transfer", "reduce", "vote")
        )

    def _next(self) -> bool:
        what = core.todo(self.shim)
        if what == core.ANSWER:
            self._answer()
        elif what == core.JOIN:
            self._join()
        elif what == core.TRAIN and self.iteration < self.spec.iterations:
            self.stage = "compute"
        else:
            return False
        return True

    def _answer(self) -> None:
        self.leave()
        self.world.answers.append((self.identity, self.shim.closed))
        self.say(
            ev.MemberQuiesced,
            generation=self.shim.closed,
            iteration=self.iteration if self.has_state else -1,
            phase=self.stage,
            kept=tuple(sorted(self.kept)),
            reduced=self.reduced,
            voted=self.voted,
        )
        self.shim = core.answered(self.shim)

    def _join(self) -> None:
        order = self.shim.order
        member = core.place(self.shim, order)
        self.shim = core.entering(self.shim)
        self.leave()
        self.order, self.rank = order, member.rank
        if member.step_forward:
            self._commit()
        self.reduced = self.voted = False
        self.group = self.world.group(order)
        self.group.entered[self.identity] = self
        self.stage = "regroup"

    def _regroup(self) -> bool:
        if self.group.arrive("regroup", self) is None:
            return False
        self.stage = "transfer"
        return True

    def _transfer(self) -> bool:
        mine = self.order.members[self.rank]
        if mine.state_from == -1:
            if self.iteration:
                raise Failed("too late to start")
            self.has_state = True
        elif mine.state_from is not None:
            donor = self.group.donor(mine.state_from)
            if donor.identity in self.group.gone:
                raise Broken
            if donor.stage not in ("transfer", "sent"):
                return False
            self.iteration, self.has_state = donor.iteration, True
            self.kept.clear()
        self.group.arrive(("has", self.rank), self)
        self.stage = "sent"
        return True

    def _sent(self) -> bool:
        """A donor waits until all have taken the state."""
        for other in self.order.members:
            if other.state_from == self.rank and ("has", other.rank) not in self.group.came:
                if self.group.gone:
                    raise Broken
                return False
        if not self.has_state:
            raise Failed("this member has no state")
        ranks = len(self.order.members)
        if self.order.planned:
            self.assignment = assign(self.spec.micro_batches, ranks)
        else:
            self.assignment = tuple(tuple(sorted((*m.keeps, *m.owes))) for m in self.order.members)
        self.first_commit = True
        self.say(ev.MemberReady, generation=self.order.generation, iteration=self.iteration)
        self._go_on()
        return True

    def _go_on(self) -> None:
        self.stage = "compute"
        if self.iteration >= self.spec.iterations:
            self.stage = ""
            self.say(
                ev.MemberFinished,
                generation=self.shim.standing,
                iteration=self.iteration,
                state_digest=f"state {self.iteration}",
            )

    def _compute(self) -> bool:
        mine = self.assignment[self.rank]
        owed = [m for m in mine if m not in self.kept]
        if owed:
            self.kept.add(owed[0])
            return True
        if self.kept != set(mine):
            raise Failed(f"holds {sorted(self.kept)}, the assignment says {mine}")
        self.stage = "reduce"
        return True

    def _reduce(self) -> bool:
        everybody = self.group.arrive(
            ("reduce", self.iteration), self, (self.iteration, frozenset(self.kept))
        )
        if everybody is None:
            return False
        self.world.check_samples(self.spec, everybody)
        self.reduced = True
        self.stage = "vote"
        return True

    def _vote(self) -> bool:
        ballot = (self.iteration, self.shim.newest)
        votes = self.group.arrive(("vote", self.iteration), self, ballot)
        if votes is None:
            return False
        if len({iteration for iteration, _ in votes}) > 1:
            raise Failed(f"members disagree: {votes}")
        self.newest = max(newest for _, newest in votes)
        self.voted = True
        self.stage = "step"
        return True

    def _step(self) -> bool:
        self._commit()
        self.assignment = assign(self.spec.micro_batches, len(self.order.members))
        if self.first_commit:
            self.first_commit = False
            self.say(ev.MemberCommitted, generation=self.shim.standing, iteration=self.iteration)
        self._go_on()
        if self.stage and core.boundary(self.shim, self.newest):
            self.stage = "switch"
        return True

    def _commit(self) -> None:
        assert self.reduced, f"{self.identity} was told to step without a reduced gradient"
        self.iteration += 1
        self.kept.clear()
        self.reduced = self.voted = False
        self.world.committed(self)

    def _switch(self) -> bool:
        if self.shim.newest < self.newest:
            return False
        self.leave()
        self.shim = core.left(self.shim)
        return True
