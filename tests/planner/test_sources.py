"""Where state comes from: every shard that is needed and not held, from a worker that holds it."""

from __future__ import annotations

from collections import Counter

from tests.planner.cases import change, layout, linear, node, problem, running, slots, task
from unicron.planner import Assignment, LayoutOption, Plan, Slot
from unicron.planner.problem import Layout
from unicron.planner.sources import Movement, movements, transfers


def option(which: Layout) -> LayoutOption:
    return LayoutOption(layout=which, throughput_gflops=100 * which.devices)


def fetched(base, *given: Assignment) -> list[str]:
    """`["a n1/0 <- n0/0", ...]`."""
    return [
        f"{t.task} {t.to.node}/{t.to.device} <- "
        + ("storage" if t.origin is None else f"{t.origin.node}/{t.origin.device}")
        for t in transfers(base, given)
    ]


def on(rack: str, *names: str, segment: str = ""):
    return [change(node(name, 4), rack=rack, segment=segment) for name in names]


def test_who_stays_and_who_starts_fetches_nothing():
    held = running("a", linear(4), slots("n0/0-1"))
    fresh = task("b", linear(4))
    base = problem(on("", "n0"), [held, fresh])
    assert fetched(base, Assignment(task="a", layout=layout(2), slots=slots("n0/0-1"))) == []
    assert fetched(base, Assignment(task="b", layout=layout(1), slots=slots("n0/2"))) == []
    assert fetched(base, Assignment(task="a")) == []


def test_nearest_first_node_then_rack_then_segment():
    nodes = [
        *on("r0", "n0", "n1", segment="s0"),
        *on("r1", "n2", segment="s0"),
        *on("r2", "n3", "n4", segment="s1"),
    ]
    held = running("a", linear(8), slots("n4/0", "n2/0", "n1/0", "n0/0"))
    base = problem(nodes, [held])

    def source(to: str) -> str:
        given = Assignment(task="a", layout=layout(5), slots=(*held.placement, *slots(to)))
        (line,) = fetched(base, given)
        return line.rpartition(" ")[2]

    assert source("n0/1") == "n0/0"
    assert source("n3/0") == "n4/0"
    without_n1 = change(base, nodes=tuple(n for n in nodes if n.node != "n0"))
    given = Assignment(task="a", layout=layout(4), slots=slots("n4/0", "n2/0", "n1/0", "n1/1"))
    assert fetched(without_n1, given) == ["a n1/1 <- n1/0"]
    gone = change(base, nodes=tuple(n for n in nodes if n.node != "n1"))
    given = Assignment(task="a", layout=layout(4), slots=slots("n4/0", "n2/0", "n0/0", "n2/1"))
    assert fetched(gone, given) == ["a n2/1 <- n2/0"]
    far = change(base, nodes=(*nodes, *on("r3", "n5", segment="s0"), *on("r4", "n6")))
    given = Assignment(task="a", layout=layout(5), slots=(*held.placement, *slots("n5/0")))
    assert fetched(far, given) == ["a n5/0 <- n2/0"], "any of the segment, the first by rank"
    given = Assignment(task="a", layout=layout(5), slots=(*held.placement, *slots("n6/0")))
    assert fetched(far, given) == ["a n6/0 <- n4/0"], "no near one, the first by rank"


def test_no_source_serves_many_while_others_idle():
    """Three new ones beside one holder: it serves one of them, though it is the nearest to all."""
    held = running("a", linear(8), slots("n0/0", "n1/0", "n2/0"))
    base = problem(on("r0", "n0", "n1", "n2"), [held])
    new = slots("n0/1-3")
    given = Assignment(task="a", layout=layout(6), slots=(*held.placement, *new))
    assert fetched(base, given) == ["a n0/1 <- n0/0", "a n0/2 <- n1/0", "a n0/3 <- n2/0"]
    more = (*new, *slots("n1/1"))
    given = Assignment(task="a", layout=layout(7), slots=(*held.placement, *more))
    served = Counter(line.rpartition(" ")[2] for line in fetched(base, given))
    assert sorted(served.values()) == [1, 1, 2]


def test_sources_on_one_node_are_used_after_those_on_others():
    held = running("a", linear(8), slots("n0/0-2", "n1/0"))
    base = problem(on("", "n0", "n1", "n2"), [held])
    given = Assignment(task="a", layout=layout(6), slots=(*held.placement, *slots("n2/0-1")))
    assert fetched(base, given) == ["a n2/0 <- n0/0", "a n2/1 <- n1/0"]


def test_a_draining_node_and_one_to_be_avoided_still_serve():
    held = running("a", linear(4), slots("n0/0", "n1/0"), avoid=("n1",))
    nodes = [change(node("n0", 4), draining=True), node("n1", 4), node("n2", 4)]
    base = problem(nodes, [held])
    given = Assignment(task="a", layout=layout(2), slots=slots("n2/0-1"))
    assert fetched(base, given) == ["a n2/0 <- n0/0", "a n2/1 <- n1/0"]


