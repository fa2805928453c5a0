"""Pretended workers for whoever tries out a scheduler of their own with an embedded control plane:
the real protocol machine of the shim around training that is only counted, in the host's loop.
"""

import random

from unicron.controlplane.embed.worker import HostedWorker
from unicron.controlplane.testing.collective import Group
from unicron.controlplane.testing.pace import Pace, PaceOptions
from unicron.controlplane.testing.trainee import Trainee
from unicron.controlplane.testing.training import Training
from unicron.events import AnyFact, Envelope, Sequence, TaskSpec, TransitionOrdered


class PretendedWorker(Trainee):
    """One life of a worker, between the control plane and nothing."""

    def __init__(self, crew: "PretendedCrew", hosted: HostedWorker) -> None:
        super().__init__(crew, hosted.order, lambda _, code: self.end(code=code))
        self._hosted = hosted
        hosted.watch(self.beat)

    def wake_when_built(self, after_s: float) -> None:
        """Its model will be there after so long."""
        self._loop.call_later(after_s, self._built)

    def _built(self) -> None:
        if self.alive:
            self._hosted.listen(self._hear)
            self.built()
            self.wake()

    def publish(self, fact: AnyFact) -> None:
        self._hosted.report(fact)

    def end(self, *, code: int | None = None, signal: int | None = None) -> None:
        """Its process is gone."""
        if self.alive:
            self.die()
            self._hosted.exited(code=code, signal=signal)

    def _hear(self, at: Sequence, order: Envelope) -> None:
        if self.alive:
            self.hear(order.term, order.body)


class PretendedCrew:
    """All pretended workers of one host. `launch` and `stop` are what a Scheduler's do."""

    def __init__(self, pace: PaceOptions | None = None) -> None:
        rng = random.Random(0)
        self.pace = Pace(pace or PaceOptions(micro_batch_ms=10, fork_ms=1, build_ms=50), rng)
        #: The newest life of each worker, by its name.
        self.workers: dict[str, PretendedWorker] = {}
        self._rng = rng
        self._groups: dict[tuple[str, int], Group] = {}

    async def launch(self, hosted: HostedWorker) -> int:
        """A worker begins; it needs no process, so its pid is 0."""
        worker = PretendedWorker(self, hosted)
        self.workers[hosted.name] = worker
        worker.wake_when_built(self.pace.fork_s() + self.pace.build_s())
        return 0

    async def stop(self, hosted: HostedWorker, grace_ms: int) -> None:
        """A worker ends, as by SIGTERM, or SIGKILL if there is no grace."""
        worker = self.workers[hosted.name]
        if worker.life[1] == hosted.incarnation:
            worker.end(signal=15 if grace_ms else 9)

    def kill(self, name: str) -> None:
        """A worker's process dies of SIGKILL, unasked."""
        self.workers[name].end(signal=9)

    # --- What training needs of its world ---------------------------------------------------------

    def group(self, order: TransitionOrdered) -> Group:
        key = (order.task, order.generation)
        return self._groups.setdefault(key, Group(order, self._rng))

    def store_stands(self, port: int) -> bool:
        return True

    def reduced(self, spec: TaskSpec, parts: tuple[tuple[int, frozenset[int]], ...]) -> None:
        """Nothing to do: the simulator is who compares."""

    def committed(self, trainee: Training) -> None:
        """Nothing to do."""

    def failed(self, trainee: Training, why: str) -> None:
        raise AssertionError(f"{trainee.life[0]} {why}")
