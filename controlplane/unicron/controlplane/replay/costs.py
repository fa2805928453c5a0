"""What incidents cost: the throughput a task had before, less what it had, over the time until it
had it again.

Where one incident made a task smaller and another one came before that was mended, each bears its
own part: the later one what is missing of the throughput it found, the earlier one the rest. So the
costs of a task's incidents add up to what the task lost.
"""

from collections.abc import Sequence as SequenceOf
from itertools import pairwise

import msgspec

from unicron.controlplane.replay.summary import LOG_END, TASK_ENDED, WHOLE, TaskCost
from unicron.controlplane.replay.throughput import Pace
from unicron.events import Sequence, TaskId

_MS = 1_000_000


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """An incident as one task saw it: from the event `first_seq` (or `began_ns`, if that was
    earlier) to the resolution at `over_ns`, None if it is open. `planned`: it was not hit itself,
    a plan made it smaller."""

    incident: str
    task: TaskId
    first_seq: Sequence
    began_ns: int
    over_ns: int | None
    planned: bool = False


class _Window(msgspec.Struct, kw_only=True):
    """What an episode is measured by, and what it has come to."""

    episode: Episode
    from_ns: int
    to_ns: int
    until: str
    gflops: int
    devices: int
    lost_flop: int = 0
    lost_device_ns: int = 0
    stall_ns: int = 0


def costs_of(
    paces: SequenceOf[Pace], episodes: SequenceOf[Episode], end_ns: int
) -> tuple[TaskCost, ...]:
    """Costs of one task's episodes, in their order (by first sequence). `end_ns`: of the log."""
    windows = [_window(paces, episode, end_ns) for episode in episodes]
    edges = {p.at_ns for p in paces} | {w.from_ns for w in windows} | {w.to_ns for w in windows}
    times = sorted(edges)
    index = -1
    for start, end in pairwise(times):
        while index + 1 < len(paces) and paces[index + 1].at_ns <= start:
            index += 1
        active = [w for w in windows if w.from_ns <= start and end <= w.to_ns]
        if active:
            _share(active, paces[index] if index >= 0 else None, end - start)
    return tuple(_cost(w) for w in windows)


def _window(paces: SequenceOf[Pace], episode: Episode, end_ns: int) -> _Window:
    before = [p for p in paces if p.seq < episode.first_seq]
    after = [p for p in paces if p.seq >= episode.first_seq]
    base = before[-1] if before else None
    gflops, devices = (base.gflops, base.devices) if base else (0, 0)
    start = max(episode.began_ns, base.at_ns if base else episode.began_ns)
    end, until = _end(base, after, episode, gflops, end_ns)
    return _Window(
        episode=episode,
        from_ns=start,
        to_ns=max(start, end),
        until=until,
        gflops=gflops,
        devices=devices,
    )


def _end(
    base: Pace | None, after: SequenceOf[Pace], episode: Episode, gflops: int, end_ns: int
) -> tuple[int, str]:
    """When the count ends, and why then."""
    over, now = episode.over_ns, base
    smaller = not episode.planned  # a planned change may come only after the resolution
    for pace in after:
        whole = smaller and now is not None and now.gflops >= gflops
        if whole and over is not None and pace.at_ns > over:
            return max(over, now.at_ns if now else over), WHOLE
        if pace.ended:
            return pace.at_ns, TASK_ENDED
        smaller = smaller or pace.gflops < gflops
        now = pace
    if over is None:
        return end_ns, LOG_END
    if (now.gflops if now else 0) >= gflops:
        return max(over, now.at_ns if now and smaller else over), WHOLE
    return end_ns, LOG_END


def _share(active: SequenceOf[_Window], pace: Pace | None, took_ns: int) -> None:
    """Each active window bears what is missing between what it found and what a later one found."""
    gflops, devices = (pace.gflops, pace.devices) if pace else (0, 0)
    if not devices:
        # Who was standing still already was not stopped by the plan that made it smaller.
        stopped = [w for w in active if w.devices or not w.episode.planned]
        (stopped or active)[-1].stall_ns += took_ns
    for window in reversed(active):
        window.lost_flop += max(0, window.gflops - gflops) * took_ns
        window.lost_device_ns += max(0, window.devices - devices) * took_ns
        gflops, devices = max(gflops, window.gflops), max(devices, window.devices)


def _cost(window: _Window) -> TaskCost:
    return TaskCost(
        task=window.episode.task,
        from_ns=window.from_ns,
        to_ns=window.to_ns,
        until=window.until,
        gflops_before=window.gflops,
        devices_before=window.devices,
        stall_ms=window.stall_ns // _MS,
        lost_flop=window.lost_flop,
        lost_device_ms=window.lost_device_ns // _MS,
    )