def test_without_a_copy_everything_comes_from_storage():
    """Stage 1 is lost; what stage 0 holds is newer than what storage holds, and of no use."""
    before = Layout(tp=1, pp=2, dp=1)
    held = task(
        "a",
        (option(before),),
        current=before,
        placement=slots("n0/0", "gone/0"),
    )
    base = problem(on("", "n0", "n1"), [held])
    given = Assignment(task="a", layout=before, slots=slots("n0/0", "n1/0"))
    assert fetched(base, given) == ["a n0/0 <- storage", "a n1/0 <- storage"]


def test_each_shard_comes_from_who_holds_it():
    """tp 2, pp 2, dp 2: tensor rank 1 of stage 1 is lost in replica 0."""
    shape = Layout(tp=2, pp=2, dp=2)
    place = slots("n0/0-1", "n1/0-1", "n2/0-1", "n3/0-1")
    held = task("a", (option(shape),), current=shape, placement=place)
    base = problem([node(f"n{i}", 4) for i in range(4)], [held])
    after = tuple(Slot(node="n2", device=3) if s == place[5] else s for s in place)
    given = Assignment(task="a", layout=shape, slots=after)
    gone = change(
        base,
        nodes=tuple(change(n, devices=(0, 2, 3)) if n.node == "n2" else n for n in base.nodes),
    )
    assert fetched(gone, given) == ["a n2/3 <- n3/1"]


def test_other_sizes_fetch_all_parts_and_keep_what_they_hold():
    two, one = Layout(tp=2, pp=1, dp=1), Layout(tp=1, pp=1, dp=2)
    nodes = [node("n0", 4)]
    split = task("a", (option(one),), current=two, placement=slots("n0/0-1"))
    given = Assignment(task="a", layout=one, slots=slots("n0/0", "n0/2"))
    assert fetched(problem(nodes, [split]), given) == [
        "a n0/0 <- n0/1",
        "a n0/2 <- n0/0",
        "a n0/2 <- n0/1",
    ]
    whole = task("a", (option(two),), current=one, placement=slots("n0/0-1"))
    given = Assignment(task="a", layout=two, slots=slots("n0/0-1"))
    assert fetched(problem(nodes, [whole]), given) == [], "each holds more than it needs"


def test_stages_that_do_not_divide_one_another_overlap():
    two, three = Layout(tp=1, pp=2, dp=1), Layout(tp=1, pp=3, dp=1)
    held = task("a", (option(three),), current=two, placement=slots("n0/0-1"))
    given = Assignment(task="a", layout=three, slots=slots("n0/0-2"))
    assert fetched(problem([node("n0", 4)], [held]), given) == [
        "a n0/1 <- n0/0",
        "a n0/2 <- n0/1",
    ], "the middle third needs both halves, and holds the second"


def test_what_the_transfers_amount_to():
    held = running("a", linear(8), slots("n0/0", "n1/0"), state_bytes=3_000)
    base = change(problem([node("n0", 4), node("n1", 4)], [held]), link_bytes_per_s=1_000)
    new = slots("n0/1-3")
    given = Assignment(task="a", layout=layout(5), slots=(*held.placement, *new))
    plan = Plan(
        source="dp",
        assignments=(given,),
        value_gflops_milli=0,
        waf_milli=0,
        computed_at=0,
        problem_digest="",
        transfers=transfers(base, (given,)),
    )
    told = Movement(task="a", receivers=3, stored=0, received_bytes=9_000, longest_ms=6_000)
    assert movements(base, plan) == (told,)
    unknown = change(base, link_bytes_per_s=0)
    assert movements(unknown, plan) == (change(told, longest_ms=0),)
    lost = change(base, nodes=(node("n2", 4),))
    again = Assignment(task="a", layout=layout(1), slots=slots("n2/0"))
    stored = change(plan, assignments=(again,), transfers=transfers(lost, (again,)))
    assert movements(lost, stored) == (
        Movement(task="a", receivers=1, stored=1, received_bytes=3_000, longest_ms=0),
    )


def test_assignments_that_no_plan_may_have_get_none():
    held = running("a", linear(4), slots("n0/0-1"))
    base = problem([node("n0", 4)], [held])
    for given in (
        Assignment(task="x", layout=layout(1), slots=slots("n0/3")),
        Assignment(task="a", layout=layout(3), slots=slots("n0/0-1")),
        Assignment(task="a", layout=Layout(tp=-1, pp=-1, dp=1), slots=slots("n0/0")),
    ):
        assert fetched(base, given) == []
    unknown = Assignment(task="a", layout=layout(1), slots=slots("n9/0"))
    assert fetched(base, unknown) == ["a n9/0 <- n0/0"]
