"""Tasks of a problem's file that name their model."""

import copy

import pytest

from unicron.planner import BadProblem, Layout, problem_from
from unicron.planner.cost import Choices, Training, Transformer, accelerator, layout_table, options
from unicron.planner.cost import pareto as best_of

MODEL = {"layers": 24, "hidden": 2048, "heads": 16, "sequence": 2048, "vocabulary": 50257}
DATA = {
    "nodes": [
        {"node": "a[1-4]", "kind": "h100", "devices": 8},
        {"node": "b[1-2]", "kind": "a100", "devices": 8},
    ],
    "tasks": [{"task": "gpt", "model": MODEL, "training": {"global_batch": 128}, "weight": 2}],
}


def changed(**fields):
    data = copy.deepcopy(DATA)
    data["tasks"][0].update(fields)
    return data


def test_options_are_what_the_cost_model_says_on_each_kind():
    task = problem_from(DATA).tasks[0]
    assert {option.kind for option in task.options} == {"h100", "a100"}
    table = layout_table(
        Transformer(**MODEL), Training(global_batch=128), accelerator("h100"), 96, Choices()
    )
    expected = options(best_of(table), "h100")
    assert tuple(o for o in task.options if o.kind == "h100") == expected
    assert task.state_bytes > 0 and task.max_devices >= 48


def test_kinds_and_layouts_can_be_narrowed():
    task = problem_from(changed(kinds=["a100"], layouts={"tp": [2], "pp": [1]})).tasks[0]
    assert {option.kind for option in task.options} == {"a100"}
    assert {(o.layout.tp, o.layout.pp) for o in task.options} == {(2, 1)}


def test_what_it_runs_now_stays_possible_though_it_is_not_the_best():
    current = {"tp": 8, "pp": 1, "dp": 1}
    data = changed(kinds=["h100"], current=current, placement=["a1/0-7"])
    task = problem_from(data).tasks[0]
    assert task.current_kind == "h100"
    held = Layout(tp=8, pp=1, dp=1)
    speeds = {o.layout: o.throughput_gflops for o in task.options if o.layout.devices == 8}
    assert speeds.pop(held) < max(speeds.values())


def test_iterations_with_a_deadline_are_a_floor():
    # 24 layers of 2,048: 96 B s l h^2 and so on, as flops_per_sample counts.
    slow = problem_from(changed(remaining_iterations=1_000, deadline_ms=100_000_000)).tasks[0]
    fast = problem_from(changed(remaining_iterations=1_000, deadline_ms=10_000_000)).tasks[0]
    assert slow.min_gflops > 0
    assert abs(fast.min_gflops - 10 * slow.min_gflops) <= 10


@pytest.mark.parametrize(
    "fields,field",
    [
        ({"model": {**MODEL, "heads": 15}}, "tasks[0].model.heads"),
        ({"model": {**MODEL, "layer": 3}}, "tasks[0].model.layer"),
        ({"model": {**MODEL, "layers": "many"}}, "tasks[0].model.layers"),
        ({"training": {}}, "tasks[0].training"),
        ({"training": {"global_batch": 0}}, "tasks[0].training.global_batch"),
        ({"layouts": {"tp": [3, 2]}}, "tasks[0].layouts.tp"),
        ({"kinds": ["h900"]}, "tasks[0].kinds"),
        ({"kinds": "h100"}, "tasks[0].kinds"),
        ({"options": []}, "tasks[0].model"),
        ({"remaining_iterations": 0, "deadline_ms": 5}, "tasks[0].remaining_iterations"),
        ({"min_devices": -1}, "tasks[0].min_devices"),
    ],
)
def test_what_makes_no_sense_is_named(fields, field):
    with pytest.raises(BadProblem) as caught:
        problem_from(changed(**fields))
    assert caught.value.field == field and caught.value.fix


def test_a_kind_without_figures_is_named_and_can_be_given(tmp_path):
    data = changed()
    data["nodes"][0]["kind"] = "z9"
    with pytest.raises(BadProblem, match=r"z9.*or options"):
        problem_from(data)
    extra = tmp_path / "mine.toml"
    extra.write_text('[z9]\nextends = "h100"\nmemory_bytes = 120_000_000_000\n', encoding="utf-8")
    text = extra.read_text(encoding="utf-8")
    extra.write_text(text + '[z9.sources]\nmemory_bytes = "ours"\n', encoding="utf-8")
    problem = problem_from({**data, "accelerators": str(extra)})
    assert "z9" in {option.kind for option in problem.tasks[0].options}


def test_how_to_train_without_a_model_is_refused():
    data = changed()
    del data["tasks"][0]["model"]
    with pytest.raises(BadProblem, match="name the model too"):
        problem_from(data)
