"""Hangs and slow ranks from what beats report."""

import pytest

from tests.core.story import running
from unicron.controlplane.core import limits
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.runtime.progress import ProgressWatch
from unicron.events import Beat, NodeId, TaskStalled, WorkerBeat, WorkerSlow

ITERATION_MS = 400
WORKERS = ("n1/0", "n1/1", "n2/0", "n2/1")


class Watched:
    """A task at DP 4 whose members beat as told."""

    def __init__(self) -> None:
        self.state: ClusterState = running().state
        self.watch = ProgressWatch()
        self.now = 0
        self.number = 0
        self.pages = {name: self._page(name) for name in WORKERS}

    def _page(self, name: str) -> WorkerBeat:
        worker = self.state.workers[name]
        return WorkerBeat(
            worker=worker.worker,
            incarnation=worker.incarnation,
            alive=True,
            generation=self.state.tasks["gpt"].generation,
            iteration=0,
            micro_batches_done=0,
            phase="forward",
            collectives=0,
        )

    def put(self, name: str, **fields: object) -> None:
        import msgspec

        self.pages[name] = msgspec.structs.replace(self.pages[name], **fields)

    def beat(self, ms: int) -> list[TaskStalled | WorkerSlow]:
        """Time passes in steps of 200 ms, with a beat of each node; opinions formed meanwhile."""
        found: list[TaskStalled | WorkerSlow] = []
        for _ in range(ms // 200):
            self.now += 200
            self.number += 1
            for node in ("n1", "n2"):
                workers = tuple(p for n, p in self.pages.items() if n.startswith(node))
                incarnation = self.state.nodes[node].incarnation
                self.watch.heard(
                    Beat(
                        node=NodeId(node),
                        incarnation=incarnation,
                        number=self.number,
                        workers=workers,
                    ),
                    self.now,
                )
            found += self.watch.opinions(self.state, self.now)
        return found

    def train(self, iterations: int, slow: str = "", took_us: int = 30_000) -> list:
        found = []
        for _ in range(iterations):
            for name in WORKERS:
                page = self.pages[name]
                us = took_us * 3 if name == slow else took_us
                self.put(name, iteration=page.iteration + 1, micro_batch_us=us, phase="forward")
            found += self.beat(ITERATION_MS)
        return found


@pytest.fixture
def watched() -> Watched:
    made = Watched()
    assert made.train(6) == []
    return made


def _wait_for(watched: Watched, victim: str, phase: str = "reduction") -> None:
    for name in WORKERS:
        if name != victim:
            watched.put(name, phase=phase, micro_batches_done=3)


def test_the_one_strictly_behind_is_to_blame(watched: Watched):
    watched.put("n2/1", micro_batches_done=1)
    _wait_for(watched, "n2/1")
    assert watched.beat(limits.STALL_ITERATIONS * ITERATION_MS) == []
    (opinion,) = watched.beat(400)
    assert isinstance(opinion, TaskStalled)
    assert opinion.behind == ("n2/1",)
    assert opinion.stalled_ms > limits.STALL_ITERATIONS * ITERATION_MS
    assert watched.beat(4000) == []  # said once for a generation


def test_nobody_is_to_blame_if_all_stand_at_the_same_place(watched: Watched):
    _wait_for(watched, "")
    (opinion,) = watched.beat(2000)
    assert isinstance(opinion, TaskStalled)
    assert opinion.behind == ()


def test_a_declared_section_takes_as_long_as_it_says(watched: Watched):
    watched.put("n2/1", section_ms=20_000)
    _wait_for(watched, "n2/1")
    assert watched.beat(19_800) == []
    (opinion,) = watched.beat(1000)
    assert isinstance(opinion, TaskStalled)
    assert opinion.behind == ("n2/1",)


def test_who_has_only_begun_to_watch_knows_from_the_members_how_long_an_iteration_takes():
    """A new leader: a member hangs before it has timed two iterations itself."""
    watched = Watched()
    for name in WORKERS:
        watched.put(name, iteration=50, micro_batch_us=100_000)
    watched.put("n2/1", micro_batches_done=1)
    for name in WORKERS[:3]:
        watched.put(name, phase="reduction")
    # Three times twelve micro-batches over four members, and as much again: 1800 ms.
    assert watched.beat(1600) == []
    (stalled,) = watched.beat(1200)
    assert isinstance(stalled, TaskStalled)
    assert stalled.behind == ("n2/1",)
    assert "limit 1800 ms" in stalled.evidence


def test_the_first_step_has_a_limit_of_its_own():
    watched = Watched()
    watched.put("n2/1", micro_batches_done=1)
    _wait_for(watched, "n2/1")
    assert watched.beat(limits.FIRST_STEP_MS - 1000) == []
    assert len(watched.beat(2000)) == 1


def test_a_node_that_is_not_heard_of_is_no_hang_of_its_workers(watched: Watched):
    _wait_for(watched, "n2/1")
    for name in ("n2/0", "n2/1"):
        del watched.pages[name]
    assert watched.beat(10_000) == []


def test_members_in_a_transition_are_not_judged(watched: Watched):
    for name in WORKERS:
        watched.put(name, phase="quiesced")
    assert watched.beat(10_000) == []


def test_a_slow_rank_is_named_once_and_taken_back(watched: Watched):
    (opinion,) = watched.train(8, slow="n1/1")
    assert isinstance(opinion, WorkerSlow)
    assert opinion.worker == "n1/1"
    assert opinion.percent == 300
    (over,) = watched.train(8)
    assert isinstance(over, WorkerSlow)
    assert (over.worker, over.percent) == ("n1/1", 100)


def test_what_was_said_in_an_earlier_term_is_said_again_in_the_next(watched: Watched):
    """It may have been refused: another instance led meanwhile."""
    watched.train(8, slow="n2/0")
    watched.put("n2/1", micro_batches_done=1)
    _wait_for(watched, "n2/1")
    assert len(watched.beat(10_000)) == 1
    watched.watch.begin()
    found = watched.beat(400)
    assert {type(opinion) for opinion in found} == {TaskStalled, WorkerSlow}


def test_a_follower_forgets_workers_that_are_gone(watched: Watched):
    watched.watch.forget(ClusterState())
    assert not watched.watch._seen
