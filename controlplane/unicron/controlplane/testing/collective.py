"""The collectives of one generation, as barriers between pretended workers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from unicron.events import Incarnation, TransitionOrdered, WorkerId

if TYPE_CHECKING:
    from unicron.controlplane.testing.training import Training

#: One life of a worker.
Life = tuple[WorkerId, Incarnation]


class Broken(Exception):
    """A collective can't be completed any more: somebody of the group has gone."""


class Group:
    """A barrier is complete once everybody has come to it, and stays so for those who haven't
    noticed yet. Nothing here waits: whoever finds it incomplete comes again when woken."""

    def __init__(self, order: TransitionOrdered, rng: random.Random) -> None:
        self._rng = rng
        self.people: tuple[Life, ...] = tuple((m.worker, m.incarnation) for m in order.members)
        self.entered: dict[Life, Training] = {}
        self.gone: set[Life] = set()
        self._came: dict[object, dict[Life, object]] = {}

    def arrive(
        self, barrier: object, who: Training, value: object = None, *, by_store: bool = False
    ) -> list[object] | None:
        """Everybody's values in the order of their ranks once all have come; None before.
        `by_store`: it is one of keys in the store, which outlive who wrote them.

        Raises:
            Broken: somebody who is still to come has gone; perhaps also if all have come.
        """
        came = self._came.setdefault(barrier, {})
        news = who.life not in came
        came.setdefault(who.life, value)
        if self.gone and not by_store and self._rng.random() < 0.5:
            raise Broken  # it may or may not have got through before the others left
        if len(came) == len(self.people):
            if news:
                self._wake(who)
            return [came[person] for person in self.people]
        if self.gone.difference(came):
            raise Broken
        return None

    def has_come(self, barrier: object) -> bool:
        """Somebody has come there."""
        return barrier in self._came

    def come(self, barrier: object, who: Training) -> None:
        """Be there, without waiting for the others."""
        self._came.setdefault(barrier, {})[who.life] = None
        self._wake(who)

    def enter(self, who: Training) -> None:
        self.entered[who.life] = who

    def leave(self, life: Life) -> None:
        """Its connections are closed, as all others see at once."""
        if life not in self.gone:
            self.gone.add(life)
            self._wake(None)

    def donor(self, rank: int) -> Training | None:
        return self.entered.get(self.people[rank])

    def _wake(self, but: Training | None) -> None:
        for life in self.people:
            trainee = self.entered.get(life)
            if trainee is not None and trainee is not but and life not in self.gone:
                trainee.wake()
