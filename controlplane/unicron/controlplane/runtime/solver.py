"""The planner in a child process: it may be late, wrong or dead, and nobody waits for it.

A child is kept warm (its imports take a second), answers one problem and ends.
"""

import contextlib
import sys

import anyio
import anyio.abc
import msgspec

from unicron.controlplane.runtime.ports import SolverFailed
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem, encode


class ChildSolver:
    """Solver in a child process; aclose() ends it."""

    def __init__(self, *, limit_s: float = 15.0) -> None:
        self._limit_s = limit_s
        self._child: anyio.abc.Process | None = None

    async def warm(self) -> None:
        """Have a child ready."""
        if self._child is None or self._child.returncode is not None:
            with anyio.CancelScope(shield=True):  # half begun, nobody would end it
                self._child = await anyio.open_process(
                    [sys.executable, "-m", "unicron.planner.child"], start_new_session=True
                )

    async def solve(self, problem: PlanProblem) -> Plan:
        """The best plan for the problem.

        Raises:
            SolverFailed: no answer within the limit, a crash, or a bad problem.
        """
        await self.warm()
        child, self._child = self._child, None
        assert child is not None
        try:
            with anyio.fail_after(self._limit_s):
                return await _converse(child, encode(problem))
        except TimeoutError:
            raise SolverFailed(f"no answer within {self._limit_s} s") from None
        except OSError as error:
            raise SolverFailed(f"the solver's process broke: {error}") from error
        finally:
            await _end(child)

    async def aclose(self) -> None:
        """End the warm child."""
        if self._child is not None:
            await _end(self._child)
            self._child = None


async def _converse(child: anyio.abc.Process, request: bytes) -> Plan:
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await child.stdin.send(request)
        await child.stdin.aclose()
    answer = b""
    async for chunk in child.stdout:
        answer += chunk
    code = await child.wait()
    if code != 0:
        raise SolverFailed(f"exit code {code}: {answer.decode(errors='replace')[:300].strip()}")
    try:
        return msgspec.json.decode(answer, type=Plan)
    except msgspec.DecodeError as error:
        raise SolverFailed(f"unreadable answer: {error}") from error


async def _end(child: anyio.abc.Process) -> None:
    with anyio.CancelScope(shield=True):
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        with anyio.move_on_after(5.0):
            await child.aclose()
