"""Plans for what may happen next, ready before it happens: for the loss of each node, of each pair
of nodes where there are not too many tasks, for a node that joins, a task that ends or arrives.

A table belongs to one version of the cluster's state and answers for no other. What is looked up is
the choice of every task; `Entry.plan` gives it devices, which is quick where few tasks change.

Where the constraints decompose (each kind of device a knapsack of its own, see `dynamic.py`) an
entry is worth as much as a plan made when it has happened: the same programme, whose parts the
events share (`families.py`). Elsewhere the entry is the local answer, and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from operator import itemgetter

import msgspec

from unicron.planner.assemble import build_of
from unicron.planner.check import check
from unicron.planner.families import Family
from unicron.planner.limits import kind_limits, quota_limits
from unicron.planner.local import local_plan
from unicron.planner.objective import Board, Choice, board, count_rooms, row_for
from unicron.planner.plan import Plan
from unicron.planner.pricing import Standing, has_floor
from unicron.planner.problem import NodeSupply, PlanProblem, TaskDemand
from unicron.planner.validation import validate
from unicron.planner.whatif import expected_run_ms, joined

#: With more tasks than this, pairs of failures aren't prepared: they are the square of them.
PAIR_TASKS_MAX = 64


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What to do in one case: a choice for each task by name. `value_milli`: what it is worth, in
    thousandths of a weighted GFLOP/s. `local`: no choice was made, the local answer has to do."""

    choices: tuple[tuple[str, Choice], ...] = ()
    value_milli: int = 0
    local: bool = False

    def plan(self, problem: PlanProblem) -> Plan:
        """The plan for the problem as it is now that the case has come about, which passes `check`:
        the local answer if the choices can't be placed after all."""
        if not self.local:
            plan = build_of(problem, dict(self.choices), "dp")
            if plan is not None and not check(problem, plan):
                return plan
        return local_plan(problem)


LOCAL = Entry(local=True)


class Table:
    """Entries of one version; `complete` once all are there. Filled by `fill_table`."""

    def __init__(self, version: str | int) -> None:
        self.version = version
        self.complete = False
        self.losses: dict[str, _Loss] = {}
        self.after_loss: dict[tuple[_Loss, ...], Entry] = {}
        self.after_joining: dict[str, Entry] = {}
        self.after_end: dict[str, Entry] = {}
        self.after_arrival: dict[str, Entry] = {}

    def failed(self, version: str | int, *nodes: str) -> Entry | None:
        """For the loss of a node, or of two at once; None for what isn't prepared, or not for this
        version."""
        if version != self.version:
            return None
        gone = dict.fromkeys(nodes)  # a node named twice fails once
        found = [self.losses[node] for node in gone if node in self.losses]
        if len(found) < len(gone):
            return None
        return self.after_loss.get(tuple(sorted(found) if len(found) > 1 else found))

    def joined(self, version: str | int, kind: str) -> Entry | None:
        """For one node more of this kind, as large as the largest of them."""
        return self.after_joining.get(kind) if version == self.version else None

    def finished(self, version: str | int, task: str) -> Entry | None:
        """For the end of a task."""
        return self.after_end.get(task) if version == self.version else None

    def arrived(self, version: str | int, task: str) -> Entry | None:
        """For the arrival of a task that was declared."""
        return self.after_arrival.get(task) if version == self.version else None

    def __len__(self) -> int:
        parts = (self.after_loss, self.after_joining, self.after_end, self.after_arrival)
        return sum(len(part) for part in parts)


