"""`unicron plan` on a problem in a file."""

import json
import shutil
from pathlib import Path

import pytest

from unicron.planner import Plan, check, problem_from, read_problem

EXAMPLE = Path(__file__).parents[2] / "examples" / "problem.toml"
SMALL = """
[[nodes]]
node = "n[1-3]"
kind = "gpu"
devices = 2
[[tasks]]
task = "a"
min_devices = 2
max_devices = 6
options = [
  {layout = {tp = 1, pp = 1, dp = 2}, throughput_gflops = 200},
  {layout = {tp = 1, pp = 1, dp = 4}, throughput_gflops = 380},
]
current = {tp = 1, pp = 1, dp = 4}
placement = ["n[1-2]/0-1"]
[[tasks]]
task = "b"
max_devices = 2
options = [{layout = {tp = 1, pp = 1, dp = 2}, throughput_gflops = 100}]
"""


@pytest.fixture
def small(cli):
    Path("small.toml").write_text(SMALL, encoding="utf-8")
    return "small.toml"


def test_sizes_layouts_places_and_why(cli, small):
    done = cli("plan", small)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    header = ["TASK", "DEVICES", "LAYOUT", "KIND", "WEIGHTED", "TFLOP/s", "CHANGE"]
    assert lines[0].split() == header
    assert lines[1].split()[:4] == ["=", "a", "4", "tp1"] and "stays as it is" in lines[1]
    assert lines[2].split()[:5] == ["+", "b", "0", "->", "2"]
    assert lines[4].startswith("tally: 1 changed, 1 unchanged, 0 parked, 0 devices moved")
    assert "n1 aa  n2 aa  n3 bb" in lines
    assert any(line.startswith("bound by: 6 of 6 devices of gpu are used") for line in lines)
    assert any(line.startswith("runner-up: ") for line in lines)
    assert "STRATEGY" not in done.stdout


def test_what_if_a_node_fails(cli, small):
    told = cli.json("plan", small, "--fail", "n2")
    assert told["schema"] == "unicron.plan/1"
    tasks = {task["task"]: task for task in told["explanation"]["tasks"]}
    assert tasks["a"]["hit"] and (tasks["a"]["lost"], tasks["a"]["devices_after"]) == (2, 4)
    assert tasks["b"]["devices_after"] == 0
    assert told["explanation"]["failure_milli"] == 0


def test_nodes_join_drain_and_tasks_end(cli, small):
    joined = cli.json("plan", small, "--fail", "n2", "--join", "gpu:1")
    sizes = {a["task"]: len(a["slots"]) for a in joined["plan"]["assignments"]}
    assert sizes == {"a": 4, "b": 2}
    ended = cli.json("plan", small, "--finish", "a")
    assert [a["task"] for a in ended["plan"]["assignments"]] == ["b"]


def test_a_minimum_that_cannot_be_met_is_the_answer_no(cli, small):
    done = cli("plan", small, "--fail", "n1", "--fail", "n2", "--fail", "n3")
    assert done.exit_code == 1
    assert "below its minimum: not all can be met" in done.stdout


def test_strategies_are_compared(cli, small):
    told = cli.json("plan", small, "--compare", "all")
    assert list(told["compared"]) == ["equal", "weighted", "sized", "current"]
    assert told["compared"]["current"]["devices"] == {"a": 4, "b": 0}
    assert told["compared"]["current"]["waf_milli"] < told["plan"]["waf_milli"]
    lost = cli("plan", small, "--fail", "n1", "--fail", "n2", "--compare", "current")
    rows = [line for line in lost.stdout.splitlines() if line.startswith("current ")]
    assert len(rows) == 1 and rows[0].endswith("no task runs; below the minimum: a")
    text = cli("plan", small, "--compare", "equal").stdout
    assert "OF THIS PLAN" in text and "weighted  " not in text.lower().split("strategy")[1]


def test_what_would_be_done_next(cli, small):
    told = cli.json("plan", small, "--next")
    cases = {(case["event"], tuple(case["names"])): case for case in told["next"]}
    assert set(cases) == {
        ("loss", ("n1", "n2")),
        ("loss", ("n3",)),
        ("join", ("gpu",)),
        ("finish", ("a",)),
        ("finish", ("b",)),
    }
    assert cases["loss", ("n3",)]["sizes"] == [["b", 2, 0]]
    text = cli("plan", small, "--next").stdout
    assert "one of n1, n2 fails" in text and "a node of gpu joins" in text
    assert "b 2 -> parked" in text and "no task changes its size" in text
    assert "\nIF " not in cli("plan", small).stdout


