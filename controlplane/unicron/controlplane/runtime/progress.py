"""Hangs, slow ranks and how long iterations take, from the progress that beats report; pure, fed
with the time.

Judged by the receiver's monotonic clock only. Progress is the worker's own page, read by its
agent, so no thread of the worker is needed for it: a worker that holds the interpreter for long is
seen as it is. When a task stalls, everyone waits in the same collective; the culprit is whoever
stands strictly behind.
"""

import statistics
from typing import Final

import msgspec

from unicron.controlplane.core import limits
from unicron.controlplane.core.state import ClusterState, TaskState, WorkerState
from unicron.controlplane.runtime.stopwatch import Stopwatch
from unicron.events import Beat, TaskMeasured, TaskStalled, WorkerBeat, WorkerSlow

#: Phases in which an iteration is worked on, by how far that is. Others have limits of their own.
_RANK: Final = {
    "forward": 0,
    "backward": 0,
    "reduction": 1,
    "vote": 2,
    "voted": 3,
    "step": 4,
    "committed": 5,
}
_DURATIONS: Final = 8


class _Seen(msgspec.Struct):
    """Where a worker stood, and since when (ms)."""

    beat: WorkerBeat
    since: int
    heard: int
    micro_batches_us: list[int]
    typical_us: float = 0.0
    slow: bool = False


class _Pace(msgspec.Struct):
    """How long a task's iterations take (ms), and when the newest was committed."""

    generation: int = 0
    iteration: int = -1
    at: int = 0
    durations: list[int] = []


