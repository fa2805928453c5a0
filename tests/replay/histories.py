"""Histories to replay: incidents of each kind, and random ones in which facts land between a
decision's basis and the decision itself."""

import random

from tests.core.story import Story, running
from unicron import events as ev
from unicron.controlplane.core.decide import decide


def killed() -> Story:
    """A worker dies, and comes back on its device."""
    story = running(2)
    story.exit("n1/1")
    story.settle()
    return story


def powered_off() -> Story:
    """A node loses power; the cluster goes on without it."""
    story = running(3)
    story.lose("n2")
    story.settle()
    return story


def joined() -> Story:
    """A node is added and the task grows onto it."""
    story = running(2)
    story.join("n3")
    story.settle()
    return story


def night() -> Story:
    """All of that, one after the other."""
    story = running(3)
    story.exit("n1/1")
    story.settle()
    story.lose("n2")
    story.settle()
    story.join("n4")
    story.settle()
    return story


class Restless(Story):
    """A story in which facts land between what was decided on and the decision, as in a real log.
    Agents and shims carry out only what applied."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disturbances = 8
        self.applied = True
        super().__init__()

    def step(self) -> ev.Decision | None:
        at = self.state
        verdict = decide(at)
        if verdict is None:
            return None
        for _ in range(self.chance.choice((0, 0, 1, 2))):
            self.disturb()
        void = self.state.void
        self.write(verdict, at)
        self.applied = self.state.void == void
        return verdict.body

    def react(self, body: ev.Decision) -> None:
        if self.applied:
            super().react(body)

    def ready(self, body, member, iteration) -> None:
        worker = self.state.workers[member.worker]
        alive = worker.status in ("prepared", "member")
        if alive and worker.incarnation == member.incarnation:
            super().ready(body, member, iteration)

    def disturb(self) -> None:
        """Something happens anywhere, mostly something harmless."""
        members = [w for w in self.state.workers.values() if w.status == "member"]
        if not members or not self.disturbances or self.chance.random() < 0.7:
            self.connect("worker", "stranger/0", len(self.log))
            return
        self.disturbances -= 1
        hit = self.chance.choice(members)
        if self.chance.random() < 0.5:
            self.exit(hit.worker)
        else:
            self.peer_error(hit.worker)

    def peer_error(self, name: str) -> None:
        worker = self.state.workers[name]
        task = self.state.tasks[worker.task]
        self.fact(
            f"worker/{name}",
            worker.incarnation,
            ev.PeerErrorReported(
                task=worker.task,
                worker=worker.worker,
                incarnation=worker.incarnation,
                generation=task.generation,
                iteration=task.iteration,
                phase="reduce",
                error="connection closed by peer",
            ),
        )


def restless(seed: int) -> Restless:
    """A night with disturbances at every step; the same one for the same seed."""
    story = Restless(seed)
    for n in (1, 2, 3):
        story.join(f"n{n}")
    story.settle(1000)
    story.submit()
    story.settle(1000)
    for n in (4, 5):
        story.exit(story.chance.choice([*story.state.workers]))
        story.settle(1000)
        story.lose(f"n{n - 3}")
        story.settle(1000)
        story.join(f"n{n}")
        story.settle(1000)
    return story
