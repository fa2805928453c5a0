"""A worker's protocol without training: the shim's own state machine and transport, and pretended
members that commit some iterations as soon as they stand in a generation, and then no more."""

import contextlib
import os
import threading
from pathlib import Path

from unicron.events import MemberCommitted, MemberQuiesced, MemberReady, WorkerPrepared
from unicron.worker_shim import core
from unicron.worker_shim.identity import worker_identity
from unicron.worker_shim.page import Phase, ProgressPage
from unicron.worker_shim.spool import SpoolFile
from unicron.worker_shim.thread_transport import ThreadTransport

#: Iterations that a generation brings: more than what lets a failure count as an old one.
_STRIDE = 5
_LOOK_S = 0.05
_ASK_EVERY = 20


def run(launch):
    """Entry of a worker process, as the agent is told with --entry."""
    Member(launch).run()


class Member:
    def __init__(self, launch):
        self.launch = launch
        self.task = launch.spec.task
        self.iteration = -1  # it has no state
        self.shim = core.Shim(task=self.task, worker=launch.worker, incarnation=launch.incarnation)
        self.changed = threading.Condition()
        self.page = ProgressPage(launch.page_path, launch.incarnation)
        self.page.set(section_ms=3_600_000)  # it makes no progress that could be seen
        self.page.enter(Phase.PREPARED)
        identity = worker_identity(launch.cluster, launch.worker, launch.incarnation, self.task)
        spool = SpoolFile(launch.spool_path, identity.owner)
        self.transport = ThreadTransport(identity, launch.nats_url, self.on_order, spool)

    def on_order(self, _, envelope):
        with self.changed:
            before = self.shim.refused
            self.shim, _ = core.on_order(self.shim, envelope.term, envelope.body)
            if self.shim.refused > before and envelope.term < self.shim.term:
                print(f"refused: {envelope.body}", flush=True)
            self.changed.notify_all()

    def run(self):
        self.say(WorkerPrepared, parameters=1, threads=1, torch="2", megatron="0", spec_digest="s")
        looks = 0
        while True:
            with self.changed:
                self.changed.wait(_LOOK_S)
            looks += 1
            self.act(core.todo(self.shim))
            if core.todo(self.shim) == core.WAIT and looks % _ASK_EVERY == 0:
                self.transport.ask()

    def act(self, what):
        if what == core.ANSWER:
            self.answer()
        elif what == core.JOIN or (what == core.TRAIN and self.shim.order is not None):
            self.join(self.shim.order)
        elif what == core.TRAIN and self.shim.excluded > self.shim.standing:
            self.move(core.left)

    def answer(self):
        closed = self.shim.closed
        self.say(
            MemberQuiesced,
            generation=closed,
            iteration=self.iteration,
            phase="forward",
            kept=(),
            reduced=False,
            voted=False,
        )
        with self.changed:
            if self.shim.closed == closed:
                self.shim = core.answered(self.shim)

    def join(self, order):
        """Enter the generation at the iteration where all members are to begin it."""
        begins = self.begins(order)
        if begins is None:
            return
        with self.changed:
            if self.shim.order is not order:
                return
            self.shim = core.entering(self.shim)
        generation, self.iteration = order.generation, begins
        self.page.set(generation=generation, iteration=begins)
        self.say(MemberReady, generation=generation, iteration=begins)
        self.say(MemberCommitted, generation=generation, iteration=begins + 1)
        self.iteration += _STRIDE
        self.page.set(iteration=self.iteration)

    def begins(self, order):
        """None: whoever holds the state has not said so yet. Members leave a word in a file, in
        place of the vote and the transfer that they don't do."""
        if not order.planned:
            return order.iteration
        word = Path(self.launch.page_path).parent.parent / f"{self.task}.{order.generation}"
        place = core.place(self.shim, order)
        if self.iteration >= 0 or place.state_from == -1:
            with contextlib.suppress(FileExistsError):
                new = word.with_suffix(f".{os.getpid()}")
                new.write_text(str(max(self.iteration, 0)))
                os.link(new, word)
        return int(word.read_text()) if word.exists() else None

    def move(self, step):
        with self.changed:
            self.shim = step(self.shim)

    def say(self, kind, **fields):
        launch = self.launch
        self.transport.publish(
            kind(task=self.task, worker=launch.worker, incarnation=launch.incarnation, **fields)
        )
