"""The exact answer, by CP-SAT: one Boolean per task and choice. The only module with ortools.

Settings as measured: one worker and a fixed seed (the same answer every time), linearization
level 2 (level 0 ends far from the optimum), presolve off (faster here, and with it a complete hint
is not always used within a short limit), a deterministic limit instead of a clock.

With several tensor parallel sizes, counting devices isn't enough: a node of 7 devices holds one
group of 4. For each size t above the smallest, and each class of nodes that are alike, an integer
says how many groups of t fit beside the tasks that stay there. Groups that change are free to go
anywhere, and sizes divide one another, so these counts are exact: what fits them can be placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from ortools.sat.python import cp_model

from unicron.planner.assemble import build
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.errors import PlannerBug
from unicron.planner.floors import countable_floors, must_run
from unicron.planner.objective import Board, Choice, board, merit, packed, prune, stages
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem

DETERMINISTIC_MS = 4_000
SEED = 7


class _NodeClass(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with the same number of healthy devices and of devices held by each staying task."""

    count: int
    devices: int
    held: tuple[tuple[int, int], ...]  # (task position, devices held on each such node)


class _Model:
    """One CP-SAT model of a board; objectives are set one after the other."""

    def __init__(self, prepared: Board, hint: Sequence[int]) -> None:
        self.prepared = prepared
        self.model = cp_model.CpModel()
        self.pick: list[dict[int, cp_model.IntVar]] = [
            {k: self.model.new_bool_var(f"t{i}c{k}") for k in prune(row, keep=[hinted])}
            for i, (row, hinted) in enumerate(zip(prepared.choices, hint, strict=True))
        ]
        for row in self.pick:
            self.model.add_exactly_one(row.values())
        self.room: list[tuple[cp_model.IntVar, _NodeClass, int]] = []
        self._limit_devices()

    def _limit_devices(self) -> None:
        prepared, model = self.prepared, self.model
        model.add(self._devices(0, staying=True) <= prepared.capacity)
        classes = _node_classes(prepared)
        for size in prepared.sizes[1:]:
            fitting: list[tuple[int, cp_model.IntVar]] = []
            for c, alike in enumerate(classes):
                if alike.devices < size:
                    continue
                room = model.new_int_var(0, alike.devices // size, f"s{size}n{c}")
                self.room.append((room, alike, size))
                model.add(_total([(size, room), *self._held(alike)]) <= alike.devices)
                fitting.append((alike.count * size, room))
            model.add(self._devices(size, staying=False) <= _total(fitting))

    def _devices(self, size: int, *, staying: bool) -> cp_model.LinearExpr:
        """Devices of all choices in groups of at least `size`, those of staying tasks or not."""
        return _total(
            (self.prepared.choices[i][k].devices, var)
            for i, row in enumerate(self.pick)
            for k, var in row.items()
            if self.prepared.choices[i][k].tp >= size
            and (staying or not self.prepared.choices[i][k].stays)
        )

    def _held(self, alike: _NodeClass) -> list[tuple[int, cp_model.IntVar]]:
        return [
            (held, var)
            for i, held in alike.held
            for k, var in self.pick[i].items()
            if self.prepared.choices[i][k].stays
        ]

    def require(self, tasks: frozenset[int]) -> None:
        """These tasks must run."""
        for i in tasks:
            self.model.add(self.pick[i][0] == 0)

    def objective(self, scores: list[list[int]]) -> cp_model.LinearExpr:
        """The sum of the scores of what is picked."""
        return _total(
            (scores[i][k], var) for i, row in enumerate(self.pick) for k, var in row.items()
        )

    def hint(self, picks: Sequence[int]) -> None:
        """Start from these picks; all variables are given, since a partial hint may be ignored."""
        self.model.clear_hints()
        for i, row in enumerate(self.pick):
            for k, var in row.items():
                self.model.add_hint(var, int(k == picks[i]))
        for room, alike, size in self.room:
            held = sum(held for i, held in alike.held if self.prepared.choices[i][picks[i]].stays)
            self.model.add_hint(room, (alike.devices - held) // size)

    def solve(
        self, deterministic_ms: int
    ) -> tuple[cp_model.CpSolverStatus, list[int] | None, cp_model.CpSolver]:
        """Status, one choice per task if there is an answer, and the solver."""
        invalid = self.model.validate()
        if invalid:
            raise PlannerBug(f"CP-SAT refuses the model: {invalid}")
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = SEED
        solver.parameters.linearization_level = 2
        solver.parameters.cp_model_presolve = False
        solver.parameters.max_deterministic_time = deterministic_ms / 1000
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return status, None, solver
        picks = [next(k for k, var in row.items() if solver.value(var)) for row in self.pick]
        return status, picks, solver


def _total(terms: Iterable[tuple[int, cp_model.IntVar]]) -> cp_model.LinearExpr:
    pairs = list(terms)
    return cp_model.LinearExpr.weighted_sum([var for _, var in pairs], [c for c, _ in pairs])


def solve(
    problem: PlanProblem, hint: Plan | None = None, *, deterministic_ms: int = DETERMINISTIC_MS
) -> Plan:
    """The best plan for a valid problem, found from `hint` (the dynamic programme's by default).

    Minimums are met, or given up by priority where they can't be (`Plan.relaxed`). Never worse
    than the hint: if the limit ends the search first, the better of both is returned. The statistic
    `optimal` is 1 if it is proven best; `limit_reached` is 1 if a limit ended any search.
    """
    prepared = board(problem)
    hint = dynamic_plan(problem) if hint is None else hint
    start = _indexes(prepared, hint)
    forced, settled = _floors(prepared, start, deterministic_ms)
    picks, counts = _optimise(prepared, start, forced, deterministic_ms)
    counts["optimal"] = int(settled and counts["limit_reached"] == 0)
    if picks is None:
        return hint
    chosen = [row[k] for row, k in zip(prepared.choices, picks, strict=True)]
    plan = build(prepared, chosen, "cpsat", tuple(sorted(counts.items())))
    if plan is None:
        raise PlannerBug("sizes that fit could not be placed")
    return max((plan, hint), key=lambda plan: merit(problem, plan)[:3])


def _optimise(
    prepared: Board, start: list[int], forced: frozenset[int], deterministic_ms: int
) -> tuple[list[int] | None, Counter[str]]:
    """One solve per stage of the objective, each held to the results of those before."""
    model = _Model(prepared, start)
    model.require(forced)
    counts: Counter[str] = Counter(limit_reached=0)
    best: list[int] | None = None
    for first, last in stages(prepared):
        scores, _ = packed(prepared, first, last)
        score = model.objective(scores)
        model.hint(start if best is None else best)
        model.model.maximize(score)
        status, picks, solver = model.solve(deterministic_ms)
        counts["stages"] += 1
        counts["booleans"] = solver.num_booleans
        counts["branches"] += solver.num_branches
        counts["conflicts"] += solver.num_conflicts
        counts["limit_reached"] |= int(status != cp_model.OPTIMAL)
        if picks is None:
            break
        best = picks
        # In Python integers: the solver's own figure is a double.
        reached = sum(scores[i][k] for i, k in enumerate(picks))
        model.model.add(score >= reached)
    return best, counts


def _floors(
    prepared: Board, start: list[int], deterministic_ms: int
) -> tuple[frozenset[int], bool]:
    """The minimums that hold, and whether that is certain."""
    if prepared.countable:
        return countable_floors(prepared), True
    certain = True

    def feasible(tasks: frozenset[int]) -> bool:
        nonlocal certain
        model = _Model(prepared, start)
        model.require(tasks)
        status, picks, _ = model.solve(deterministic_ms)
        certain &= status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        return picks is not None

    return must_run(prepared, feasible), certain


def _indexes(prepared: Board, hint: Plan) -> list[int]:
    """The hint's choices as indexes; what isn't on the board counts as parked."""
    given = {assignment.task: assignment for assignment in hint.assignments}
    found = []
    for task, row in zip(prepared.tasks, prepared.choices, strict=True):
        assignment = given.get(task.task)
        layout = None if assignment is None else assignment.layout
        same = assignment is not None and assignment.slots == task.placement
        matching = [k for k, choice in enumerate(row) if choice.layout == layout]
        # Staying comes before moving with the same layout.
        found.append((matching[0] if same else matching[-1]) if matching else 0)
    return found


def _node_classes(prepared: Board) -> tuple[_NodeClass, ...]:
    staying = [(i, task) for i, task in enumerate(prepared.tasks) if _may_stay(prepared.choices[i])]
    held: dict[str, Counter[int]] = {}
    for i, task in staying:
        for slot in task.placement:
            held.setdefault(slot.node, Counter())[i] += 1
    alike = Counter(
        (len(node.devices), tuple(sorted(held.get(node.node, Counter()).items())))
        for node in prepared.problem.nodes
    )
    return tuple(
        _NodeClass(count=count, devices=devices, held=holders)
        for (devices, holders), count in sorted(alike.items())
    )


def _may_stay(row: tuple[Choice, ...]) -> bool:
    return any(choice.stays and choice.layout is not None for choice in row)