class ProgressWatch:
    """All times in milliseconds of one monotonic clock."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._pace: dict[str, _Pace] = {}
        self._told: dict[str, int] = {}
        self._stopwatch = Stopwatch()
        #: The workers of the newest state.
        self._workers: dict[str, WorkerState] = {}
        #: How often a worker told of another micro-batch, and what of that each task's members
        #: were compared on last, and in which generation.
        self._measured = 0
        self._compared: dict[str, tuple[int, int]] = {}

    def heard(self, beat: Beat, now: int) -> None:
        """Take in a beat."""
        for worker in beat.workers:
            key = (worker.worker, worker.incarnation)
            seen = self._seen.get(key)
            if seen is None:
                self._seen[key] = _Seen(beat=worker, since=now, heard=now, micro_batches_us=[])
                continue
            if seen.beat.iteration < worker.iteration and worker.micro_batch_us:
                seen.micro_batches_us = [*seen.micro_batches_us, worker.micro_batch_us]
                seen.micro_batches_us = seen.micro_batches_us[-limits.SLOW_ITERATIONS :]
                seen.typical_us = statistics.median(seen.micro_batches_us)
                self._measured += 1
            if seen.beat != worker:
                seen.beat, seen.since = worker, now
            seen.heard = now

    def restart(self) -> None:
        """We were away: nobody's time of silence counts."""
        self._seen.clear()
        self._pace.clear()
        self._compared.clear()
        self._stopwatch.restart()

    def begin(self) -> None:
        """We lead from here on: nobody knows what came of what we said in an earlier term."""
        self._told.clear()
        self._compared.clear()
        self._stopwatch.restart()
        for seen in self._seen.values():
            seen.slow = False

    def opinions(
        self, state: ClusterState, now: int
    ) -> list[TaskStalled | WorkerSlow | TaskMeasured]:
        """Changes of opinion that are due."""
        self.forget(state)
        found: list[TaskStalled | WorkerSlow | TaskMeasured] = []
        for task in sorted(state.tasks.values(), key=lambda t: t.submitted):
            members = self._members(task, now)
            if members is None:
                self._stopwatch.rests(task, now)
                continue
            newest = self._clock(task, members, now)
            if newest is not None:
                steady = self._is_steady(task, members)
                # One at a time: each is written and read back, and hangs wait meanwhile.
                ask = not any(isinstance(opinion, TaskMeasured) for opinion in found)
                told = self._stopwatch.commits(state, task, newest, now, steady=steady, ask=ask)
                found += [] if told is None else [told]
            stalled = self._stalled(task, members, now)
            if stalled is not None and self._told.get(task.spec.task) != task.generation:
                self._told[task.spec.task] = task.generation
                found.append(stalled)
            found += self._slow(task, members)
        return found

    def forget(self, state: ClusterState) -> None:
        """Drop what is known of workers that are gone."""
        if self._workers is state.workers:
            return
        self._workers = state.workers
        current = {(w.worker, w.incarnation) for w in state.workers.values()}
        self._seen = {key: seen for key, seen in self._seen.items() if key in current}

    def _members(self, task: TaskState, now: int) -> list[_Seen] | None:
        """What is known of each member; None unless all were heard lately, in this generation and
        in the midst of an iteration. Who isn't heard of is the business of the node's silence."""
        if task.phase != "running" or task.finished or not task.members:
            return None
        found = [self._seen.get((m.worker, m.incarnation)) for m in task.members]
        members = [s for s in found if s is not None]
        if len(members) != len(found):
            return None
        for seen in members:
            beat = seen.beat
            lately = now - seen.heard <= limits.BEAT_FRESH_MS
            if not lately or beat.generation != task.generation or beat.phase not in _RANK:
                return None
        return members

    def _is_steady(self, task: TaskState, members: list[_Seen]) -> bool:
        """Nobody is slow or busy with anything else, and it did not stand still."""
        if self._told.get(task.spec.task) == task.generation:
            return False
        return not any(s.slow or s.beat.section_ms for s in members)

    def _clock(self, task: TaskState, members: list[_Seen], now: int) -> int | None:
        """How many iterations are committed, if that is news."""
        pace = self._pace.get(task.spec.task)
        newest = max(s.beat.iteration for s in members)
        if pace is None or pace.generation != task.generation:
            kept = pace.durations if pace is not None else []
            pace = _Pace(generation=task.generation, iteration=newest, at=now, durations=kept)
            self._pace[task.spec.task] = pace
            return newest
        if newest > pace.iteration:
            # Beats may miss a commit: then the distance is that of several.
            took = (now - pace.at) // (newest - pace.iteration)
            pace.durations = [*pace.durations, took][-_DURATIONS:]
            pace.iteration, pace.at = newest, now
            return newest
        return None

    def _stalled(self, task: TaskState, members: list[_Seen], now: int) -> TaskStalled | None:
        stalled = now - max(s.since for s in members)
        if stalled <= limits.STALL_MS:
            return None  # no limit is shorter
        limit = self._limit(task, members)
        if stalled <= limit:
            return None
        places = {s.beat.worker: _place(s.beat) for s in members}
        foremost = max(places.values())
        behind = sorted(w for w, place in places.items() if place < foremost)
        if len(behind) == len(places):
            behind = []
        where = ", ".join(
            f"{s.beat.worker} in {s.beat.phase} of iteration {s.beat.iteration}"
            for s in sorted(members, key=lambda s: s.beat.worker)
        )
        return TaskStalled(
            task=task.spec.task,
            generation=task.generation,
            behind=tuple(behind),
            stalled_ms=stalled,
            evidence=f"limit {limit} ms; {where}",
        )

    def _limit(self, task: TaskState, members: list[_Seen]) -> int:
        """How long standing still is no hang: three iterations, more for the first one, and as
        long as a declared section may take. Who has only begun to lead hasn't timed an iteration
        yet, but members tell how long their last micro-batches took."""
        durations = self._pace[task.spec.task].durations
        if len(durations) < 2:
            durations = _told(task, members)
        usual = limits.STALL_ITERATIONS * int(statistics.median(durations)) if durations else 0
        declared = max(s.beat.section_ms for s in members)
        least = limits.STALL_MS if durations else limits.FIRST_STEP_MS
        return max(usual, least, declared)

    def _slow(self, task: TaskState, members: list[_Seen]) -> list[WorkerSlow]:
        """Who takes longer for a micro-batch than the others, iteration after iteration."""
        news = self._measured, task.generation
        if self._compared.get(task.spec.task) == news:
            return []
        self._compared[task.spec.task] = news
        if len(members) < 3 or any(
            len(s.micro_batches_us) < limits.SLOW_ITERATIONS for s in members
        ):
            return []
        found = []
        for seen in members:
            worker = seen.beat.worker
            others = statistics.median(s.typical_us for s in members if s is not seen)
            percent = int(100 * seen.typical_us / max(1, others))
            is_slow = percent > limits.SLOW_PERCENT
            if is_slow == seen.slow or (seen.slow and percent > limits.SLOW_OVER_PERCENT):
                continue
            seen.slow = is_slow
            found.append(
                WorkerSlow(
                    task=task.spec.task,
                    worker=worker,
                    incarnation=seen.beat.incarnation,
                    percent=percent if is_slow else 100,
                    evidence=f"{seen.typical_us / 1000:.0f} ms a micro-batch, the others "
                    f"{others / 1000:.0f} ms, over {limits.SLOW_ITERATIONS} iterations",
                )
            )
        return found


def _told(task: TaskState, members: list[_Seen]) -> list[int]:
    """What an iteration takes by what the slowest member says of its micro-batches, and as much
    again for all that isn't computing (ms); nothing if one has no iteration behind it."""
    slowest = max(s.beat.micro_batch_us for s in members)
    if not all(s.beat.micro_batch_us for s in members):
        return []
    each = -(-task.spec.micro_batches // len(members))
    return [2 * each * slowest // 1000]


def _place(beat: WorkerBeat) -> tuple[int, int, int]:
    """How far a member is: iteration, phase, and in the computing phases micro-batches done. In a
    collective all have done what they owe, however much that is."""
    rank = _RANK[beat.phase]
    return beat.iteration, rank, beat.micro_batches_done if rank == 0 else 0