class _Loss(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What a node takes with it: usable devices of its kind, and who holds how many of them:
    (task, devices that live, devices that the task could have kept)."""

    kind: str
    usable: int
    held: tuple[tuple[int, int, int], ...]


def build_table(
    problem: PlanProblem, version: str | int, arrivals: Sequence[TaskDemand] = ()
) -> Table:
    """The whole table at once. Raises `BadProblem` if the problem, or one with an arrival more,
    makes no sense."""
    validate(problem)
    for task in arrivals:
        validate(msgspec.structs.replace(problem, tasks=(*problem.tasks, task)))
    table = Table(version)
    for _ in fill_table(table, problem, arrivals):
        pass
    return table


def fill_table(
    table: Table, problem: PlanProblem, arrivals: Sequence[TaskDemand] = ()
) -> Iterator[None]:
    """Fill a table for a valid problem step by step, single failures first; whoever runs it may do
    something else between any two steps, or drop it when the state has moved on."""
    makers = _Makers(problem)
    losses = _losses(problem, makers.base)
    yield from _fill_losses(table, makers, losses)
    for kind in sorted({node.kind for node in problem.nodes}):
        table.after_joining[kind] = makers.after_joining(kind)
        yield
    for i, task in enumerate(makers.base.tasks):
        table.after_end[task.task] = makers.after_end(i)
        yield
    for task in arrivals:
        table.after_arrival[task.task] = after_arrival(problem, task)
        yield
    if len(problem.tasks) <= PAIR_TASKS_MAX:
        counts = Counter(losses.values())
        for pair in combinations_with_replacement(sorted(counts), 2):
            if pair[0] != pair[1] or counts[pair[0]] > 1:
                table.after_loss[pair] = makers.after_losses(*pair)
                yield
    table.complete = True


def fill_losses(table: Table, problem: PlanProblem) -> Iterator[None]:
    """Fill in the single failures alone."""
    makers = _Makers(problem)
    yield from _fill_losses(table, makers, _losses(problem, makers.base))


def _fill_losses(table: Table, makers: _Makers, losses: dict[str, _Loss]) -> Iterator[None]:
    table.losses = losses
    for loss in sorted(set(losses.values())):
        table.after_loss[(loss,)] = makers.after_losses(loss)
        yield


def after_arrival(problem: PlanProblem, task: TaskDemand) -> Entry:
    """One task more: a programme of its own, since its row belongs to no family yet."""
    tasks = (*problem.tasks, task)
    return _Makers(msgspec.structs.replace(problem, tasks=tasks)).as_it_is()


class _Open(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of a task that keep its floor, if it has one that can be kept, and what they
    take and score."""

    choices: tuple[Choice, ...]
    row: list[tuple[int, int]]


#: A task that has ended.
_GONE = _Open(choices=(), row=[(0, 0)])


class _Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The knapsacks of all kinds for one D_running. By pool of devices: the tasks in it, what there
    is, their family, and the best choices if nothing but D_running changes."""

    board: Board
    tasks: dict[str, list[int]]
    room: dict[str, int]
    open: list[_Open]
    families: dict[str, Family]
    usual: dict[str, list[int]]


class _Makers:
    """Makes the entries of one problem."""

    def __init__(self, problem: PlanProblem) -> None:
        self.problem = problem
        self.base = board(problem)
        self._shared: dict[int, _Shared | None] = {}
        self._hit_rows: dict[object, _Open] = {}
        devices = sum(max((c.devices for c in row), default=0) for row in self.base.choices)
        # Packed sums of three tiers compare as the lists of sums do.
        self._factors = ((len(self.base.tasks) + 1) * (devices + 1), devices + 1, 1)

    # --- The cases -------------------------------------------------------------------------------

    def after_losses(self, *losses: _Loss) -> Entry:
        """So many nodes fail at once."""
        shared = self._shared_for(-len(losses))
        if shared is None:
            return LOCAL
        less: Counter[str] = Counter()
        gone: dict[int, list[tuple[str, int, int]]] = {}
        for loss in losses:
            less[_pool(shared, loss.kind)] += loss.usable
            for i, alive, kept in loss.held:
                gone.setdefault(i, []).append((loss.kind, alive, kept))
        changed = {i: self._after_loss(shared.board, i, tuple(g)) for i, g in gone.items()}
        return self._entry(shared, changed, less)

    def after_joining(self, kind: str) -> Entry:
        """One node more, as large as the largest of its kind."""
        devices = max((n.devices for n in self.problem.nodes if n.kind == kind), key=len)
        if self._opens_up(kind, len(devices)):
            return _Makers(joined(self.problem, kind)).as_it_is()
        shared = self._shared_for(1)
        if shared is None:
            return LOCAL
        fresh = NodeSupply(node="", kind=kind, devices=devices)
        usable = count_rooms([fresh], shared.board.sizes[0])[""]
        return self._entry(shared, {}, Counter({_pool(shared, kind): -usable}))

    def _opens_up(self, kind: str, devices: int) -> bool:
        """Whether a node more is more than room: there are layouts too large for the cluster as it
        is, which the board leaves out, or no node in use has its size."""
        rooms = self.base.rooms
        shapes = {(n.kind, len(n.devices)) for n in self.problem.nodes if not n.draining}
        return (kind, devices) not in shapes or any(
            option.kind in (kind, "")
            and option.layout.devices > rooms[option.layout.tp].get(option.kind, 0)
            for task in self.base.tasks
            for option in task.options
        )

    def after_end(self, i: int) -> Entry:
        """One task less."""
        shared = self._shared_for(0)
        return LOCAL if shared is None else self._entry(shared, {i: _GONE}, Counter())

    def as_it_is(self) -> Entry:
        """Nothing happens but that the best plan is carried out."""
        shared = self._shared_for(0)
        return LOCAL if shared is None else self._entry(shared, {}, Counter())

    def _after_loss(self, prepared: Board, i: int, gone: tuple[tuple[str, int, int], ...]) -> _Open:
        """What the task may do when these devices of it are gone; many cases share it."""
        key = (prepared.problem.expected_run_ms, i, gone)
        if key not in self._hit_rows:
            choices = row_for(prepared, i, *_hit(prepared, i, gone))
            self._hit_rows[key] = self._open(prepared, i, choices)
        return self._hit_rows[key]

    def _entry(
        self, shared: _Shared, changed: Mapping[int, _Open], less: Mapping[str, int]
    ) -> Entry:
        """The best choices where some tasks have other ones than usual, and there is less room."""
        chosen: list[tuple[str, Choice]] = []
        value = 0
        for pool, tasks in shared.tasks.items():
            picks = shared.usual[pool]
            instead = {k: changed[i].row for k, i in enumerate(tasks) if i in changed}
            if instead or less.get(pool):
                found = shared.families[pool].solve(shared.room[pool] - less.get(pool, 0), instead)
                if found is None:
                    return LOCAL
                picks = found
            for i, k in zip(tasks, picks, strict=True):
                choices = changed.get(i, shared.open[i]).choices
                if choices:
                    chosen.append((shared.board.tasks[i].task, choices[k]))
                    value += choices[k].tiers[0]
        return Entry(choices=tuple(sorted(chosen, key=itemgetter(0))), value_milli=value)

    # --- What they share -------------------------------------------------------------------------

    def _shared_for(self, more_nodes: int) -> _Shared | None:
        """For the D_running of so many nodes more; None where the constraints don't decompose."""
        run_ms = self.problem.expected_run_ms
        if self.problem.node_mtbf_ms and more_nodes:
            nodes = len(self.problem.nodes) + more_nodes
            run_ms = expected_run_ms(nodes, self.problem.node_mtbf_ms)
        if run_ms not in self._shared:
            prepared = self.base
            if run_ms != self.problem.expected_run_ms:
                problem = msgspec.structs.replace(self.problem, expected_run_ms=run_ms)
                prepared = board(problem, self.base.nodes)
            self._shared[run_ms] = self._share(prepared)
        return self._shared[run_ms]

    def _share(self, prepared: Board) -> _Shared | None:
        if not prepared.uniform or quota_limits(prepared):
            return None
        room = {limit.kind: limit.most for limit in kind_limits(prepared)}
        tasks: dict[str, list[int]] = {pool: [] for pool in room}
        for i, row in enumerate(prepared.choices):
            kinds = {choice.kind for choice in row if choice.layout is not None}
            if len(kinds) > 1 or not (kinds <= set(room)) or not room:
                return None
            tasks[next(iter(kinds or room))].append(i)
        rows = [self._open(prepared, i, row) for i, row in enumerate(prepared.choices)]
        families, usual = {}, {}
        for pool, mine in tasks.items():
            shared_rows = [rows[i].row for i in mine]
            families[pool] = Family(shared_rows, room[pool], self._like(pool))
            best = families[pool].solve(room[pool], {})
            if best is None:
                return None  # not all floors can be met: who gives up his is decided elsewhere
            usual[pool] = best
        return _Shared(
            board=prepared,
            tasks=tasks,
            room=room,
            open=rows,
            families=families,
            usual=usual,
        )

    def _like(self, pool: str) -> Family | None:
        """A family of the same pool for another D_running."""
        made = (shared.families[pool] for shared in self._shared.values() if shared is not None)
        return next(made, None)

    def _open(self, prepared: Board, i: int, row: tuple[Choice, ...]) -> _Open:
        if has_floor(prepared.tasks[i]):
            row = tuple(choice for choice in row if choice.floored) or row
        a, b, c = self._factors
        return _Open(
            choices=row,
            row=[
                (choice.devices, a * value + b * touched + c * taken)
                for choice in row
                for value, touched, taken in [choice.tiers[:3]]
            ],
        )


def _pool(shared: _Shared, kind: str) -> str:
    """Which pool the devices of a kind are in; "" is one for all kinds."""
    return kind if kind in shared.room else ""


def _hit(
    prepared: Board, i: int, gone: Sequence[tuple[str, int, int]]
) -> tuple[TaskDemand, Standing]:
    """The task and what it holds after it has lost devices: (kind, living, of them keepable)."""
    now = prepared.standings[i]
    kept = dict(now.kept)
    for kind, _, keepable in gone:
        kept[kind] = kept.get(kind, 0) - keepable
    alive = now.alive - sum(living for _, living, _ in gone)
    after = msgspec.structs.replace(now, alive=alive, kept=kept, intact=False, settled=False)
    return msgspec.structs.replace(prepared.tasks[i], hit=True), after


def _losses(problem: PlanProblem, prepared: Board) -> dict[str, _Loss]:
    """For each node what its loss takes away."""
    held: dict[str, dict[int, int]] = {}
    for i, task in enumerate(prepared.tasks):
        for slot in task.placement:
            if slot.device in prepared.nodes.devices.get(slot.node, ()):
                on_node = held.setdefault(slot.node, {})
                on_node[i] = on_node.get(i, 0) + 1
    found = {}
    shared: dict[object, _Loss] = {}
    for node in problem.nodes:
        usable = count_rooms([node], prepared.sizes[0])[""]
        mine = tuple(
            (i, many, 0 if node.draining or node.node in prepared.tasks[i].avoid else many)
            for i, many in sorted(held.get(node.node, {}).items())
        )
        key = (node.kind, usable, mine)
        if key not in shared:
            shared[key] = _Loss(kind=node.kind, usable=usable, held=mine)
        found[node.node] = shared[key]
    return found
