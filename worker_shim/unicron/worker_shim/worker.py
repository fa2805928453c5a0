"""The worker process: its training thread carries out what the shim's protocol says.

Two threads: this one trains and is the only one that touches torch; the transport's hears orders
and, when one closes a generation, shuts its connections so that this thread comes free at once.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from setproctitle import setproctitle

from unicron.events.envelope import Envelope
from unicron.events.gradient_tree import assign
from unicron.events.ids import Generation, Sequence
from unicron.events.transition import TransitionOrdered
from unicron.worker_shim import core
from unicron.worker_shim.facts import Facts
from unicron.worker_shim.identity import worker_identity
from unicron.worker_shim.injected import suffer
from unicron.worker_shim.journal import Journal
from unicron.worker_shim.launch import WorkerLaunch, title
from unicron.worker_shim.page import Phase, ProgressPage
from unicron.worker_shim.spool import SpoolFile
from unicron.worker_shim.thread_transport import ThreadTransport
from unicron.worker_shim.unblock import Connections

if TYPE_CHECKING:
    from unicron.worker_shim.megatron.trainer import Trainer

log = logging.getLogger(__name__)

#: A member that stopped waits this long for an order before it gives up and ends.
ORDER_WAIT_S = 600.0
#: Limit of forming a generation and of each of its collectives: a backstop, since whoever waits
#: in vain is freed by the close of the generation long before.
COLLECTIVE_LIMIT_S = 60.0
#: How long a member waits at an iteration boundary for an order that others have seen already.
SWITCH_WAIT_S = 20.0
_ASK_AGAIN_S = 1.0


class Interrupted(BaseException):
    """The generation was closed: the training thread stops where it is. Never leaves `Worker`."""


class Worker:
    """One worker's life. `run` returns when it is told to end by signal, or never."""

    def __init__(self, launch: WorkerLaunch) -> None:
        self.launch = launch
        self.spec = launch.spec
        self.page = ProgressPage(
            launch.page_path, launch.incarnation, fault_injection=launch.fault_injection
        )
        self.journal = Journal(launch.journal_path)
        self.shim = core.Shim(
            task=launch.spec.task, worker=launch.worker, incarnation=launch.incarnation
        )
        self.changed = threading.Condition()
        self.connections = Connections(self._foreign)
        self.transport: ThreadTransport | None = None
        self.assignment: tuple[tuple[int, ...], ...] = ()
        self.ranks = 0
        self.rank = 0
        self.first_commit = True
        self.unblock_ms = 0
        self.stopped_in = Phase.PREPARED
        self.slow_ms = 0
        self.micro_batch_us = 0
        self.trainer: Trainer = self._build()

    # --- orders, in the transport's thread ------------------------------------------------------

    def on_order(self, seq: Sequence, envelope: Envelope) -> None:
        """Take in an order; shut the connections of a generation that it closes."""
        with self.changed:
            self.shim, shut = core.on_order(self.shim, envelope.term, envelope.body)
            if shut is not None:
                self.connections.shut(shut)
            self.changed.notify_all()

    def _foreign(self, peer: tuple[str, int]) -> bool:
        return self.transport is not None and self.transport.server_address() == peer

    def _move(self, step: Callable[[core.Shim], core.Shim]) -> None:
        with self.changed:
            self.shim = step(self.shim)

    # --- the training thread --------------------------------------------------------------------

    def run(self) -> None:
        """Prepare, then do what the protocol says until the process is ended."""
        identity = worker_identity(
            self.launch.cluster, self.launch.worker, self.launch.incarnation, self.spec.task
        )
        path = self.launch.spool_path
        spool = SpoolFile(path, identity.owner) if path else None
        self.transport = ThreadTransport(identity, self.launch.nats_url, self.on_order, spool)
        self.facts = Facts(self.launch, self.trainer, self.transport.publish)
        self.page.enter(Phase.PREPARED)
        self.facts.prepared()
        setproctitle(title(self.launch))
        while True:
            what = core.todo(self.shim)
            if what == core.ANSWER:
                self._answer()
            elif what == core.JOIN:
                self._guarded(self._join)
            elif what == core.TRAIN and self.trainer.iteration < self.spec.iterations:
                self._guarded(self._iterate)
            else:
                self._wait()

    def _build(self) -> "Trainer":
        self.page.enter(Phase.BUILD)
        from unicron.worker_shim.megatron.trainer import Trainer

        return Trainer(self.spec, self.on_phase, self.connections)

    def on_phase(self, phase: str, micro_batch: int = -1) -> None:
        """The trainer's hook: tell the page, and stop here if the generation was closed."""
        done = len(self.trainer.kept) if hasattr(self, "trainer") else 0
        if self.page.micro_batches_done != done:
            self.page.set(micro_batches_done=done)
        wanted = self.page.enter(Phase[phase.upper()], done)
        if wanted is not None:
            suffer(self, *wanted)
        if phase == "forward":
            self._stop_if_closed()
            if self.slow_ms:
                time.sleep(self.slow_ms / 1000)
            self.page.count_forward()
            self.journal.forward(self.trainer.iteration, micro_batch, self.trainer.generation or 0)
        elif phase in ("reduction", "vote", "transfer", "regroup"):
            self._stop_if_closed()
            self.page.count_collective()

    # --- long sections, and what a fault injector may ask for ------------------------------------

    def declare(self, limit_ms: int) -> None:
        """The training thread enters a section (evaluation, a checkpoint) in which it makes no
        progress that could be seen, for `limit_ms` at most; 0: it is over."""
        self.page.set(section_ms=limit_ms)

    def spoil(self) -> None:
        """Let the next micro-batch's loss be NaN (fault injection)."""
        self.trainer.spoil = True

    def reset(self) -> None:
        """Reset the connections to the other members (fault injection)."""
        self.connections.cut()

    def _stop_if_closed(self) -> None:
        if core.must_stop(self.shim):
            raise Interrupted

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step of training; a broken collective or a close ends in a quiet state."""
        from unicron.worker_shim.megatron.errors import CollectiveBroken

        generation = self.shim.standing
        try:
            step()
        except Interrupted:
            return
        except CollectiveBroken as error:
            generation = max(generation, self.shim.standing)
            if core.must_stop(self.shim):
                return
            # A symptom: say so, leave at once so that others come free as well, await the close.
            self.stopped_in = self.page.phase
            self._move(core.broke)
            self.trainer.leave()
            self.facts.peer_error(generation, self.stopped_in.label, f"{error.what}: {error.why}")

    def _answer(self) -> None:
        """Leave whatever was closed and say what is held."""
        start = time.monotonic()
        closed = self.shim.closed
        if self.page.phase not in (Phase.PREPARED, Phase.QUIESCED):
            self.stopped_in = self.page.phase
        self.trainer.leave()
        self.unblock_ms = int((time.monotonic() - start) * 1000)
        self.page.enter(Phase.QUIESCED)
        self.facts.quiesced(closed, self.stopped_in.label)
        with self.changed:
            if self.shim.closed == closed:
                self.shim = core.answered(self.shim)

    def _join(self) -> None:
        """Carry out the newest order: step forward, regroup, move state, say ready."""
        with self.changed:
            order = self.shim.order
            if order is None or core.todo(self.shim) != core.JOIN:
                return
            member = core.place(self.shim, order)
            assert member is not None
            self.shim = core.entering(self.shim)
        trainer = self.trainer
        trainer.leave()
        self.page.set(generation=order.generation)
        if member.step_forward:
            self._commit(order.generation)
        elif trainer.reduced:
            trainer.withdraw()
        start = time.monotonic()
        self.rank, self.ranks = member.rank, order.data_parallel
        setproctitle(title(self.launch, member.rank))
        trainer.regroup(
            order.generation,
            member.rank,
            order.data_parallel,
            order.store_address,
            order.store_port,
            COLLECTIVE_LIMIT_S,
        )
        grouped = time.monotonic()
        received = self._transfer(order, member.rank)
        self._assign(order)
        self.first_commit = True
        self.facts.ready(
            order.generation,
            received_bytes=received,
            unblock_ms=self.unblock_ms,
            regroup_ms=int((grouped - start) * 1000),
            transfer_ms=int((time.monotonic() - grouped) * 1000),
        )
        if trainer.iteration >= self.spec.iterations:
            self._finish(order.generation)

    def _transfer(self, order: TransitionOrdered, rank: int) -> int:
        """Send state to whom the order says, or receive it; bytes received."""
        mine = order.members[rank]
        if mine.state_from == -1:
            self.trainer.start()
        elif mine.state_from is not None:
            return self.trainer.receive_state(mine.state_from)
        takers = [m.rank for m in order.members if m.state_from == rank]
        if takers:
            self.trainer.send_state(takers)
        return 0

    def _assign(self, order: TransitionOrdered) -> None:
        if order.planned:
            self.assignment = assign(self.spec.micro_batches, self.ranks)
        else:
            self.assignment = tuple(tuple(sorted((*m.keeps, *m.owes))) for m in order.members)

    def _iterate(self) -> None:
        """One iteration: compute, reduce, vote, step; then leave if an order says so."""
        trainer, generation = self.trainer, self.shim.standing
        if not trainer.reduced:
            before, start = len(trainer.kept), time.monotonic()
            trainer.compute(self.assignment[self.rank])
            computed = len(trainer.kept) - before
            if computed:
                self.micro_batch_us = int((time.monotonic() - start) * 1e6 / computed)
            trainer.reduce(self.assignment)
        voted = trainer.vote(self.shim.newest)
        self._commit(generation)
        self.assignment = assign(self.spec.micro_batches, self.ranks)
        if self.first_commit:
            self.first_commit = False
            self.facts.committed(generation)
        if trainer.iteration >= self.spec.iterations:
            self._finish(generation)
        elif core.boundary(self.shim, Generation(voted)):
            self._switch(voted)

    def _commit(self, generation: int) -> None:
        iteration, contributed = self.trainer.iteration, self.trainer.kept
        loss = self.trainer.step()
        self.journal.commit(iteration, generation, loss=loss, contributed=contributed)
        self.page.set(
            iteration=self.trainer.iteration,
            micro_batches_done=0,
            micro_batch_us=self.micro_batch_us,
        )

    def _switch(self, voted: int) -> None:
        """All members know of a newer generation: leave this one together, without a break."""
        until = time.monotonic() + SWITCH_WAIT_S
        with self.changed:
            while self.shim.newest < voted and self.shim.closed < self.shim.standing:
                if time.monotonic() > until:
                    return  # train on: the others will break, and the close sorts it out
                if not self.changed.wait(_ASK_AGAIN_S) and self.transport is not None:
                    self.transport.ask()
            if self.shim.closed >= self.shim.standing:
                raise Interrupted
        self.page.enter(Phase.REGROUP)
        self.trainer.farewell(COLLECTIVE_LIMIT_S)
        self.trainer.leave()
        self._move(core.left)
        setproctitle(title(self.launch))

    def _finish(self, generation: Generation) -> None:
        self.page.enter(Phase.FINISHED)
        self.facts.finished(generation)

    def _wait(self) -> None:
        """Wait for the next order; ask for it now and then. Ends the process after the limit."""
        if self.page.phase not in (Phase.QUIESCED, Phase.FINISHED, Phase.PREPARED):
            self.page.enter(Phase.PREPARED)
        until = time.monotonic() + ORDER_WAIT_S
        with self.changed:
            while not self._can_go_on():
                if self.changed.wait(_ASK_AGAIN_S):
                    continue
                stopped = self.page.phase is Phase.QUIESCED
                if stopped and time.monotonic() > until:
                    log.error("no order for %s s: this worker ends", ORDER_WAIT_S)
                    sys.exit(3)
                if self.transport is not None and core.todo(self.shim) == core.WAIT:
                    self.transport.ask()

    def _can_go_on(self) -> bool:
        what = core.todo(self.shim)
        if what == core.TRAIN:
            return self.trainer.iteration < self.spec.iterations
        return what in (core.ANSWER, core.JOIN)

    def report(self, error: BaseException) -> None:
        """The training step raised: tell the log what it was, before the process ends."""
        if self.transport is not None:
            self.facts.exception(self.shim.standing, self.page.phase.label, error)
            self.transport.flush(2.0)


def run(launch: WorkerLaunch) -> None:
    """A worker's main, in the process the fork server made for it. Raises what training raised,
    after it was reported."""
    setproctitle(title(launch))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("megatron").setLevel(logging.WARNING)
    worker = Worker(launch)
    try:
        worker.run()
    except Exception as error:
        log.exception("training failed")
        worker.report(error)
        raise
