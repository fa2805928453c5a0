"""What a pretended worker does, step by step: the loop of unicron.worker_shim.worker, around
training that is only counted. A collective is a barrier of its generation's group. Whoever runs it
decides when it takes its next step: in time (trainee.py), or at random.
"""

from __future__ import annotations

import functools
from typing import Final, Protocol

import msgspec

from unicron.controlplane.testing.collective import Broken, Group, Life
from unicron.events import (
    AnyFact,
    ExceptionReported,
    Generation,
    MemberCommitted,
    MemberFinished,
    MemberQuiesced,
    MemberReady,
    NodeId,
    PeerErrorReported,
    TaskSpec,
    TransitionOrdered,
    WorkerExited,
    WorkerPrepared,
    WorkerStartOrdered,
    node_of,
)
from unicron.events.gradient_tree import assign
from unicron.worker_shim import core

#: Stage -> phase as progress pages name it.
PHASES: Final = {
    "build": "build",
    "regroup": "regroup",
    "transfer": "transfer",
    "sent": "transfer",
    "compute": "forward",
    "reduce": "reduction",
    "vote": "vote",
    "step": "voted",
    "switch": "regroup",
    "farewell": "regroup",
    "finished": "finished",
}

#: Stages that a lost connection breaks.
COLLECTIVES: Final = ("regroup", "transfer", "sent", "reduce", "vote")

#: Stages in which it waits for its peers; in "switch" it waits for an order that they know.
WITH_PEERS: Final = (*COLLECTIVES, "farewell")

#: The version that everybody computes with.
TORCH: Final = "2"

#: The same for all members, iteration after iteration.
_assign = functools.lru_cache(maxsize=256)(assign)


class Failed(Exception):
    """The real training thread would raise here: what it was told doesn't fit what it holds."""


class World(Protocol):
    """What training needs of whoever runs it."""

    def group(self, order: TransitionOrdered) -> Group: ...

    def store_stands(self, port: int) -> bool:
        """Is there still a store on that port?"""
        ...

    def reduced(self, spec: TaskSpec, parts: tuple[tuple[int, frozenset[int]], ...]) -> None:
        """All members of a generation reduce together: (iteration, micro-batches) of each."""

    def committed(self, trainee: Training) -> None: ...


