"""The host's word on plans: a solver whose answers it has seen.

A plan that isn't approved is no plan: the solver's answer enters the log as an error that says who
refused and why, and is dropped for it like any other. So a replay needs no host.
"""

import logging
from collections.abc import Awaitable, Callable

import anyio

from unicron.controlplane.core import limits
from unicron.controlplane.embed.change import PlannedChange, change_of
from unicron.controlplane.embed.scheduler import NotApproved
from unicron.controlplane.runtime.ports import Solved, Solver, SolverFailed
from unicron.planner.problem import PlanProblem

log = logging.getLogger(__name__)

#: A plan must be solved and approved within limits.SOLVE_MS, of which the solver takes up to 15 s.
APPROVAL_LIMIT_MAX_S = limits.SOLVE_MS / 1000 - 15.0 - 1.0
_TEXT_MAX = 500


class ApprovingSolver:
    """Solver that asks `approve` about every plan which takes devices from tasks that weren't hit.
    `who`: whose approval it is, for the log."""

    def __init__(
        self,
        solver: Solver,
        approve: Callable[[PlannedChange], Awaitable[None]],
        who: str,
        *,
        limit_s: float,
    ) -> None:
        self._solver = solver
        self._approve = approve
        self._who = who
        self._limit_s = limit_s

    async def warm(self) -> None:
        await self._solver.warm()

    async def solve(self, problem: PlanProblem) -> Solved:
        """Raises SolverFailed if there is no plan, or if it isn't approved."""
        solved = await self._solver.solve(problem)
        change = change_of(problem, solved.plan)
        if change.planned:
            refusal = await self._refusal(change)
            if refusal is not None:
                raise SolverFailed(f"not approved by {self._who}: {refusal[:_TEXT_MAX]} ({change})")
        return solved

    async def _refusal(self, change: PlannedChange) -> str | None:
        try:
            with anyio.fail_after(self._limit_s):
                await self._approve(change)
        except TimeoutError:
            return f"no answer within {self._limit_s:g} s"
        except NotApproved as error:
            return str(error) or "no reason given"
        except Exception as error:
            log.exception("%s failed to approve a plan", self._who)
            return f"{type(error).__name__}: {error}"
        return None
