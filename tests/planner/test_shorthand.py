"""What may be written shorter in a problem's file."""

import copy

import pytest

from tests.planner.cases import names as slot_names
from unicron.planner import BadProblem, problem_from
from unicron.planner.shorthand import names

OPTIONS = [{"layout": {"tp": 1, "pp": 1, "dp": n}, "throughput_gflops": 100 * n} for n in (1, 2, 4)]
DATA = {
    "nodes": [{"node": "a[01-03]", "kind": "h100", "devices": 2, "rack": "r1"}],
    "tasks": [
        {
            "task": "llama",
            "weight": 1.5,
            "min_devices": 1,
            "max_devices": 4,
            "options": OPTIONS,
            "current": {"tp": 1, "pp": 1, "dp": 4},
            "placement": ["a01/0-1", "a[02-03]/1"],
        }
    ],
}


def changed(**fields):
    data = copy.deepcopy(DATA)
    data["tasks"][0].update(fields)
    return data


def test_a_range_of_nodes_is_one_entry_each():
    problem = problem_from(DATA)
    assert [(n.node, n.devices, n.rack) for n in problem.nodes] == [
        ("a01", (0, 1), "r1"),
        ("a02", (0, 1), "r1"),
        ("a03", (0, 1), "r1"),
    ]


def test_slots_are_written_as_ranges_of_devices_and_nodes():
    task = problem_from(DATA).tasks[0]
    assert slot_names(task.placement) == ["a01/0", "a01/1", "a02/1", "a03/1"]


@pytest.mark.parametrize(
    "text,expected",
    [
        ("n7", ["n7"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-11,3].west", ["n08.west", "n09.west", "n10.west", "n11.west", "n3.west"]),
        ("n[5]", ["n5"]),
    ],
)
def test_names_in_brackets(text, expected):
    assert list(names("nodes[0].node", text)) == expected


@pytest.mark.parametrize("text", ["n[1-3][1-2]", "n[", "n]1[", "n[]", "n[a-b]", "n[3-1]", "n[1-]"])
def test_a_range_that_is_none_is_refused_where_it_stands(text):
    with pytest.raises(BadProblem) as caught:
        list(names("nodes[0].node", text))
    assert caught.value.field == "nodes[0].node" and caught.value.fix


@pytest.mark.parametrize("weight,milli", [(1.5, 1500), (2, 2000), (0.001, 1)])
def test_weights_are_numbers(weight, milli):
    assert problem_from(changed(weight=weight)).tasks[0].weight_milli == milli


@pytest.mark.parametrize("weight", [0, -1, 0.0001, float("nan"), float("inf"), True, "heavy"])
def test_weights_that_are_none_are_refused(weight):
    with pytest.raises(BadProblem) as caught:
        problem_from(changed(weight=weight))
    assert caught.value.field == "tasks[0].weight"


def test_a_deadline_is_a_least_speed():
    # 1,000 GFLOP in 3 s: 333.3 GFLOP/s would be too slow.
    data = changed(remaining_gflop=1000, deadline_ms=3000)
    assert problem_from(data).tasks[0].min_gflops == 334


@pytest.mark.parametrize(
    "fields,field",
    [
        ({"deadline_ms": 3000}, "tasks[0].remaining_gflop"),
        ({"remaining_gflop": 5}, "tasks[0].deadline_ms"),
        ({"remaining_gflop": 5, "deadline_ms": 0}, "tasks[0].deadline_ms"),
        ({"remaining_gflop": 5, "deadline_ms": 9, "min_gflops": 3}, "tasks[0].deadline_ms"),
        ({"weight_milli": 7}, "tasks[0].weight"),
        ({"placement": ["a01"]}, "tasks[0].placement[0]"),
        ({"placement": ["a01/x"]}, "tasks[0].placement[0]"),
        ({"wieght": 2}, "tasks[0].wieght"),
    ],
)
def test_what_contradicts_itself_is_named(fields, field):
    with pytest.raises(BadProblem) as caught:
        problem_from(changed(**fields))
    assert caught.value.field == field


def test_a_mistyped_shorthand_gets_a_suggestion():
    data = changed()
    data["tasks"][0]["wieght"] = data["tasks"][0].pop("weight")
    with pytest.raises(BadProblem, match="did you mean weight"):
        problem_from(data)