def test_a_spare_is_weighed_where_repairs_are_known(cli):
    Path("rated.toml").write_text(
        "node_mtbf_ms = 7_776_000_000\nrepair_ms = 86_400_000\n" + SMALL, encoding="utf-8"
    )
    told = cli.json("plan", "rated.toml")
    assert told["spares"][0]["spare"] is None
    assert told["spares"][0]["total_milli"] >= told["spares"][-1]["total_milli"]
    assert "spare: leaving n" in cli("plan", "rated.toml").stdout


def test_the_plan_is_written_for_other_programs(cli, small):
    assert cli("plan", small, "--out", "plan.json").exit_code == 0
    import msgspec

    plan = msgspec.json.decode(Path("plan.json").read_bytes(), type=Plan)
    assert check(read_problem(small), plan) == ()
    done = cli("plan", small, "--out", "no/where.json")
    assert done.exit_code == 2 and "no/where.json can't be written" in done.stderr


def test_the_plan_never_takes_the_place_of_its_problem(cli, small):
    Path("other.toml").symlink_to(small)
    done = cli("plan", small, "--out", "other.toml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--out other.toml is the problem itself" in done.stderr
    assert Path(small).read_text(encoding="utf-8") == SMALL


def test_names_cannot_command_the_terminal(cli):
    text = SMALL.replace('"b"', r'"\u001b[31mb\u009b1m\n"').replace('"n[1-3]"', r'"n[1-3]\u0007"')
    Path("evil.toml").write_text(text.replace("n[1-2]/", r"n[1-2]\u0007/"), encoding="utf-8")
    done = cli("plan", "evil.toml", "--drain", "n1\x07", "--compare", "all")
    assert done.exit_code == 0, done.output
    assert "[31mb" in done.stdout and all(c.isprintable() for c in done.stdout.replace("\n", ""))


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--fail", "nn2"], "did you mean n2"),
        (["--join", "tpu:2"], "known: gpu"),
        (["--join", "gpu:many"], "write KIND:N"),
        (["--join", f"gpu:{'9' * 5000}"], "write KIND:N"),
        (["--finish", "c"], "known: a, b"),
    ],
)
def test_what_is_not_there_is_said_in_two_lines(cli, small, arguments, words):
    done = cli("plan", small, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "text,words",
    [
        ("nodes = 3", "nodes: Expected `array`, got `int`"),
        ("[[nodes]]\nnode = ", "is not TOML"),
        (SMALL.replace("min_devices = 2", "min_devices = 5"), "outside 5 to 6"),
        (SMALL.replace("dp = 2", "dp = nan", 1), "got `float`"),
        (SMALL.replace("weight", "wieght") + "wieght = 2\n", "did you mean weight"),
    ],
)
def test_a_problem_that_is_none_is_named_with_its_place(cli, text, words):
    Path("bad.toml").write_text(text, encoding="utf-8")
    done = cli("plan", "bad.toml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr and "try: " in done.stderr
    told = cli.json("plan", "bad.toml", exit_code=2)
    assert told["code"] == "E-PLAN-PROBLEM"


def test_a_file_that_is_not_there(cli):
    done = cli("plan", "nothing.toml")
    assert done.exit_code == 2 and "nothing.toml: can't be read: No such file" in done.stderr


def test_the_example_can_be_planned(cli):
    shutil.copy(EXAMPLE, "problem.toml")
    told = cli.json("plan", "problem.toml", "--compare", "all")
    sizes = {a["task"]: len(a["slots"]) for a in told["plan"]["assignments"]}
    assert sizes["llama-7b"] > 64 and sizes["small"] >= 8
    best = told["plan"]["value_gflops_milli"]
    assert all(other["value_milli"] <= best for other in told["compared"].values())
    kinds = {n.node: n.kind for n in read_problem("problem.toml").nodes}
    for assignment in told["plan"]["assignments"]:
        assert {kinds[slot["node"]] for slot in assignment["slots"]} <= {assignment["kind"]}
    assert json.loads(json.dumps(told)) == told


def test_the_help_shows_a_problem_that_can_be_planned(cli):
    """The lines in the help are a file."""
    text = cli("plan", "--help").stdout
    block = text[text.index("[[nodes]]") : text.index("--fail, --drain")]
    import tomllib

    problem = problem_from(tomllib.loads(block))
    assert len(problem.nodes) == 16 and problem.tasks[0].options
