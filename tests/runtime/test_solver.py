"""The planner's child process: it never outlives whoever asked."""

import os
from pathlib import Path

import anyio
import pytest

from tests.planner.cases import linear, node, problem, running, slots, task
from unicron.controlplane.runtime import solver as solver_module
from unicron.controlplane.runtime.ports import SolverFailed
from unicron.controlplane.runtime.solver import ChildSolver
from unicron.planner import check, encode_plan
from unicron.planner.cpsat import solve
from unicron.planner.explain import explain


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


PROBLEM = problem([node("n0", 4)], [running("a", linear(4), slots("n0/0-1")), task("b", linear(2))])


async def test_a_plan_comes_with_its_explanation() -> None:
    solver = ChildSolver()
    try:
        plan, explanation = await solver.solve(PROBLEM)
    finally:
        await solver.aclose()
    assert check(PROBLEM, plan) == ()
    assert explanation == explain(PROBLEM, plan)


def _instead(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Another program runs as the child."""
    opened = anyio.open_process

    async def open_process(command: list[str], **more: object) -> object:
        return await opened([command[0], "-c", code], **more)  # type: ignore[arg-type]

    monkeypatch.setattr(solver_module.anyio, "open_process", open_process)


async def test_a_plan_waits_for_its_explanation_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = encode_plan(solve(PROBLEM)).decode()
    _instead(monkeypatch, f"import time; print({plan!r}, flush=True); time.sleep(60)")
    monkeypatch.setattr(solver_module, "_EXPLANATION_S", 0.1)
    before = _children()
    assert await ChildSolver().solve(PROBLEM) == (solve(PROBLEM), ())
    assert _children() == before


@pytest.mark.parametrize(
    "code,complaint",
    [
        ("import sys; sys.exit(2)", "exit code 2, and no answer"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9, and no answer"),
        ("import sys; print('{}'); sys.exit(1)", "exit code 1: {}"),
        ("import time; time.sleep(60)", "no answer within 0.3 s"),
    ],
)
async def test_no_plan_is_said_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, code: str, complaint: str
) -> None:
    _instead(monkeypatch, code)
    with pytest.raises(SolverFailed) as caught:
        await ChildSolver(limit_s=0.3 if "sleep" in code else 20.0).solve(PROBLEM)
    assert complaint in str(caught.value)
