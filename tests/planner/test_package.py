"""What importing the planner brings along, and what its results are made of."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

from hypothesis import given

import unicron.planner
from tests.planner.cases import QUICK, problems
from unicron.planner import local_plan
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan

FOLDER = pathlib.Path(unicron.planner.__file__).parent


def test_importing_the_package_needs_no_solver():
    code = (
        "import sys, unicron.planner, unicron.planner.dynamic, unicron.planner.cost\n"
        "found = {'ortools', 'numpy', 'asyncio', 'logging', 'random', 'unicron.planner.cpsat'}\n"
        "print(sorted(found & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def imported(path: pathlib.Path) -> set[str]:
    found = set()
    for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(each, ast.ImportFrom):
            found.add(each.module)
        elif isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
    return found


def test_ortools_is_imported_in_one_place_and_the_check_shares_only_types():
    users = {p.name for p in FOLDER.glob("*.py") if any("ortools" in m for m in imported(p))}
    assert users == {"cpsat.py"}
    parts = imported(FOLDER / "check.py") | imported(FOLDER / "check_state.py")
    ours = {m for m in parts if m.startswith("unicron")} - {"unicron.planner.check_state"}
    assert ours == {"unicron.planner.plan", "unicron.planner.problem"}


def integers_only(value) -> bool:
    if isinstance(value, tuple):
        return all(map(integers_only, value))
    return type(value) in {str, int}


@QUICK
@given(problems((1, 2)))
def test_results_hold_no_floats(base):
    for plan in (local_plan(base), dynamic_plan(base), solve(base)):
        assert integers_only(plan.statistics)
        assert type(plan.value_gflops_milli) is int and type(plan.waf_milli) is int
