"""Problems from plain data, the planner by itself."""

import copy
import json
import sys
from pathlib import Path

import pytest

from unicron.planner import (
    BadProblem,
    Layout,
    Planner,
    SolverMissing,
    digest,
    problem_from,
    read_problem,
)

DATA = {
    "computed_at": 12,
    "expected_run_ms": 3_600_000,
    "nodes": [
        {"node": "n1", "kind": "h100", "devices": 4},
        {"node": "n2", "kind": "h100", "devices": [0, 2]},
    ],
    "tasks": [
        {
            "task": "llama",
            "weight_milli": 1000,
            "min_devices": 1,
            "max_devices": 4,
            "options": [
                {"layout": {"tp": 1, "pp": 1, "dp": n}, "throughput_gflops": 100 * n}
                for n in (1, 2, 4)
            ],
            "current": {"tp": 1, "pp": 1, "dp": 1},
            "placement": [{"node": "n2", "device": 2}],
        },
        {
            "task": "moe",
            "weight_milli": 500,
            "min_devices": 0,
            "max_devices": 2,
            "options": [
                {"layout": {"tp": 2, "pp": 1, "dp": 1}, "throughput_gflops": 150},
            ],
        },
    ],
}

TOML = """
expected_run_ms = 3_600_000
[[nodes]]
node = "n1"
kind = "h100"
devices = 4
[[tasks]]
task = "llama"
weight_milli = 1000
min_devices = 1
max_devices = 4
options = [{layout = {tp = 1, pp = 1, dp = 2}, throughput_gflops = 200}]
"""


def test_dicts_become_a_problem():
    problem = problem_from(DATA)
    assert problem.nodes[0].devices == (0, 1, 2, 3)
    assert problem.nodes[1].devices == (0, 2)
    assert problem.tasks[0].current == Layout(tp=1, pp=1, dp=1)
    assert problem.computed_at == 12


def test_what_can_be_left_out_is_a_day_without_a_log():
    data = {k: v for k, v in DATA.items() if k not in {"computed_at", "expected_run_ms"}}
    problem = problem_from(data)
    assert (problem.computed_at, problem.expected_run_ms) == (0, 86_400_000)


def test_files_hold_the_same(tmp_path):
    as_json, as_toml = tmp_path / "p.json", tmp_path / "p.toml"
    as_json.write_text(json.dumps(DATA))
    as_toml.write_text(TOML)
    assert digest(read_problem(as_json)) == digest(problem_from(DATA))
    assert read_problem(str(as_toml)).tasks[0].options[0].layout.dp == 2


def test_the_problem_in_the_docs_is_one(tmp_path):
    docs = Path(__file__).resolve().parents[2] / "docs" / "embedding.md"
    _, _, rest = docs.read_text(encoding="utf-8").partition("```toml\n")
    (tmp_path / "cluster.toml").write_text(rest.partition("```")[0])
    planner, problem = Planner(), read_problem(tmp_path / "cluster.toml")
    plan = planner.solve(problem)
    assert planner.check(problem, plan) == ()
    assert plan.assignments[0].layout == Layout(tp=4, pp=1, dp=3)


def _with(path, value):
    """DATA with the value at that path, a list of keys and indexes."""
    data = copy.deepcopy(DATA)
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return data


@pytest.mark.parametrize(
    "path,value,complaint",
    [
        (["taks"], 1, "taks: is no field here; did you mean tasks?"),
        (["tasks", 0, "weigth"], 1, "tasks[0].weigth: is no field here; did you mean weight"),
        (
            ["tasks", 0, "options", 1, "layout", "ep"],
            2,
            "tasks[0].options[1].layout.ep: is no field here; known: tp, pp, dp",
        ),
        (["tasks", 0, "placement", 0, "rank"], 2, "tasks[0].placement[0].rank: is no field here"),
        (["tasks", 0, "weight_milli"], "1", "tasks[0].weight_milli: Expected `int`, got `str`"),
        (["tasks", 0, "weight_milli"], 1.5, "tasks[0].weight_milli: Expected `int`, got `float`"),
        (["tasks", 1, "options"], 7, "tasks[1].options: Expected `array`, got `int`"),
        (["tasks", 1, "task"], None, "tasks[1]: Object missing required field `task`"),
        (["nodes"], None, "problem: Object missing required field `nodes`"),
        (["nodes", 0, "devices"], "all", "nodes[0].devices: Expected `array`, got `str`"),
        (["tasks", 0, "min_devices"], 9, "tasks[0].min_devices: is 9, above max_devices 4"),
        (["expected_run_ms"], 0, "expected_run_ms: is 0; give an integer from 1"),
    ],
)
def test_every_mistake_is_named_with_its_place(path, value, complaint):
    with pytest.raises(BadProblem) as caught:
        problem_from(_with(path, value))
    assert str(caught.value).startswith(complaint)


def test_other_things_are_no_problem(tmp_path):
    with pytest.raises(BadProblem, match="problem: is a list; give a mapping"):
        problem_from([])
    with pytest.raises(BadProblem, match="can't be read: No such file"):
        read_problem(tmp_path / "none.json")
    for name, kind in (("half.json", "JSON"), ("half.toml", "TOML")):
        (tmp_path / name).write_text('{"nodes": [')
        with pytest.raises(BadProblem, match=f"is not {kind}: .*anything else is read as JSON"):
            read_problem(tmp_path / name)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadProblem, match="is not JSON"):
        read_problem(tmp_path / "bytes.json")


@pytest.mark.parametrize("method", ["cpsat", "dp", "local"])
def test_a_planner_by_itself(method):
    planner, problem = Planner(method), problem_from(DATA)
    plan = planner.solve(problem)
    assert planner.check(problem, plan) == ()
    assert plan.computed_at == 12
    assert planner.explain(problem, plan)[0].startswith(f"plan by {plan.source} at sequence 12:")
    used = sum(len(a.slots) for a in plan.assignments)
    assert used == (1 if method == "local" else 6)


def test_a_plan_of_somebody_elses_is_checked():
    planner, problem = Planner("local"), problem_from(DATA)
    other = planner.solve(problem_from(_with(["nodes", 0, "devices"], 2)))
    assert {v.kind for v in planner.check(problem, other)} == {"problem-digest"}


def test_a_bad_problem_and_a_bad_method_are_refused():
    problem = problem_from(DATA)
    nonsense = type(problem)(**{f: getattr(problem, f) for f in problem.__struct_fields__})
    with pytest.raises(BadProblem, match="nodes"):
        Planner("dp").solve(_twice(nonsense))
    with pytest.raises(ValueError, match="is no method"):
        Planner("guess")


def _twice(problem):
    fields = {f: getattr(problem, f) for f in problem.__struct_fields__}
    return type(problem)(**fields | {"nodes": problem.nodes * 2})


def test_without_ortools_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools", None)
    monkeypatch.delitem(sys.modules, "unicron.planner.cpsat", raising=False)
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(SolverMissing, match=r"pip install .*\[controlplane\].*or use 'dp'"):
        Planner()
