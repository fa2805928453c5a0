"""What to run where: problems, plans, the answers to them, their check and their explanation.

Importing this needs no solver: `Planner` loads ortools when its method asks for it.
"""

from unicron.planner.check import Violation, check
from unicron.planner.errors import BadProblem, PlannerBug, PlannerError, SolverMissing
from unicron.planner.explain import explain, explain_data
from unicron.planner.explanation import Explanation, explanation
from unicron.planner.local import local_plan
from unicron.planner.outlook import Outlook, outlook
from unicron.planner.picture import picture
from unicron.planner.plain import problem_from, read_problem
from unicron.planner.plan import Assignment, Plan, Transfer, encode_plan
from unicron.planner.planner import Method, Planner
from unicron.planner.problem import (
    Layout,
    LayoutOption,
    NodeSupply,
    PlanProblem,
    Slot,
    TaskDemand,
    TenantQuota,
    digest,
    encode,
)
from unicron.planner.spares import SpareWorth, with_spare
from unicron.planner.strategies import STRATEGIES
from unicron.planner.tables import Entry, Table, build_table, fill_table
from unicron.planner.validation import validate

__all__ = [
    "STRATEGIES",
    "Assignment",
    "BadProblem",
    "Entry",
    "Explanation",
    "Layout",
    "LayoutOption",
    "Method",
    "NodeSupply",
    "Outlook",
    "Plan",
    "PlanProblem",
    "Planner",
    "PlannerBug",
    "PlannerError",
    "Slot",
    "SolverMissing",
    "SpareWorth",
    "Table",
    "TaskDemand",
    "TenantQuota",
    "Transfer",
    "Violation",
    "build_table",
    "check",
    "digest",
    "encode",
    "encode_plan",
    "explain",
    "explain_data",
    "explanation",
    "fill_table",
    "local_plan",
    "outlook",
    "picture",
    "problem_from",
    "read_problem",
    "validate",
    "with_spare",
]