class Training:
    """The state of one life of a worker, and its next step."""

    def __init__(self, world: World, start: WorkerStartOrdered) -> None:
        self._world = world
        self.spec: TaskSpec = start.spec
        self.life: Life = (start.worker, start.incarnation)
        self.shim = core.Shim(task=start.task, worker=start.worker, incarnation=start.incarnation)
        self.alive, self.hung = True, False
        self.iteration, self.has_state = 0, False
        self.kept: set[int] = set()
        self.is_reduced = self.voted = False
        self.group: Group | None = None
        self.order: TransitionOrdered | None = None
        self.stage = "build"
        self.assignment: tuple[tuple[int, ...], ...] = ()
        self.rank = 0
        self.first_commit = True
        self.newest = 0
        self.quiesced = False
        #: The version that this process computes with.
        self.torch = TORCH

    @property
    def node(self) -> NodeId:
        return node_of(self.life[0])

    @property
    def phase(self) -> str:
        """What its progress page says."""
        return PHASES.get(self.stage) or ("quiesced" if self.quiesced else "prepared")

    # --- What whoever runs it gives and hears ---------------------------------------------------

    def publish(self, fact: AnyFact) -> None:
        """It has something to say to the log."""
        raise NotImplementedError

    def wake(self) -> None:
        """Something has changed: look again soon."""
        raise NotImplementedError

    def hear(self, term: int, body: object) -> None:
        """An order arrives, in the transport's thread: the training thread may be busy."""
        self.shim, shut = core.on_order(self.shim, term, body)  # type: ignore[arg-type]
        if shut is not None and self.group is not None and core.must_stop(self.shim):
            self.group.leave(self.life)  # its connections are shut at once
        self.wake()

    def built(self) -> None:
        """The model is there."""
        self.stage = ""
        self._say(
            WorkerPrepared,
            parameters=1,
            threads=1,
            torch=self.torch,
            megatron="0",
            spec_digest=self.spec.task,
        )

    def report(self, kind: str, message: str) -> None:
        """Its training step raises an exception, and it says so."""
        self._say(
            ExceptionReported,
            generation=self.shim.standing,
            iteration=self.iteration,
            phase=self.phase,
            kind=kind,
            message=message,
        )

    def die(self, *, silent: bool = False) -> None:
        """The process is gone. `silent`: nobody sees its connections close (its host is off)."""
        self.alive = False
        if self.group is not None and not silent:
            self.group.leave(self.life)

    def last_seen(self, fact: WorkerExited) -> WorkerExited:
        """The news of its end, with what its progress page said last."""
        return msgspec.structs.replace(
            fact,
            iteration=self.iteration,
            micro_batches_done=len(self.kept),
            phase=self.phase,
        )

    # --- The loop -----------------------------------------------------------------------------

    def _say(self, kind: type[AnyFact], /, **fields: object) -> None:
        worker, incarnation = self.life
        own: dict[str, object] = {"worker": worker, "incarnation": incarnation}
        self.publish(kind(task=self.spec.task, **own, **fields))  # type: ignore[arg-type, call-arg]

    def step(self) -> bool:
        """The next small thing. False if it can only wait."""
        if self.stage and core.must_stop(self.shim) and self.stage not in ("step", "finished"):
            self.stage = ""  # interrupted; it answers next
            return True
        try:
            if self.stage and self.stage != "finished":
                return bool(getattr(self, f"_{self.stage}")())
            return self._next()
        except Broken:
            self.break_off("connection closed by peer")
            return True

    def break_off(self, error: str) -> None:
        """A collective failed here: leave, say so, await the close."""
        generation, phase = self.shim.standing, self.phase
        self._leave()
        if core.must_stop(self.shim):
            return
        self.shim = core.broke(self.shim)
        self._say(
            PeerErrorReported,
            generation=generation,
            iteration=self.iteration,
            phase=phase,
            error=error,
        )

    def lose_patience(self) -> None:
        """What it waits for in this stage doesn't come within the limit."""
        if self.stage == "switch":
            self.stage = "compute"  # the others will break, and the close sorts it out
        else:
            self.break_off("no answer within the limit")

    @property
    def runs(self) -> bool:
        """It lives and takes its next step."""
        return self.alive and not self.hung

    @property
    def waits(self) -> bool:
        """It stands in a collective, which may break."""
        return self.runs and self.stage in COLLECTIVES

    def _leave(self) -> None:
        if self.group is not None:
            self.group.leave(self.life)
        self.group, self.stage = None, ""

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
        phase = self.phase
        self._leave()
        self.quiesced = True
        self._say(
            MemberQuiesced,
            generation=self.shim.closed,
            iteration=self.iteration if self.has_state else -1,
            phase=phase,
            kept=tuple(sorted(self.kept)),
            reduced=self.is_reduced,
            voted=self.voted,
        )
        self.shim = core.answered(self.shim)

    def _join(self) -> None:
        order = self.shim.order
        assert order is not None
        member = core.place(self.shim, order)
        assert member is not None
        self.shim = core.entering(self.shim)
        self._leave()
        self.quiesced = False
        self.order, self.rank = order, member.rank
        if member.step_forward:
            self._commit()
        self.is_reduced = self.voted = False
        self.group = self._world.group(order)
        self.group.enter(self)
        self.stage = "regroup"

    def _regroup(self) -> bool:
        assert self.group is not None
        self._need_store()
        if self.group.arrive("regroup", self) is None:
            return False
        self.stage = "transfer"
        return True

    def _transfer(self) -> bool:
        assert self.group is not None
        assert self.order is not None
        mine = self.order.members[self.rank]
        if mine.state_from == -1:
            if self.iteration:
                raise Failed(f"is to start from nothing, and stands at iteration {self.iteration}")
            self.has_state = True
        elif mine.state_from is not None:
            donor = self.group.donor(mine.state_from)
            if donor is None or donor.life in self.group.gone:
                raise Broken
            if donor.stage not in ("transfer", "sent"):
                return False
            self.iteration, self.has_state = donor.iteration, True
            self.kept.clear()
        self.group.come(("has", self.rank), self)
        self.stage = "sent"
        return True

    def _sent(self) -> bool:
        """A donor waits until all have taken the state."""
        assert self.group is not None
        assert self.order is not None
        for other in self.order.members:
            if other.state_from == self.rank and not self.group.has_come(("has", other.rank)):
                if self.group.gone:
                    raise Broken
                return False
        if not self.has_state:
            raise Failed("is to train without state")
        ranks = len(self.order.members)
        if self.order.planned:
            self.assignment = _assign(self.spec.micro_batches, ranks)
        else:
            self.assignment = tuple(tuple(sorted((*m.keeps, *m.owes))) for m in self.order.members)
        self.first_commit = True
        self._say(MemberReady, generation=self.order.generation, iteration=self.iteration)
        self._go_on()
        return True

    def _go_on(self) -> None:
        self.stage = "compute"
        if self.iteration >= self.spec.iterations:
            self.stage = "finished"
            self._say(
                MemberFinished,
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
        assert self.group is not None
        mine = (self.iteration, frozenset(self.kept))
        everybody = self.group.arrive(("reduce", self.iteration), self, mine)
        if everybody is None:
            return False
        self._world.reduced(self.spec, tuple(everybody))  # type: ignore[arg-type]
        self.is_reduced = True
        self.stage = "vote"
        return True

    def _vote(self) -> bool:
        assert self.group is not None
        votes = self.group.arrive(("vote", self.iteration), self, self.shim.newest)
        if votes is None:
            return False
        self.newest = max(v for v in votes if isinstance(v, int))
        self.voted = True
        self.stage = "step"
        return True

    def _step(self) -> bool:
        assert self.order is not None
        self._commit()
        self.assignment = _assign(self.spec.micro_batches, len(self.order.members))
        if self.first_commit:
            self.first_commit = False
            self._say(MemberCommitted, generation=self.shim.standing, iteration=self.iteration)
        self._go_on()
        if self.stage == "compute" and core.boundary(self.shim, Generation(self.newest)):
            self.stage = "switch"
        return True

    def _commit(self) -> None:
        if not self.is_reduced:
            raise Failed("was told to step without a reduced gradient")
        self.iteration += 1
        self.kept.clear()
        self.is_reduced = self.voted = False
        self._world.committed(self)

    def _need_store(self) -> None:
        assert self.order is not None
        if not self._world.store_stands(self.order.store_port):
            raise Broken

    def _switch(self) -> bool:
        if self.shim.newest < self.newest:
            return False
        self.stage = "farewell"
        return True

    def _farewell(self) -> bool:
        """Nobody leaves before all are about to."""
        assert self.group is not None
        self._need_store()
        if self.group.arrive("farewell", self, by_store=True) is None:
            return False
        self._leave()
        self.shim = core.left(self.shim)
        return True
