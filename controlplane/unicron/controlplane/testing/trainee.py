"""A pretended worker: the real protocol machine of the shim, in time. Anything may happen between
any two of its steps, which training.py has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from unicron.controlplane.testing.client import Client
from unicron.controlplane.testing.pace import Pace
from unicron.controlplane.testing.training import WITH_PEERS, Failed, Training
from unicron.controlplane.testing.training import World as TrainingWorld
from unicron.events import AnyFact, WorkerBeat, WorkerStartOrdered

#: Limits of the real worker (unicron.worker_shim.worker), in seconds.
ORDER_WAIT_S, COLLECTIVE_LIMIT_S, SWITCH_WAIT_S, ASK_AGAIN_S = 600.0, 60.0, 20.0, 1.0


class World(TrainingWorld, Protocol):
    """What a trainee needs of the simulation."""

    pace: Pace

    def failed(self, trainee: Training, why: str) -> None: ...


class Trainee(Training):
    """One life of a worker. `exit`: called once when its process ends by itself, with its code."""

    _world: World

    def __init__(
        self,
        world: World,
        start: WorkerStartOrdered,
        exit: Callable[[Trainee, int], None],  # noqa: A002
    ) -> None:
        super().__init__(world, start)
        self.client: Client | None = None
        self._exit = exit
        self._loop = asyncio.get_running_loop()
        self._due: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._waiting: tuple[str, float] = ("", 0.0)
        self.slowness_percent = 100
        #: When the newest micro-batch that it began slowly is or was done, on the loop's clock.
        self.slow_until_s = float("-inf")
        #: The limit of the declared section it is in, or is to enter with its next step.
        self.section_ms = 0
        self._in_section = False
        #: A fault that waits for it to come to a phase.
        self.trap: tuple[str, Callable[[], None]] | None = None

    def beat(self) -> WorkerBeat:
        """Its progress page as the agent reads it."""
        return WorkerBeat(
            worker=self.life[0],
            incarnation=self.life[1],
            alive=True,
            generation=self.shim.standing,
            iteration=self.iteration,
            micro_batches_done=len(self.kept),
            phase=self.phase,
            collectives=0,
            micro_batch_us=self._world.pace.usual_us(self.slowness_percent),
            section_ms=self.section_ms,
        )

    def prepare(self, client: Client) -> None:
        """The model is built; it connects."""
        self.client = client
        client.open()
        self.built()
        self.wake()

    def publish(self, fact: AnyFact) -> None:
        assert self.client is not None
        self.client.publish(fact)

    def die(self, *, silent: bool = False) -> None:
        for timer in (self._due, self._patience):
            if timer is not None:
                timer.cancel()
        super().die(silent=silent)

    def raise_exception(self, kind: str, message: str) -> None:
        """Its training step raises: it says so and ends."""
        self.report(kind, message)
        self.stage, self.hung = "", True  # it flushes its facts, up to two seconds, and ends
        self._loop.call_later(self._world.pace.exit_s(), self._exit, self, 1)

    # --- Time ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something has changed: look again soon, unless it is busy."""
        if self._due is None and self.runs:
            self._due = self._loop.call_later(self._world.pace.glance_s(), self._run)

    def _run(self) -> None:
        self._due = None
        if self._in_section:
            self._in_section, self.section_ms = False, 0
        if self.trap is not None and self.trap[0] == self.phase:
            trap, self.trap = self.trap[1], None
            trap()
        if not self.runs:
            return
        try:
            moved = self.step()
        except Failed as error:
            self._world.failed(self, str(error))
            return
        if moved and self.runs:
            self._waiting = ("", 0.0)
            self._due = self._loop.call_later(self._cost_s(), self._run)
        elif self._patience is None:
            self._patience = self._loop.call_later(ASK_AGAIN_S, self._lose_patience)

    def _cost_s(self) -> float:
        """How long the next step takes."""
        pace = self._world.pace
        if self.section_ms:
            self._in_section = True
            return self.section_ms / 2000
        if self.stage == "compute":
            took_s = pace.micro_batch_us(self.slowness_percent) / 1e6
            if self.slowness_percent > 100:
                self.slow_until_s = self._loop.time() + took_s
            return took_s
        return pace.step_s(self.stage)

    def _lose_patience(self) -> None:
        """It has waited for a second, for others or for an order."""
        self._patience = None
        if not self.runs or self._due is not None:
            return
        now, key = self._loop.time(), f"{self.stage}:{self.shim.standing}:{self.iteration}"
        if self._waiting[0] != key:
            self._waiting = (key, now - ASK_AGAIN_S)
        waited = now - self._waiting[1]
        if self.stage in WITH_PEERS:
            if waited >= COLLECTIVE_LIMIT_S:
                self.lose_patience()
        elif self.stage == "switch" and waited >= SWITCH_WAIT_S:
            self.lose_patience()
        elif not self.stage and self.quiesced and waited >= ORDER_WAIT_S:
            self._exit(self, 3)
            return
        elif self.client is not None:
            self.client.ask()
        self.wake()
