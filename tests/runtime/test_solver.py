"""The planner's child process: it never outlives whoever asked."""

import os
from pathlib import Path

import anyio

from unicron.controlplane.runtime.solver import ChildSolver


def _children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


async def test_a_child_is_ended_at_whatever_moment_its_start_was_cancelled() -> None:
    before, begun = _children(), 0
    for tenths_ms in range(0, 60, 3):
        solver = ChildSolver()
        with anyio.move_on_after(tenths_ms / 10_000):
            await solver.warm()
        begun += len(_children()) > len(before)
        await solver.aclose()
        assert _children() == before
    assert begun
