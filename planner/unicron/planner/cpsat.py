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
from unicron.planner.packing import NodeClass, Sort, likes, node_classes, spread_size
from unicron.planner.plan import Plan
from unicron.planner.prices import dual
from unicron.planner.pricing import merit
from unicron.planner.problem import PlanProblem, digest
from unicron.planner.scores import packed, stages

DETERMINISTIC_MS = 4_000
SEED = 7
# Floors decided at once: powers of two up to here stay exact.
FLOORS_AT_ONCE = 48
# Sorts of groups times classes of nodes; beyond it spreading them takes longer than it is worth.
SPREAD_MAX = 10_000

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

    def total(self, scores: Sequence[Sequence[int]]) -> cp_model.LinearExpr:
        """The sum of the scores of what is picked."""
        return _total((scores[i][k], var) for i, k, _, var in self._all())

    def hint(self, picks: Sequence[int]) -> None:
        """Start from these picks."""
        self.model.clear_hints()
        for i, k, _, var in self._all():
            self.model.add_hint(var, int(k == picks[i]))

    def solve(self, limit_s: float) -> tuple[cp_model.CpSolverStatus, cp_model.CpSolver]:
        """Look for the best, with so much deterministic time."""
        invalid = self.model.validate()
        if invalid:
            raise PlannerBug(f"CP-SAT refuses the model: {invalid}")
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = SEED
        solver.parameters.linearization_level = 2
        solver.parameters.cp_model_presolve = False
        solver.parameters.max_deterministic_time = limit_s
        return solver.solve(self.model), solver

    def read(self, solver: cp_model.CpSolver) -> list[int]:
        """The choice of each task in the answer found."""
        return [next(k for k, var in row.items() if solver.value(var)) for row in self.picks]


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
    `optimal` is 1 if it is proven best; `limit_reached` is 1 if the limit, which is for all
    searches together, ended any.
    """
    prepared, stamp = board(problem), digest(problem)
    hint = dynamic_plan(problem) if hint is None else hint
    start = _indexes(prepared, hint)
    search = _Search(prepared, start, deterministic_ms)
    for spread in (False, True):
        if (spread and spread_size(prepared) > SPREAD_MAX) or not search.run(spread=spread):
            break
        chosen = [row[k] for row, k in zip(prepared.choices, search.picks, strict=True)]
        plan = build(prepared, chosen, "cpsat", search.statistics(), stamp)
        if plan is not None:
            return max((plan, hint), key=lambda plan: merit(problem, plan, prepared.nodes)[:3])
    return hint


def best_choices(prepared: Board, start: Sequence[Choice], *, spread: bool) -> list[Choice]:
    """The best choices for the tasks of a board, found from some that fit.

    `spread`: such that they can be placed; else as far as counting devices tells.
    """
    indexes = [row.index(choice) for row, choice in zip(prepared.choices, start, strict=True)]
    search = _Search(prepared, indexes, DETERMINISTIC_MS)
    search.run(spread=spread)
    return [row[k] for row, k in zip(prepared.choices, search.picks, strict=True)]


class _Search:
    """`picks` are the best choices known, `rows` those that are still considered."""

    def __init__(self, prepared: Board, start: list[int], deterministic_ms: int) -> None:
        self.prepared = prepared
        self.limits = _limits(prepared)
        self.picks = start
        self.left_s = deterministic_ms / 1000
        self.counts: Counter[str] = Counter(limit_reached=0)

    def run(self, *, spread: bool) -> bool:
        """Floors first, then value, then what remains; False if nothing was found that fits."""
        self.spread = spread
        self.known = False  # whether `picks` fit
        self.rows = self._with_picks(
            [list(range(len(row))) for row in self.prepared.choices]
            if spread
            else core(self.prepared)
        )
        self._settle_floors()
        if len(self._stages()) > 1:
            self._narrow()
            if not self._improve([packed(self.prepared, 0, 1, self.rows)[0]]):
                return False
            self._narrow()
        scores = [packed(self.prepared, *tiers, self.rows)[0] for tiers in self._stages()]
        return self._improve(scores)

    def statistics(self) -> tuple[tuple[str, int], ...]:
        """Counts of all searches together, and whether the end is certain."""
        optimal = 1 - self.counts["limit_reached"]
        return tuple(sorted({**self.counts, "optimal": optimal}.items()))

    def _stages(self) -> tuple[tuple[int, int], ...]:
        return stages(self.prepared, self.rows)

    def _with_picks(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        return [sorted({*row, k}) for row, k in zip(rows, self.picks, strict=True)]

    def _settle_floors(self) -> None:
        """Keep only what meets the floors that hold, of those tasks whose floor does."""
        board = self.prepared
        wanted = wanted_floors(board)
        tally = Tally(self.limits)
        for i, k in enumerate(self.picks):
            tally.take(i, board.choices[i][k])
        met = all(board.choices[i][self.picks[i]].floored for i in wanted)
        flexible = any(len({c.kind for c in row if c.devices}) > 1 for row in board.choices)
        if not wanted or (not self.spread and tally.kept and met):
            forced = set(wanted)
            self.known = not self.spread and tally.kept
        elif not self.spread and not flexible:
            forced = set(countable_floors(board, Tally(self.limits)))
        else:
            self._improve(_floor_scores(board, wanted))
            forced = {i for i in wanted if board.choices[i][self.picks[i]].floored}
        for i in forced:
            self.rows[i] = [k for k in self.rows[i] if board.choices[i][k].floored]

    def _narrow(self) -> None:
        """Leave out what no plan can contain that is worth as much as the best known."""
        if self.known:
            choices = zip(self.prepared.choices, self.picks, strict=True)
            value = sum(row[k].tiers[0] for row, k in choices)
            bounds = dual(self.prepared, self.limits, self.rows, value)
            self.rows = self._with_picks(bounds.within(value))

    def _improve(self, objectives: Iterable[list[list[int]]]) -> bool:
        """One solve per objective, each held to the results of those before; False if none is met.

        What is found becomes `picks`.
        """
        model = _Model(self.prepared, self.rows, spread=self.spread)
        for scores in objectives:
            total = model.total(scores)
            model.hint(self.picks)
            model.model.maximize(total)
            status, solver = model.solve(max(0.0, self.left_s))
            self.left_s -= solver.response_proto.deterministic_time
            self.counts["stages"] += 1
            self.counts["booleans"] = max(self.counts["booleans"], solver.num_booleans)
            self.counts["branches"] += solver.num_branches
            self.counts["conflicts"] += solver.num_conflicts
            self.counts["limit_reached"] |= int(status != cp_model.OPTIMAL)
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                break
            self.picks, self.known = model.read(solver), True
            # In Python integers: the solver's own figure is a double.
            model.model.add(total >= sum(scores[i][k] for i, k in enumerate(self.picks)))
        return self.known


def _floor_scores(board: Board, wanted: list[int]) -> list[list[list[int]]]:
    """Objectives that meet the floors by their order: each weighs more than all after it."""
    found = []
    for first in range(0, len(wanted), FLOORS_AT_ONCE):
        some = wanted[first : first + FLOORS_AT_ONCE]
        weights = {i: 2 ** (len(some) - n) for n, i in enumerate(some, 1)}
        found.append(
            [
                [weights.get(i, 0) * choice.floored for choice in row]
                for i, row in enumerate(board.choices)
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
