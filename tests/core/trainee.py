"""A pretended worker of a World: the simulator's, but nothing has a time. It takes a step when the
World says so, and what it says and hears waits until the World lets it through.
"""

from collections import deque

from unicron import events as ev
from unicron.controlplane.testing.training import WITH_PEERS, Training


class Trainee(Training):
    """One life of a worker, whose model is there at once."""

    def __init__(self, world, start: ev.WorkerStartOrdered) -> None:
        super().__init__(world, start)
        self.inbox: deque[tuple[int, ev.Decision]] = deque()
        self.outbox: deque[ev.Fact] = deque()
        self.built()

    def publish(self, fact: ev.Fact) -> None:
        self.outbox.append(fact)

    def wake(self) -> None:
        """The World asks everybody again and again."""

    def take_in(self) -> None:
        """Hear the next order."""
        self.hear(*self.inbox.popleft())

    @property
    def may_give_up(self) -> bool:
        """It waits for others, which has a limit."""
        return self.runs and self.stage in (*WITH_PEERS, "switch")
