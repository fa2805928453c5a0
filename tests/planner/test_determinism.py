"""The same problem gets the same plan: in any process, under any hash seed, in any order."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys

import msgspec

from tests.planner.cases import change, layout, slots
from unicron.planner import (
    LayoutOption,
    NodeSupply,
    PlanProblem,
    TaskDemand,
    TenantQuota,
    local_plan,
    validate,
)
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan

ANSWERS = {"local": local_plan, "dp": dynamic_plan, "cpsat": solve}


def made_up(seed: int) -> PlanProblem:
    """Twelve equal tasks of four tenants on two kinds of nodes, so that there are ties everywhere;
    some avoid a node, one drains, one has lost a device, and not all floors can be met."""
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(10)]
    chance.shuffle(names)
    nodes = [
        NodeSupply(
            node=name,
            kind="new" if i % 2 else "old",
            devices=(0, 1, 3) if i == 4 else (0, 1, 2, 3),
            rack=f"r{i // 4}",
            draining=i == 7,
        )
        for i, name in enumerate(names)
    ]
    options = tuple(
        LayoutOption(layout=layout(dp, tp), throughput_gflops=100 * dp * tp, kind=kind)
        for tp, most in ((1, 4), (2, 3))
        for dp in range(1, most + 1)
        for kind in ("new", "old")
    )
    tasks = []
    for i in range(12):
        task = TaskDemand(
            task=f"t{i}",
            weight_milli=1000,
            min_devices=0,
            max_devices=8,
            options=options,
            transition_ms=100,
            state_bytes=1000,
            tenant=f"tenant{i % 4}",
            min_gflops=400 if i % 4 else 0,
            avoid=tuple(chance.sample(names, 2)) if i % 4 == 0 else (),
        )
        if i < 8:
            held = slots(f"{names[i]}/0-3")
            kind = nodes[i].kind
            task = change(task, current=layout(4), current_kind=kind, placement=held, hit=i == 4)
        tasks.append(task)
    chance.shuffle(tasks)
    quotas = (
        TenantQuota(tenant="tenant1", max_devices=7),
        TenantQuota(tenant="tenant2", kind="new", max_devices=4),
    )
    return PlanProblem(
        computed_at=seed,
        nodes=tuple(nodes),
        tasks=tuple(tasks),
        expected_run_ms=1_000_000,
        quotas=quotas,
        link_bytes_per_s=1000,
    )


def allocation(plan) -> str:
    """What of a plan doesn't name the problem."""
    return hashlib.sha256(msgspec.json.encode((plan.assignments, plan.relaxed))).hexdigest()


def digests() -> list[str]:
    """One for each method and problem."""
    return [
        f"{name} {seed} {allocation(answer(made_up(seed)))}"
        for name, answer in ANSWERS.items()
        for seed in range(4)
    ]


def test_every_process_finds_the_same_under_any_hash_seed():
    expected = digests()
    assert len(set(expected)) > 6
    code = "from tests.planner.test_determinism import digests; print('\\n'.join(digests()))"
    for seed in ("0", "1", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.stdout.split("\n")[:-1] == expected


def shuffled(problem: PlanProblem, seed: int) -> PlanProblem:
    """The same problem with every list whose order means nothing in another order."""
    chance = random.Random(seed)

    def mixed(items):
        return tuple(chance.sample(items, len(items)))

    return change(
        problem,
        nodes=tuple(change(n, devices=mixed(n.devices)) for n in mixed(problem.nodes)),
        tasks=tuple(
            change(t, options=mixed(t.options), avoid=mixed(t.avoid)) for t in mixed(problem.tasks)
        ),
        quotas=mixed(problem.quotas),
    )


def test_no_order_of_the_lists_changes_anything():
    for name, answer in ANSWERS.items():
        problem = made_up(1)
        validate(problem)
        plan = answer(problem)
        for seed in range(5):
            other = shuffled(problem, seed)
            assert other != problem
            again = answer(other)
            assert allocation(again) == allocation(plan), name
            assert again.value_gflops_milli == plan.value_gflops_milli


def test_the_case_is_as_involved_as_it_says():
    problem = made_up(1)
    best, table = solve(problem), dynamic_plan(problem)
    assert best.value_gflops_milli >= table.value_gflops_milli
    assert best.source == "cpsat" and dict(best.statistics)["optimal"] == 1
    assert best.relaxed and {a.kind for a in best.assignments if a.slots} == {"new", "old"}
    drained = {n.node for n in problem.nodes if n.draining}
    assert any(s.node in drained for t in problem.tasks for s in t.placement)
    assert not any(s.node in drained for a in best.assignments for s in a.slots)
    (hit,) = (t for t in problem.tasks if t.hit)
    assert any(s.device == 2 for s in hit.placement)
