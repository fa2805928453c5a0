"""The planner's problem says what the state says, and its answers come back as they went."""

import pytest

from tests.core.reading import hold, task
from tests.core.story import SPEC, Story, running
from tests.core.test_node_loss import suspect
from tests.core.test_plan import OTHER, allocate
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.offers import options_of, state_bytes_of, worthwhile_of
from unicron.controlplane.core.problem import (
    active,
    allocation_of,
    assignment_of,
    problem_of,
)
from unicron.planner.best import best_plan
from unicron.planner.local import local_plan
from unicron.planner.plan import Assignment
from unicron.planner.problem import Layout, Slot, TenantQuota
from unicron.planner.validation import validate


def join(story, node, *, devices=2, kind="cpu", rack=""):
    story.fact(
        f"agent/{node}",
        1,
        ev.AgentStarted(
            node=node, address="a", store_port=1, devices=devices, device_kind=kind, rack=rack
        ),
    )


def test_it_offers_the_nodes_that_may_carry_work():
    story = Story()
    join(story, "n2", kind="h100", rack="r2")
    join(story, "n1", devices=3, kind="h100", rack="r1")
    join(story, "n3", devices=10**9, kind="h100")
    join(story, "n4", kind="h100")
    for name in ("n1", "n2", "n3", "n4"):
        story.decide_input(ev.NodeAdmitted(node=name, incarnation=1))
    suspect(story, "n2")
    story.decide_input(ev.NodeIsolated(node="n4", reason="sick: test"))
    join(story, "n5", kind="h100")  # nobody has admitted it yet
    problem = problem_of(story.state)
    assert [(n.node, n.kind, n.rack) for n in problem.nodes] == [
        ("n1", "h100", "r1"),
        ("n2", "h100", "r2"),
        ("n3", "h100", ""),
    ]
    assert [n.devices for n in problem.nodes[:2]] == [(0, 1, 2), (0, 1)]
    assert problem.nodes[2].devices == tuple(range(limits.NODE_DEVICES_MAX))
    assert (problem.computed_at, problem.expected_run_ms) == (story.state.seq, 86_400_000)


def test_a_device_that_was_given_up_is_not_offered():
    state = running().state
    node = replace(state.nodes["n2"], given_up=(0,))
    state = replace(state, nodes={**state.nodes, "n2": node})
    assert [n.devices for n in problem_of(state).nodes] == [(0, 1), (1,)]


def test_it_asks_for_the_tasks_that_have_not_ended_oldest_first():
    story = running()
    story.submit(replace(OTHER, task=ev.TaskId("zeta"), weight_milli=700, min_devices=0))
    story.submit(replace(OTHER, task=ev.TaskId("alpha"), max_devices=2))
    story.submit(replace(OTHER, task=ev.TaskId("over")))
    story.decide_input(ev.TaskFailed(task="over", reason="test"))
    assert [t.spec.task for t in active(story.state)] == ["gpt", "zeta", "alpha"]
    gpt, zeta, alpha = problem_of(story.state).tasks
    assert (gpt.task, gpt.weight_milli, gpt.min_devices, gpt.max_devices) == ("gpt", 1000, 1, 8)
    assert (zeta.weight_milli, zeta.min_devices, alpha.max_devices) == (700, 0, 2)
    assert gpt.current == Layout(tp=1, pp=1, dp=4)
    held = task(story).allocation.slots
    assert gpt.placement == tuple(Slot(node=n, device=d) for n, d in held)
    assert len(held) == 4
    assert (zeta.current, zeta.placement) == (None, ())
    assert {t.transition_ms for t in (gpt, zeta, alpha)} == {limits.TRANSITION_MS}
    assert {o.layout.dp for o in zeta.options} == {1, 2, 3, 4, 6, 7}  # 12 micro-batches
    assert {o.layout.dp for o in alpha.options} == {1, 2}


def test_a_task_that_is_parked_has_no_layout():
    story = running()
    allocate(story, "gpt", [])
    (demand,) = problem_of(story.state).tasks
    assert (demand.current, demand.placement) == (None, ())


