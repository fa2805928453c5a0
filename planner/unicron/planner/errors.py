"""What can go wrong in the planner, and whose fault it is.

A plan that meets nobody's wishes is a value, not an error: tasks are parked and the plan says so.
"""

from __future__ import annotations


class PlannerError(Exception):
    """Base of the planner's errors; never raised itself."""


class BadProblem(PlannerError):
    """The problem contradicts itself: the fault of whoever built it, never of the solver.

    `field` is the path of the offending value, `reason` what is wrong with it, `fix` what to do.
    """

    def __init__(self, field: str, reason: str, fix: str) -> None:
        super().__init__(f"{field}: {reason}; {fix}")
        self.field = field
        self.reason = reason
        self.fix = fix


class PlannerBug(PlannerError):
    """The planner broke its own promise. Report it with the problem that led to it."""


class SolverMissing(PlannerError):
    """A library that the method needs isn't installed; the message says how to get it."""
