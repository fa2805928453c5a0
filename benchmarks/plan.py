"""How long planning takes and how good the answers are, on large made-up clusters; table and JSON.

    make bench BENCH=plan ARGS='--json'

Every problem is a cluster that has just lost a node (see `plan_problems.py`), once with nothing but
its capacity to share and once with side constraints: kinds, quotas, floors, avoided and draining
nodes. Times are CPU seconds of this process, from the problem to the plan, placement included; the
solver has one thread.

    lookup_us          the entry for a lost node out of the table of next events
    table_s            that table made anew: every lost node, every kind that joins, every task that
                       ends; up to 64 tasks also every pair of lost nodes, in pairs_s
    failure_s          a lost node, from the look-up to the checked plan
    dp_s               the dynamic programme, capacity only: exact, what a failure waits for
    cpsat_capacity_s   CP-SAT, capacity only, the dynamic programme's hint included
    dp_sides_s         the dynamic programme with side constraints: good, not exact
    cpsat_s            CP-SAT with side constraints, likewise
    cpsat_status       whether the latter is proven: "optimal", "feasible", or "hint" if the hint
                       stands
    gap                by how much the hint's value falls short of the latter's, as a share; none
                       where it meets fewer floors or leaves draining nodes in use
"""

import argparse
import json
import time
from collections.abc import Callable

from plan_problems import plan_problem

from unicron.planner import Plan, Planner, PlanProblem, check
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.pricing import merit
from unicron.planner.tables import PAIR_TASKS_MAX, Table, fill_table
from unicron.planner.whatif import carried_out, failed

SIZES = ((6, 128), (64, 4096), (128, 16_384), (256, 100_000))

LOOKUPS = 10_000

COLUMNS = ("lookup_us", "table_s", "pairs_s", "failure_s")
COLUMNS += ("dp_s", "cpsat_capacity_s", "dp_sides_s", "cpsat_s", "cpsat_status", "gap")


def timed(answer: Callable[[PlanProblem], Plan], problem: PlanProblem) -> tuple[Plan, float]:
    """A plan, which passes the check, and the CPU seconds it took."""
    begun = time.process_time()
    plan = answer(problem)
    spent = time.process_time() - begun
    broken = check(problem, plan)
    if broken:
        raise SystemExit(f"a plan fails the check: {broken[0]}")
    return plan, spent


def measured(tasks: int, gpus: int, seed: int) -> dict[str, object]:
    """One row."""
    capacity = plan_problem(tasks, gpus, seed, sides=False)
    sides = plan_problem(tasks, gpus, seed, sides=True)
    by_table, dp_s = timed(dynamic_plan, capacity)
    by_solver, cpsat_capacity_s = timed(solve, capacity)
    hint, dp_sides_s = timed(dynamic_plan, sides)
    best, cpsat_s = timed(solve, sides)
    if by_table.value_gflops_milli != by_solver.value_gflops_milli:
        raise SystemExit("the dynamic programme and CP-SAT disagree where both are exact")
    return {
        "tasks": tasks,
        "gpus": gpus,
        **tabled(capacity, by_table),
        "dp_s": dp_s,
        "cpsat_capacity_s": cpsat_capacity_s,
        "dp_sides_s": dp_sides_s,
        "cpsat_s": cpsat_s,
        "cpsat_status": _status(best),
        "gap": _gap(sides, hint, best),
    }


def tabled(problem: PlanProblem, plan: Plan) -> dict[str, object]:
    """What the table of next events costs and gives, once the plan is in force."""
    base = carried_out(problem, plan)
    table = Table(0)
    begun = time.process_time()
    singles_s = None
    for _ in fill_table(table, base):
        if singles_s is None and len(table.after_end) == len(base.tasks):
            singles_s = time.process_time() - begun
    whole_s = time.process_time() - begun
    assert singles_s is not None
    node = next(a.slots[0].node for a in plan.assignments if a.slots)
    begun = time.perf_counter()
    for _ in range(LOOKUPS):
        entry = table.failed(0, node)
    lookup_us = (time.perf_counter() - begun) / LOOKUPS * 1e6
    after = failed(base, node)
    begun = time.process_time()
    entry = table.failed(0, node)
    assert entry is not None
    found = entry.plan(after)
    failure_s = time.process_time() - begun
    if not entry.local and found.value_gflops_milli != dynamic_plan(after).value_gflops_milli:
        raise SystemExit("an entry of the table isn't worth what a fresh plan is")
    return {
        "lookup_us": lookup_us,
        "table_s": singles_s,
        "pairs_s": whole_s - singles_s if len(base.tasks) <= PAIR_TASKS_MAX else None,
        "failure_s": failure_s,
        "local_entries": sum(each.local for each in table.after_loss.values()),
    }


def _gap(problem: PlanProblem, hint: Plan, best: Plan) -> float | None:
    if merit(problem, hint)[0] != merit(problem, best)[0]:
        return None
    return 1 - hint.value_gflops_milli / max(1, best.value_gflops_milli)


def _status(plan: Plan) -> str:
    if plan.source != "cpsat":
        return "hint"
    return "optimal" if dict(plan.statistics)["optimal"] else "feasible"


def show(rows: list[dict[str, object]]) -> None:
    print(f"{'tasks':>6} {'GPUs':>8}" + "".join(f"{name:>18}" for name in COLUMNS))
    for row in rows:
        cells = (
            f"{value:.4f}" if isinstance(value, float) else str(value)
            for value in (row[name] for name in COLUMNS)
        )
        print(f"{row['tasks']:>6} {row['gpus']:>8}" + "".join(f"{cell:>18}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    parser.add_argument("--seed", type=int, default=1, help="of the problems (default: 1)")
    parser.add_argument(
        "--sizes", type=int, default=len(SIZES), help="only so many sizes, smallest first"
    )
    args = parser.parse_args()
    Planner("cpsat")  # loads the solver, which isn't part of any plan
    rows = [measured(tasks, gpus, args.seed) for tasks, gpus in SIZES[: args.sizes]]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