def test_a_task_that_must_change_anyway_is_hit():
    story = running()
    assert not problem_of(story.state).tasks[0].hit
    node = replace(story.state.nodes["n2"], given_up=(0,))
    lame = replace(story.state, nodes={**story.state.nodes, "n2": node})
    assert problem_of(lame).tasks[0].hit
    hold(story, "quiesce", "n1/0")
    story.exit("n2/1")
    story.settle()
    assert task(story).phase == "closed"
    assert problem_of(story.state).tasks[0].hit


def fastest(kind):
    """Throughput of a model whose exchange costs little, on eight devices of this kind."""
    model = replace(SPEC.model, hidden_size=4096, seq_length=4096)
    spec = replace(SPEC, model=model, micro_batches=64, min_devices=8, max_devices=8)
    (option,) = options_of(spec, kind, ev.Planning())
    return option.throughput_gflops


def test_newer_devices_are_faster():
    kinds = ["cpu", "a100", "h100", "h200", "b200"]
    speeds = [fastest(kind) for kind in kinds]
    assert speeds == sorted(speeds)
    assert len(set(speeds)) == len(kinds)
    assert fastest("a800") == fastest("a100")  # the same but for its links
    assert fastest("h800") == fastest("h100")
    assert fastest("never heard of") < fastest("a100")


def test_the_clusters_devices_are_those_that_are_planned_with():
    story = Story()
    story.submit()
    assert problem_of(story.state).tasks[0].options == ()
    assert [a.slots for a in best_plan(problem_of(story.state)).assignments] == [()]
    join(story, "n1", kind="h100")
    story.decide_input(ev.NodeAdmitted(node="n1", incarnation=1))
    (demand,) = problem_of(story.state).tasks
    assert demand.options == worthwhile_of(SPEC, "h100", ev.Planning(), ())
    assert {option.kind for option in demand.options} == {"h100"}


@pytest.mark.parametrize(
    "name", ["num_layers", "hidden_size", "seq_length", "vocab_size", "micro_batch_size"]
)
def test_each_size_of_the_model_changes_the_offer(name):
    base = replace(SPEC.model, hidden_size=1024, seq_length=512, vocab_size=50_000)
    model = replace(base, **{name: 4 * getattr(base, name)})
    offers = [options_of(replace(SPEC, model=m), "a100", ev.Planning()) for m in (base, model)]
    assert offers[0] != offers[1]


def test_a_task_never_gets_more_devices_than_micro_batches():
    spec = replace(SPEC, micro_batches=3, max_devices=8, min_devices=2)
    assert [o.layout.dp for o in options_of(spec, "cpu", ev.Planning())] == [2, 3]


def test_an_answer_comes_back_as_it_went():
    given = ev.Allocation(
        task=ev.TaskId("gpt"),
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=2,
        slots=((ev.NodeId("n1"), 0), (ev.NodeId("n2"), 1)),
    )
    there = assignment_of(given, "cpu")
    assert there.kind == "cpu"
    assert there.layout == Layout(tp=1, pp=1, dp=2)
    assert there.slots == (Slot(node="n1", device=0), Slot(node="n2", device=1))
    assert allocation_of(there) == given


def test_nothing_comes_back_as_nothing():
    parked = Assignment(task="gpt", layout=None, slots=())
    there = allocation_of(parked)
    assert (there.tensor_parallel, there.pipeline_parallel, there.data_parallel) == (1, 1, 0)
    assert there.slots == ()
    assert assignment_of(there, "") == parked


# --- What is asked for besides sizes --------------------------------------------------------------


def two_kinds(*nodes):
    """A story with these nodes of two devices, of a kind each."""
    story = Story()
    for name, kind in nodes:
        join(story, name, kind=kind)
        story.decide_input(ev.NodeAdmitted(node=name, incarnation=1))
    return story


def demands(story):
    return {t.task: t for t in problem_of(story.state).tasks}


def test_what_a_task_asks_for_is_asked_of_the_planner():
    story = two_kinds(("n1", "h100"))
    asked = {"priority": 3, "tenant": "lab", "min_gflops": 70, "avoid": (ev.NodeId("n1"),)}
    story.submit(replace(SPEC, **asked))
    demand = demands(story)["gpt"]
    assert {name: getattr(demand, name) for name in asked} == asked
    assert demand.state_bytes == state_bytes_of(SPEC)
    assert demand.state_bytes > 12 * 4 * 12 * 64**2  # Adam's, of four layers


