"""The planner in a child process: it may be late, wrong or dead, and nobody waits for it.

A child is kept warm (its imports take a second), answers one problem, explains its plan and ends.
"""

import contextlib
import logging
import sys

import anyio
import anyio.abc
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from unicron.controlplane.runtime.ports import Solved, SolverFailed
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem, encode

log = logging.getLogger(__name__)

_LINE_MAX = 64 << 20
#: A plan doesn't wait longer than that for its explanation.
_EXPLANATION_S = 2.0


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
                    [sys.executable, "-m", "unicron.planner.child", "--explain"],
                    start_new_session=True,
                )

    async def solve(self, problem: PlanProblem) -> Solved:
        """The best plan for the problem, and why it is that.

        Raises:
            SolverFailed: no answer within the limit, a crash, or a bad problem.
        """
        await self.warm()
        child, self._child = self._child, None
        assert child is not None
        try:
            with anyio.fail_after(self._limit_s):
                lines = BufferedByteReceiveStream(_output(child))
                plan = await _plan(child, lines, encode(problem))
            with anyio.move_on_after(_EXPLANATION_S):
                return Solved(plan, await _explanation(lines))
            return Solved(plan)
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


def _output(child: anyio.abc.Process) -> anyio.abc.ByteReceiveStream:
    assert child.stdout is not None
    return child.stdout


async def _plan(child: anyio.abc.Process, lines: BufferedByteReceiveStream, request: bytes) -> Plan:
    assert child.stdin is not None
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await child.stdin.send(request)
        await child.stdin.aclose()
    try:
        line = await lines.receive_until(b"\n", _LINE_MAX)
    except (anyio.IncompleteRead, anyio.DelimiterNotFound):
        raise SolverFailed(f"exit code {await child.wait()}, and no answer") from None
    try:
        return msgspec.json.decode(line, type=Plan)
    except msgspec.DecodeError as error:
        said = line.decode(errors="replace")[:300]
        raise SolverFailed(f"exit code {await child.wait()}: {said} ({error})") from error


async def _explanation(lines: BufferedByteReceiveStream) -> tuple[str, ...]:
    """Empty if there is none: the plan is as good without."""
    try:
        line = await lines.receive_until(b"\n", _LINE_MAX)
        return msgspec.json.decode(line, type=tuple[str, ...])
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, msgspec.DecodeError) as error:
        log.warning("a plan without an explanation: %r", error)
        return ()


async def _end(child: anyio.abc.Process) -> None:
    with anyio.CancelScope(shield=True):
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        with anyio.move_on_after(5.0):
            await child.aclose()
