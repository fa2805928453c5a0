"""What would be done next: a plan's answer to each single event that may follow it, worst first.

From the next-event table (`tables.py`) of the problem with the plan in force, so that a large
cluster's is there in a moment too; nodes whose loss comes to the same share a row. What the table
leaves to the local answer is planned anew here, since nobody waits for it, within bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from unicron.planner import whatif
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.plan import Plan
from unicron.planner.problem import PlanProblem
from unicron.planner.tables import Entry, Table, build_table

Event: TypeAlias = Literal["loss", "join", "finish"]

#: Cases that are planned anew, times devices of the cluster.
ANEW_MAX = 1_000_000


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """One case. `names`: the nodes any one of which may fail, the kind of node that may join, or
    the task that may end. `waf_milli`: the weighted throughput then, in thousandths of a weighted
    GFLOP/s, `change_milli` how much more that is than with the plan; both None if it wasn't worked
    out. `sizes`: of each task that gets another size its name, devices before and after; it is
    parked with 0. `optimal`: no answer to the case is better."""

    event: Event
    names: tuple[str, ...]
    waf_milli: int | None
    change_milli: int | None
    sizes: tuple[tuple[str, int, int], ...]
    optimal: bool


def outlook(problem: PlanProblem, plan: Plan) -> tuple[Outlook, ...]:
    """All single losses (the worst first), joins and ends after a plan that passes `check`."""
    then = whatif.carried_out(problem, plan)
    answers = _Answers(then, plan)
    alike: dict[object, list[str]] = {}
    for node in then.nodes:
        alike.setdefault(answers.table.losses[node.node], []).append(node.node)
    losses = [
        answers.case("loss", tuple(sorted(nodes)), answers.table.failed(0, nodes[0]))
        for nodes in alike.values()
    ]
    losses.sort(key=lambda case: (case.change_milli is None, case.change_milli or 0, case.names))
    return (*losses, *answers.others())


class _Answers:
    """Answers to what may follow one plan."""

    def __init__(self, then: PlanProblem, plan: Plan) -> None:
        self.table: Table = build_table(then, 0)
        self._then = then
        self._plan = plan
        self._before = {a.task: len(a.slots) for a in plan.assignments}
        devices = sum(len(node.devices) for node in then.nodes)
        self._anew = ANEW_MAX // max(1, devices)

    def others(self) -> Iterator[Outlook]:
        """A node more of each kind, a task less."""
        for kind, entry in sorted(self.table.after_joining.items()):
            yield self.case("join", (kind,), entry)
        for task, entry in sorted(self.table.after_end.items()):
            yield self.case("finish", (task,), entry)

    def case(self, event: Event, names: tuple[str, ...], entry: Entry | None) -> Outlook:
        """What would be done, of which the first of the names is an example."""
        waf: int | None = None
        after: Mapping[str, int] = {}
        optimal = False
        if entry is not None and not entry.local:
            waf = sum(choice.waf for _, choice in entry.choices)
            after = {task: choice.devices for task, choice in entry.choices}
            optimal = True
        elif self._anew > 0:
            self._anew -= 1
            plan = dynamic_plan(self._problem(event, names[0]))
            waf = plan.waf_milli
            after = {a.task: len(a.slots) for a in plan.assignments}
            optimal = bool(dict(plan.statistics).get("optimal"))
        return Outlook(
            event=event,
            names=names,
            waf_milli=waf,
            change_milli=None if waf is None else waf - self._plan.waf_milli,
            sizes=tuple(
                (task, size, after[task])
                for task, size in sorted(self._before.items())
                if task in after and after[task] != size
            ),
            optimal=optimal,
        )

    def _problem(self, event: Event, name: str) -> PlanProblem:
        if event == "loss":
            return whatif.failed(self._then, name)
        if event == "join":
            return whatif.joined(self._then, name)
        return whatif.finished(self._then, name)