def test_a_task_may_run_on_every_kind_there_is_and_on_those_alone_that_it_names():
    story = two_kinds(("n1", "a100"), ("n2", "h100"))
    story.submit()
    story.submit(replace(OTHER, device_kinds=("h100", "b200")))
    found = {name: {o.kind for o in demand.options} for name, demand in demands(story).items()}
    assert found == {"gpt": {"a100", "h100"}, "bert": {"h100"}}


def test_the_kind_it_runs_on_is_told_and_what_it_makes_there_though_the_last_such_node_is_lost():
    story = running()
    join(story, "n3", kind="h100")
    story.decide_input(ev.NodeAdmitted(node="n3", incarnation=1))
    for name in ("n1", "n2"):
        node = replace(story.state.nodes[name], status="lost")
        story.state = replace(story.state, nodes={**story.state.nodes, name: node})
    (demand,) = problem_of(story.state).tasks
    assert (demand.current_kind, demand.current) == ("cpu", Layout(tp=1, pp=1, dp=4))
    assert {o.kind for o in demand.options} == {"cpu", "h100"}
    assert local_plan(problem_of(story.state)).relaxed == ("gpt",)


def test_a_task_whose_devices_are_of_two_kinds_is_moved_to_one():
    """As it may be in a log of an older version, or when a node came back with other devices."""
    story = running()
    other = replace(story.state.nodes["n2"], device_kind="t4")
    story.state = replace(story.state, nodes={**story.state.nodes, "n2": other})
    problem = problem_of(story.state)
    assert problem.tasks[0].current_kind == "cpu"  # the lower name of two as many
    (given,) = best_plan(problem).assignments
    assert given.kind in ("cpu", "t4")
    assert {s.node for s in given.slots} in ({"n1"}, {"n2"})


def test_a_node_that_does_not_say_its_kind_is_taken_for_the_slowest():
    story = two_kinds(("n1", ""), ("n2", "h100"))
    story.submit()
    problem = problem_of(story.state)
    assert [n.kind for n in problem.nodes] == ["cpu", "h100"]
    validate(problem)


def test_what_is_configured_is_part_of_it():
    story = two_kinds(("n1", "a100"), ("n2", "cpu"))
    story.submit()
    before = problem_of(story.state)
    assert (before.quotas, before.node_mtbf_ms, before.repair_ms) == ((), 0, 0)
    assert (before.expected_run_ms, before.link_bytes_per_s) == (86_400_000, 1_000_000_000)
    planning = ev.Planning(
        quotas=(ev.Quota(tenant="lab", max_devices=3, kind="a100"),),
        devices=(ev.DeviceSpeed(kind="a100", gflops=7, link_bytes_per_s=500),),
        node_mtbf_ms=10_000_000,
        repair_ms=9_000,
    )
    story.state = replace(story.state, planning=planning)
    after = problem_of(story.state)
    assert after.quotas == (TenantQuota(tenant="lab", max_devices=3, kind="a100"),)
    assert (after.node_mtbf_ms, after.repair_ms, after.expected_run_ms) == (10**7, 9000, 5 * 10**6)
    assert after.link_bytes_per_s == 500  # the slowest there is
    validate(after)
    speeds = [
        {o.kind: o.throughput_gflops for o in p.tasks[0].options if o.layout.dp == 1}
        for p in (before, after)
    ]
    assert speeds[1]["a100"] == 7 < speeds[0]["a100"]
    assert speeds[1]["cpu"] == speeds[0]["cpu"]
    faster = replace(planning, link_bytes_per_s=4_000)
    assert problem_of(replace(story.state, planning=faster)).link_bytes_per_s == 4_000


def test_a_quota_of_a_kind_needs_no_task_to_name_its_kinds():
    """Every option names one."""
    story = two_kinds(("n1", "a100"), ("n2", "h100"))
    story.submit(replace(SPEC, tenant="lab"))
    quota = ev.Quota(tenant="lab", max_devices=1, kind="h100")
    story.state = replace(story.state, planning=ev.Planning(quotas=(quota,)))
    validate(problem_of(story.state))
