"""What to run where: problems, plans, the answers to them, their check and their explanation.

Nothing here needs a solver. The exact one is `unicron.planner.cpsat.solve`, which needs ortools and
belongs into a child process (`unicron.planner.child`).
"""

from unicron.planner.check import Violation, check
from unicron.planner.errors import BadProblem, PlannerBug, PlannerError
from unicron.planner.explain import explain, explain_data
from unicron.planner.local import local_plan
from unicron.planner.plan import Assignment, Plan, encode_plan
from unicron.planner.problem import (
    Layout,
    LayoutOption,
    NodeSupply,
    PlanProblem,
    Slot,
    TaskDemand,
    digest,
    encode,
    validate,
)

__all__ = [
    "Assignment",
    "BadProblem",
    "Layout",
    "LayoutOption",
    "NodeSupply",
    "Plan",
    "PlanProblem",
    "PlannerBug",
    "PlannerError",
    "Slot",
    "TaskDemand",
    "Violation",
    "check",
    "digest",
    "encode",
    "encode_plan",
    "explain",
    "explain_data",
    "local_plan",
    "validate",
]
