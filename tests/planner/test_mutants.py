"""No spoiled plan passes the check, and every plan of every method does."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planner.cases import QUICK, change, of, problems, sided_problems
from tests.planner.mutants import OPERATORS, put
from unicron.planner import Plan, PlanProblem, check, local_plan
from unicron.planner.assemble import finish
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan

METHODS = {"local": local_plan, "dp": dynamic_plan, "cpsat": solve}


def kinds(problem: PlanProblem, plan: Plan) -> set[str]:
    return {violation.kind for violation in check(problem, plan)}


@pytest.mark.parametrize("method", METHODS)
def test_every_mutant_is_found_out(method):
    met: Counter[str] = Counter()

    @settings(QUICK, max_examples=160)
    @given(
        st.one_of(sided_problems((1, 2, 4)), sided_problems((1, 2)), problems((1, 2, 4))),
        st.integers(0, 10**6),
    )
    def run(problem, seed):
        plan = METHODS[method](problem)
        assert check(problem, plan) == ()
        rng = random.Random(seed)
        for name, (operator, kind) in OPERATORS.items():
            spoiled = operator(problem, plan, rng)
            if spoiled is None:
                continue
            assert spoiled != (problem, plan), name
            assert kind in kinds(*spoiled), f"{name}: no {kind} in {check(*spoiled)}"
            met[name] += 1

    run()
    # The local answer empties no node, starts nobody, and keeps tensor and pipeline sizes.
    never = {"drain_a_node_in_use", "fetch_for_a_task_that_starts", "load_from_storage_what_lives"}
    never = never if method == "local" else set()
    assert {name for name in OPERATORS if not met[name]} <= never


def is_right(problem: PlanProblem, plan: Plan) -> bool:
    """Whether it is what is made of its assignments, which are right; said in another way."""
    nodes = {node.node: node for node in problem.nodes}
    used: list[tuple[str, int]] = []
    for task in problem.tasks:
        given = of(plan, task.task)
        tp = given.layout.tp if given.layout else 1
        for i, slot in enumerate(given.slots):
            node = nodes.get(slot.node)
            if node is None or slot.device not in node.devices or slot.node in task.avoid:
                return False
            if node.draining and not (plan.source == "local" and slot in task.placement):
                return False
            if given.kind not in ("", node.kind) or slot.node != given.slots[i // tp * tp].node:
                return False
            used.append((slot.node, slot.device))
    made = finish(problem, plan.source, plan.assignments, plan.statistics)
    got = Counter((transfer.task, transfer.to) for transfer in plan.transfers)
    due = Counter((transfer.task, transfer.to) for transfer in made.transfers)
    same = change(made, transfers=()) == change(plan, transfers=())
    return len(set(used)) == len(used) and same and got == due


def test_slots_that_change_places_are_judged_as_they_should_be():
    """Some exchanges break nothing; what the check says is compared with the rules said anew."""
    met: Counter[str] = Counter()

    @settings(QUICK, max_examples=250)
    @given(st.one_of(sided_problems((1, 2)), problems((1, 2))), st.integers(0, 10**6))
    def run(problem, seed):
        rng = random.Random(seed)
        for plan in (dynamic_plan(problem), local_plan(problem)):
            running = [a for a in plan.assignments if a.slots]
            if not running:
                continue
            one, two = rng.choice(running), rng.choice(running)
            i, j = rng.randrange(len(one.slots)), rng.randrange(len(two.slots))
            free = [
                (n.node, d)
                for n in problem.nodes
                for d in n.devices
                if all((s.node, s.device) != (n.node, d) for a in running for s in a.slots)
            ]
            held = list(one.slots)
            if one.task == two.task:
                held[i], held[j] = held[j], held[i]
                other = put(plan, one, slots=tuple(held))
            elif free and rng.random() < 0.5:
                where, device = rng.choice(free)
                held[i] = change(held[i], node=where, device=device)
                other = put(plan, one, slots=tuple(held))
            else:
                theirs = list(two.slots)
                held[i], theirs[j] = theirs[j], held[i]
                other = put(put(plan, one, slots=tuple(held)), two, slots=tuple(theirs))
            right = is_right(problem, other)
            assert (check(problem, other) == ()) == right, check(problem, other)
            met["right" if right else "wrong"] += other != plan

    run()
    assert met["right"] >= 10 and met["wrong"] >= 50
