"""Who sits where, as text."""

from tests.planner.cases import layout, linear, node, slots, task
from unicron.planner import Assignment, NodeSupply, Plan, PlanProblem
from unicron.planner.picture import picture


def problem(nodes, tasks=()):
    return PlanProblem(computed_at=0, nodes=tuple(nodes), tasks=tuple(tasks), expected_run_ms=1000)


def plan(**held):
    return Plan(
        source="local",
        assignments=tuple(
            Assignment(task=name, layout=layout(len(given)) if given else None, slots=given)
            for name, given in held.items()
        ),
        value_gflops_milli=0,
        waf_milli=0,
        computed_at=0,
        problem_digest="",
    )


def test_a_small_cluster_is_shown_device_by_device():
    nodes = [
        NodeSupply(node="a1", kind="gpu", devices=(0, 1, 2, 3), rack="r1"),
        NodeSupply(node="a2", kind="gpu", devices=(0, 2), rack="r1"),
        NodeSupply(node="b1", kind="gpu", devices=(0, 1), rack="r2", draining=True),
        NodeSupply(node="b2", kind="gpu", devices=(), rack="r2"),
    ]
    lost = task("big", linear(4), current=layout(3), placement=slots("a1/0-1", "c9/0"))
    lines = picture(
        problem(nodes, [lost]), plan(big=slots("a1/0-1"), small=slots("a2/2"), parked=())
    )
    assert lines == (
        "rack r1  a1 aa..  a2 .-b",
        "rack r2  b1 dd  b2 -",
        "gone  c9 x",
        "a big 2  b small 1  . free 3  d draining 2  - not healthy 1  x gone 1",
    )


def test_a_larger_one_node_by_node_and_a_huge_one_rack_by_rack():
    nodes = [
        NodeSupply(node=f"n{i:03}", kind="gpu", devices=(0, 1), rack=f"r{i // 40}")
        for i in range(100)
    ]
    given = plan(one=slots("n000/0-1", "n001/0"), two=slots("n001/1", "n041/0"))
    assert picture(problem(nodes), given, 60) == (
        "rack r0  a+......................................",
        "rack r1  .b......................................",
        "rack r2  ....................",
        "a one 3  b two 2  . free 195",
        "(a letter is a node; + several tasks)",
    )
    many = [
        NodeSupply(node=f"n{i}", kind="gpu", devices=(0,), rack=f"r{i // 32:04}")
        for i in range(12_500)
    ]
    lines = picture(problem(many), plan(one=slots("n33/0")), 80)
    assert lines[0].startswith(".a..") and max(map(len, lines)) <= 80
    assert sum(line.count(".") for line in lines[:-1]) == -(-12_500 // 32) - 1


def test_no_line_is_wider_than_asked_and_nothing_is_left_out():
    nodes = [node(f"node-{i}", 8) for i in range(20)]
    lines = picture(problem(nodes), plan(t=slots("node-3/0-7")), 40)
    assert max(map(len, lines)) <= 40
    shown = "".join(lines[:-1])
    assert shown.count("node-") == 20 and shown.count("a") == 8


def test_more_tasks_than_letters_share_a_sign():
    nodes = [node(f"n{i}", 8) for i in range(10)]
    tasks = {f"t{i:02}": slots(f"n{i // 8}/{i % 8}") for i in range(70)}
    lines = picture(problem(nodes), plan(**tasks), 200)
    assert "* 10 smaller tasks" in "".join(lines)
    assert sum(line.count("*") for line in lines) == 11
    shown = "".join(lines[: -(-10 // 2)])
    assert "d" not in shown and "x" not in shown  # these mean something else


def test_an_empty_cluster_has_an_empty_picture():
    assert picture(problem([]), plan(t=())) == ()
