"""Problems that are no problems: each is one clear complaint with its place, at once."""

import copy
import os

import msgspec
import pytest

from unicron.planner import BadProblem, Planner, problem_from, read_problem
from unicron.planner.cost import reading

NODE = {"node": "a[1-3]", "kind": "h100", "devices": 2}
TASK = {
    "task": "t",
    "max_devices": 2,
    "options": [{"layout": {"tp": 1, "pp": 1, "dp": 2}, "throughput_gflops": 5}],
}
MODEL = {"layers": 32, "hidden": 4096, "heads": 32, "sequence": 4096, "vocabulary": 32000}
TRAINED = {"task": "t", "model": MODEL, "training": {"global_batch": 64}}


def refused(node=None, task=None):
    data = {"nodes": [{**NODE, **(node or {})}], "tasks": [{**TASK, **(task or {})}]}
    with pytest.raises(BadProblem) as caught:
        problem_from(data)
    return caught.value


@pytest.mark.parametrize(
    "node,place,reason",
    [
        ({"devices": 10**9}, "nodes[0].devices", "is 1000000000"),
        ({"devices": -1}, "nodes[0].devices", "is -1"),
        ({"devices": 1 << 40_000}, "nodes[0].devices", "beyond 64 bits"),
        ({"devices": 1_000_000}, "nodes[0]", "makes it more than"),
        ({"node": "a[0-999999999]"}, "nodes[0].node", "more than 200000 names"),
        ({"node": f"a[{','.join(['0-199999'] * 50)}]"}, "nodes[0].node", "more than 200000 names"),
        ({"node": f"a[{'9' * 5000}]"}, "nodes[0].node", "has the range"),
        ({"node": f"{'a' * 500}[1-2]"}, "nodes[0].node", "too long"),
        ({"node": "\ud800"}, "nodes[0].node", "surrogate"),
        ({"\udc00": 1}, "nodes[0].\\udc00", "surrogate"),
    ],
)
def test_nodes_that_would_take_all_memory_or_cannot_be_said(node, place, reason):
    error = refused(node=node)
    assert error.field == place and reason in error.reason and error.fix
    assert len(str(error)) < 2000


@pytest.mark.parametrize(
    "task,place,reason",
    [
        ({"placement": ["a1/0-999999999"]}, "tasks[0].placement[0]", "makes it more than"),
        ({"placement": ["a1/3-1"]}, "tasks[0].placement[0]", "has the range '3-1'"),
        ({"weight": 1 << 40_000}, "tasks[0].weight", "beyond 64 bits"),
        ({"k" * 100_000: 1}, None, "is no field here"),
    ],
)
def test_tasks_that_would_take_all_memory_or_cannot_be_said(task, place, reason):
    error = refused(task=task)
    assert place in (None, error.field) and reason in error.reason
    assert len(str(error)) < 2000


def test_a_complaint_counts_the_nodes_that_were_written():
    data = {"nodes": [NODE, {"node": "b", "kind": "h100", "devices": [1, 1]}], "tasks": [TASK]}
    with pytest.raises(BadProblem) as caught:
        problem_from(data)
    assert caught.value.field == "nodes[1].devices"


def test_what_contains_itself_is_nested_too_deeply():
    data = {"nodes": [NODE], "tasks": [TASK]}
    data["tasks"].append(data)
    with pytest.raises(BadProblem, match="nested too deeply"):
        problem_from(data)


@pytest.mark.parametrize(
    "name,text,reason",
    [
        ("deep.json", "[" * 100_000, "nested too deeply"),
        ("deep.toml", "a=" + "[" * 20_000, "nested too deeply"),
        ("twice.json", '{"nodes": [], "nodes": []}', "'nodes' is there twice"),
    ],
)
def test_files_that_are_none(tmp_path, name, text, reason):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadProblem, match=reason) as caught:
        read_problem(tmp_path / name)
    assert caught.value.field.endswith(name)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no such device here")
def test_what_never_ends_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr(reading, "BYTES_MAX", 1024**2)
    with pytest.raises(BadProblem, match="larger than 1 MiB"):
        read_problem("/dev/zero")


def test_a_byte_order_mark_is_no_fault(tmp_path):
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf{"nodes": [], "tasks": []}')
    assert read_problem(tmp_path / "x.json").nodes == ()


@pytest.mark.parametrize(
    "changes,place",
    [
        ({"model": {**MODEL, "layers": 10**18}}, "model.layers"),
        ({"model": {**MODEL, "heads": 3}}, "model.heads"),
        ({"training": {"global_batch": 0}}, "training.global_batch"),
        ({"layouts": {"tp": [0]}}, "layouts.tp[0]"),
        ({"max_devices": 0}, "max_devices"),
        ({"min_devices": 10**18}, "min_devices"),
        ({"current": {"tp": 3, "pp": 1, "dp": 1}}, "current.tp"),
        ({"current": {"tp": 0, "pp": 1, "dp": 1}}, "current.tp"),
    ],
)
def test_a_model_is_refused_where_it_was_written(changes, place):
    data = {"nodes": [NODE], "tasks": [{**copy.deepcopy(TRAINED), **changes}]}
    with pytest.raises(BadProblem) as caught:
        problem_from(data)
    assert caught.value.field == f"tasks[0].{place}"


def test_a_model_on_nodes_without_devices_parks():
    problem = problem_from({"nodes": [{**NODE, "devices": 0}], "tasks": [TRAINED]})
    assert problem.tasks[0].options or problem.tasks[0].max_devices == 1


@pytest.mark.parametrize(
    "changes,place",
    [
        ({"computed_at": 1 << 40_000}, "computed_at"),
        ({"expected_run_ms": float("nan")}, "expected_run_ms"),
        ({"nodes": (1,)}, "nodes[0]"),
        ({"tasks": (None,)}, "tasks[0]"),
        ({"quotas": None}, "quotas"),
    ],
)
def test_structs_of_the_wrong_types_are_refused(changes, place):
    good = problem_from({"nodes": [NODE], "tasks": [TASK]})
    with pytest.raises(BadProblem) as caught:
        Planner("dp").solve(msgspec.structs.replace(good, **changes))
    assert caught.value.field == place
    with pytest.raises(BadProblem, match="problem: is a dict"):
        Planner("dp").solve({"nodes": []})
