"""The solver as a process of its own, and the same answer from every process."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import msgspec
import pytest

from tests.planner.cases import linear, node, problem, running, slots, task
from unicron.planner import Plan, check, encode, encode_plan
from unicron.planner.best import best_plan
from unicron.planner.child import main
from unicron.planner.cpsat import solve
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.explain import explain
from unicron.planner.problem import TenantQuota

# Ties everywhere: equal tasks, equal layouts, several group sizes, a minimum that can't be met.
BASE = problem(
    [node(f"n{i}", 7 if i == 2 else 8) for i in range(4)],
    [
        running("a", linear(8) + linear(4, tp=2), slots("n0/0-3"), hit=True),
        running("b", linear(8) + linear(4, tp=2), slots("n9/0-3"), hit=True),
        *(task(f"t{i}", linear(4, tp=2) + linear(2, tp=4)) for i in range(4)),
        task("z", linear(8, tp=4)[7:], priority=-1),
    ],
)

# A quota that matters: counting devices by kind doesn't decide.
LIMITED = msgspec.structs.replace(
    problem(
        [node(f"n{i}", 4) for i in range(3)],
        [*(task(name, linear(8), tenant="lab") for name in "ab"), task("c", linear(3))],
    ),
    quotas=(TenantQuota(tenant="lab", max_devices=5),),
)


def child(request: bytes, seed: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "unicron.planner.child"],
        input=request,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )


def test_the_programme_answers_where_nothing_is_better_and_cp_sat_elsewhere():
    assert best_plan(BASE) == dynamic_plan(BASE)
    assert best_plan(BASE).value_gflops_milli == solve(BASE).value_gflops_milli
    assert not dict(dynamic_plan(LIMITED).statistics)["optimal"]
    assert best_plan(LIMITED) == solve(LIMITED)


@pytest.mark.parametrize("given, source", [(BASE, "dp"), (LIMITED, "cpsat")])
def test_the_same_problem_gets_the_same_plan_in_every_process(given, source):
    expected = best_plan(given)
    assert check(given, expected) == () and expected.source == source
    assert expected.relaxed == (("z",) if given is BASE else ())
    for seed in ("0", "1", "4711"):
        done = child(encode(given), seed)
        assert done.returncode == 0, done.stderr
        assert done.stdout == encode_plan(expected) + b"\n"
        assert done.stderr == b""
    assert msgspec.json.decode(encode_plan(expected), type=Plan) == expected


@pytest.mark.parametrize(
    "request_, field",
    [
        (b"", "problem"),
        (b"{}", "problem"),
        (encode(BASE).replace(b'"computed_at":42', b'"computed_at":42.5'), "problem"),
        (encode(BASE).replace(b'"computed_at":42', b'"computed_at":-1'), "computed_at"),
        (encode(BASE).replace(b'"weight_milli":1000', b'"weight_milli":0'), "tasks[0]"),
    ],
)
def test_a_bad_problem_is_one_line_of_json_and_code_1(request_, field):
    sink = io.BytesIO()
    assert main(io.BytesIO(request_), sink) == 1
    (line,) = sink.getvalue().splitlines()
    error = msgspec.json.decode(line)
    assert error["error"] == "bad problem" and error["field"].startswith(field)
    assert error["reason"] and error["fix"]


def test_a_bad_problem_ends_the_process_with_code_1():
    done = child(b"not json", "0")
    assert done.returncode == 1 and b'"field":"problem"' in done.stdout and done.stderr == b""


def test_a_bug_is_not_a_bad_problem(monkeypatch, capsys):
    def broken(_):
        raise RuntimeError("broken")

    monkeypatch.setattr("unicron.planner.child.best_plan", broken)
    sink = io.BytesIO()
    assert main(io.BytesIO(encode(BASE)), sink) == 2
    assert sink.getvalue() == b"" and "RuntimeError: broken" in capsys.readouterr().err


def test_an_explanation_follows_the_plan_if_it_is_asked_for():
    sink = io.BytesIO()
    assert main(io.BytesIO(encode(BASE)), sink, explained=True) == 0
    plan, explanation = sink.getvalue().splitlines()
    assert plan == encode_plan(best_plan(BASE))
    assert tuple(msgspec.json.decode(explanation)) == explain(BASE, best_plan(BASE))
