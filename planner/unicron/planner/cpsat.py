"""The exact answer, by CP-SAT: one Boolean per task and choice. The only module with ortools.

Settings as measured: one worker and a fixed seed (the same answer every time), linearization
level 2 (level 0 ends far from the optimum), presolve off (faster here, and with it a complete hint
is not always used within a short limit), a deterministic limit instead of a clock.

First devices are only counted: by kind, by group size, by quota. What is best then is placed, and
if that works nothing better can exist. Only if it doesn't the model is told where groups fit (see
`packing.py`): how many of each sort go to each class of nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ortools.sat.python import cp_model

from unicron.planner.assemble import build
from unicron.planner.choosing import core
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.errors import PlannerBug
from unicron.planner.floors import countable_floors, wanted_floors
from unicron.planner.limits import Limit, Tally, group_limits, kind_limits, quota_limits
from unicron.planner.objective import Board, Choice, board
from unicron.planner.packing import NodeClass, Sort, likes, node_classes
from unicron.planner.plan import Plan
from unicron.planner.pricing import merit
from unicron.planner.problem import PlanProblem, digest
from unicron.planner.scores import packed, stages

DETERMINISTIC_MS = 4_000
SEED = 7
# Floors decided at once: powers of two up to here stay exact.
FLOORS_AT_ONCE = 48

Terms = Iterable[tuple[int, cp_model.IntVar]]


class _Model:
    """One CP-SAT model of a board, with these choices of each task; objectives are set one after
    the other."""

    def __init__(self, prepared: Board, rows: Sequence[Sequence[int]], *, spread: bool) -> None:
        self.prepared = prepared
        self.model = cp_model.CpModel()
        self.picks = [
            {k: self.model.new_bool_var(f"t{i}c{k}") for k in row} for i, row in enumerate(rows)
        ]
        for row in self.picks:
            self.model.add_exactly_one(row.values())
        for limit in _limits(prepared):
            used = [
                (choice.devices, var)
                for i, _, choice, var in self._all()
                if limit.counts(i, choice)
            ]
            self.model.add(_total(used) <= limit.most)
        if spread:
            self._spread()

    def _all(self) -> Iterator[tuple[int, int, Choice, cp_model.IntVar]]:
        """Task, number of the choice, choice, Boolean."""
        for i, (choices, row) in enumerate(zip(self.prepared.choices, self.picks, strict=True)):
            for k, var in row.items():
                yield i, k, choices[k], var

    def _spread(self) -> None:
        """Groups that change go to classes of nodes; those of tasks that stay are there already."""
        prepared, model = self.prepared, self.model
        like = likes(prepared)
        wanted: dict[Sort, list[tuple[int, cp_model.IntVar]]] = {}
        for i, _, choice, var in self._all():
            if choice.layout is not None and not choice.stays:
                sort = Sort(tp=choice.tp, kind=choice.kind, like=like[i])
                wanted.setdefault(sort, []).append((choice.devices // choice.tp, var))
        placed: dict[Sort, list[tuple[int, cp_model.IntVar]]] = {sort: [] for sort in wanted}
        for c, nodes in enumerate(node_classes(prepared)):
            here: list[tuple[Sort, cp_model.IntVar]] = []
            for s, sort in enumerate(sorted(wanted)):
                if sort.fits(nodes):
                    most = nodes.count * (nodes.devices // sort.tp)
                    var = model.new_int_var(0, most, f"s{s}n{c}")
                    here.append((sort, var))
                    placed[sort].append((1, var))
            self._fill(nodes, here)
        for sort, groups in wanted.items():
            model.add(_total(groups) <= _total(placed[sort]))

    def _fill(self, nodes: NodeClass, groups: list[tuple[Sort, cp_model.IntVar]]) -> None:
        """For each size, groups of at least that size fit beside the tasks that stay."""
        held = [
            (share, var)
            for i, share in nodes.held
            for k, var in self.picks[i].items()
            if self.prepared.choices[i][k].stays
        ]
        for size in sorted({sort.tp for sort, _ in groups}):
            used = _total((sort.tp, var) for sort, var in groups if sort.tp >= size)
            if nodes.devices % size or any(share % size for share, _ in held):
                room = self.model.new_int_var(0, nodes.devices // size, "")
                self.model.add(_total([(size, room), *held]) <= nodes.devices)
                self.model.add(used <= nodes.count * size * room)
            else:
                self.model.add(used + nodes.count * _total(held) <= nodes.count * nodes.devices)

    def require(self, tasks: Iterable[int]) -> None:
        """The floors of these tasks are met."""
        for i in tasks:
            row = self.prepared.choices[i]
            self.model.add_bool_or(var for k, var in self.picks[i].items() if row[k].floored)

    def total(self, scores: Sequence[Sequence[int]]) -> cp_model.LinearExpr:
        """The sum of the scores of what is picked."""
        return _total((scores[i][k], var) for i, k, _, var in self._all())

    def hint(self, picks: Sequence[int]) -> None:
        """Start from these picks."""
        self.model.clear_hints()
        for i, k, _, var in self._all():
            self.model.add_hint(var, int(k == picks[i]))

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
        picks = [next(k for k, var in row.items() if solver.value(var)) for row in self.picks]
        return status, picks, solver


def _limits(prepared: Board) -> tuple[Limit, ...]:
    return (*kind_limits(prepared), *group_limits(prepared), *quota_limits(prepared))


def _total(terms: Terms) -> cp_model.LinearExpr:
    pairs = list(terms)
    return cp_model.LinearExpr.weighted_sum([var for _, var in pairs], [c for c, _ in pairs])


def solve(
    problem: PlanProblem, hint: Plan | None = None, *, deterministic_ms: int = DETERMINISTIC_MS
) -> Plan:
    """The best plan for a valid problem, found from `hint` (the dynamic programme's by default).

    Floors are met, or given up by priority where they can't be (`Plan.relaxed`). Never worse than
    the hint: if the limit ends the search first, the better of both is returned. The statistic
    `optimal` is 1 if it is proven best; `limit_reached` is 1 if a limit ended any search.
    """
    prepared, stamp = board(problem), digest(problem)
    hint = dynamic_plan(problem) if hint is None else hint
    start = _indexes(prepared, hint)
    counts: Counter[str] = Counter(limit_reached=0)
    for spread in (False, True):
        picks = _optimise(prepared, start, deterministic_ms, counts, spread=spread)
        if picks is None:
            break
        counts["optimal"] = 1 - counts["limit_reached"]
        chosen = [row[k] for row, k in zip(prepared.choices, picks, strict=True)]
        plan = build(prepared, chosen, "cpsat", tuple(sorted(counts.items())), stamp)
        if plan is not None:
            return max((plan, hint), key=lambda plan: merit(problem, plan, prepared.nodes)[:3])
    return hint


def best_choices(prepared: Board, start: Sequence[Choice], *, spread: bool) -> list[Choice]:
    """The best choices for the tasks of a board, found from some that fit.

    `spread`: such that they can be placed; else as far as counting devices tells.
    """
    indexes = [row.index(choice) for row, choice in zip(prepared.choices, start, strict=True)]
    picks = _optimise(prepared, indexes, DETERMINISTIC_MS, Counter(), spread=spread)
    return [row[k] for row, k in zip(prepared.choices, picks or indexes, strict=True)]


def _optimise(
    prepared: Board, start: list[int], deterministic_ms: int, counts: Counter[str], *, spread: bool
) -> list[int] | None:
    """First the floors, then one solve per stage of the objective, each held to those before."""
    rows = [list(range(len(row))) for row in prepared.choices] if spread else core(prepared)
    rows = [sorted({*row, k}) for row, k in zip(rows, start, strict=True)]
    model = _Model(prepared, rows, spread=spread)
    best: list[int] | None = None
    objectives = [] if _settle_floors(model, start, spread=spread) else _floor_scores(prepared)
    objectives += [packed(prepared, *tiers, rows)[0] for tiers in stages(prepared, rows)]
    for scores in objectives:
        total = model.total(scores)
        model.hint(start if best is None else best)
        model.model.maximize(total)
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
        model.model.add(total >= reached)
    return best


def _settle_floors(model: _Model, start: list[int], *, spread: bool) -> bool:
    """Require the floors that hold, if that can be told without a search."""
    prepared = model.prepared
    limits = _limits(prepared)
    wanted = wanted_floors(prepared)
    tally = Tally(limits)
    for i, k in enumerate(start):
        tally.take(i, prepared.choices[i][k])
    if not wanted or (
        not spread and tally.kept and all(prepared.choices[i][start[i]].floored for i in wanted)
    ):
        model.require(wanted)
        return True
    if spread or any(len({c.kind for c in row if c.devices}) > 1 for row in prepared.choices):
        return False
    model.require(countable_floors(prepared, Tally(limits)))
    return True


def _floor_scores(prepared: Board) -> list[list[list[int]]]:
    """Objectives that meet the floors by their order: each weighs more than all after it."""
    wanted = wanted_floors(prepared)
    found = []
    for first in range(0, len(wanted), FLOORS_AT_ONCE):
        some = wanted[first : first + FLOORS_AT_ONCE]
        weights = {i: 2 ** (len(some) - n) for n, i in enumerate(some, 1)}
        found.append(
            [
                [weights.get(i, 0) * choice.floored for choice in row]
                for i, row in enumerate(prepared.choices)
            ]
        )
    return found


def _indexes(prepared: Board, hint: Plan) -> list[int]:
    """The hint's choices on the board; for one that was left out, the best that takes no more."""
    given = {assignment.task: assignment for assignment in hint.assignments}
    found = []
    for task, row in zip(prepared.tasks, prepared.choices, strict=True):
        assignment = given.get(task.task)
        layout = None if assignment is None else assignment.layout
        if assignment is None or layout is None:
            found.append(0)
            continue
        same = (layout, assignment.slots) == (task.current, task.placement)
        fitting = [
            k
            for k, choice in enumerate(row)
            if choice.kind in ("", assignment.kind)
            and choice.devices <= layout.devices
            and choice.tp <= layout.tp
        ]
        found.append(
            max(
                fitting, key=lambda k: (row[k].layout == layout, row[k].stays == same, row[k].tiers)
            )
        )
    return found
