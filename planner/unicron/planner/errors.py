"""What can go wrong in the planner, and whose fault it is.

A plan that meets nobody's wishes is a value, not an error: tasks are parked and the plan says so.
"""

from __future__ import annotations

#: A complaint stays readable, whatever names are in it.
_PART_MAX = 500


class PlannerError(Exception):
    """Base of the planner's errors; never raised itself."""


class BadProblem(PlannerError):
    """The problem contradicts itself: the fault of whoever built it, never of the solver.

    `field` is the path of the offending value, `reason` what is wrong with it, `fix` what to do.
    """

    def __init__(self, field: str, reason: str, fix: str) -> None:
        self.field = _said(field)
        self.reason = _said(reason)
        self.fix = _said(fix)
        super().__init__(f"{self.field}: {self.reason}; {self.fix}")


class PlannerBug(PlannerError):
    """The planner broke its own promise. Report it with the problem that led to it."""


class SolverMissing(PlannerError):
    """A library that the method needs isn't installed; the message says how to get it."""


def _said(text: str) -> str:
    """Cut in the middle if it is long; what no encoding can say (half a surrogate) is escaped."""
    if len(text) > _PART_MAX:
        text = f"{text[: _PART_MAX // 2]} ... {text[-_PART_MAX // 2 :]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
