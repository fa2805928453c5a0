"""Plans: asked for, answered late, wrongly or not at all; tasks that share the devices."""

import msgspec

from tests.core.reading import hold, is_open, kinds, limit, members, of, task
from tests.core.story import SPEC, Story, running
from tests.core.test_node_loss import sicken
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace, with_task
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.problem import allocations_of, problem_of
from unicron.planner.dynamic import dynamic_plan
from unicron.planner.problem import digest


def allocate(story, name, workers):
    """Put an allocation in force, as a plan would that the solver may not find."""
    slots = tuple((ev.node_of(w), int(w.rpartition("/")[2])) for w in workers)
    allocation = ev.Allocation(
        task=name,
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=len(slots),
        slots=slots,
    )
    story.decide_input(
        ev.PlanDecided(
            source="local",
            computed_at=story.state.seq,
            allocations=(allocation,),
            value=0,
            waf_milli=0,
            reason="test",
        )
    )


class Unsolved(Story):
    """Nobody answers a request for a plan but the test."""

    def solve(self):
        pass

    def answer(self, **changes):
        at = self.state.plan.request
        problem = problem_of(self.states[at])
        plan = dynamic_plan(problem)
        good = ev.PlanSolved(
            request=at,
            problem_digest=digest(problem),
            source=plan.source,
            value=plan.value_gflops_milli,
            waf_milli=plan.waf_milli,
            allocations=allocations_of(plan),
        )
        self.decide_input(msgspec.structs.replace(good, **changes))


def asking():
    story = Unsolved()
    story.join("n1")
    story.submit()
    made = story.settle()
    assert kinds(made)[-1] == "PlanRequested"
    return story


def test_an_answer_is_applied():
    story = asking()
    story.answer()
    assert kinds(story.settle())[0] == "PlanDecided"
    assert task(story).phase == "running"


def test_no_answer_within_the_limit():
    story = asking()
    request = story.state.plan.request
    limit(story, f"solve:{request}")
    made = story.settle()
    assert kinds(made) == ["PlanDropped", "PlanRequested"]
    assert "no answer" in of(made, ev.PlanDropped).reason
    assert story.state.plan.request > request
    before = story.state
    story.decide_input(
        ev.PlanSolved(
            request=request,
            problem_digest="",
            source="cpsat",
            value=0,
            waf_milli=0,
            allocations=(),
        )
    )
    assert story.state.void == before.void + 1  # it came too late
    story.answer()
    story.settle()
    assert task(story).phase == "running"


def test_a_limit_of_an_earlier_request_is_void():
    story = asking()
    (key,) = deadlines(story.state)
    story.answer(error="crashed")
    story.settle()
    story.decide_input(ev.DeadlinePassed(key=key, limit_ms=1))
    assert decide(story.state) is None


def test_a_solver_that_fails_is_asked_a_bounded_number_of_times_and_later_again():
    story = asking()
    for _ in range(limits.PLAN_FAILURES_MAX):
        story.answer(error="crashed")
        story.settle()
    assert not story.state.plan.request
    assert decide(story.state) is None
    assert task(story).phase == "idle"
    limit(story, f"replan:{story.state.plan.wanted}")
    assert kinds(story.settle()) == ["PlanRequested"]
    story.answer()
    story.settle()
    assert task(story).phase == "running"


def test_an_answer_that_fails_the_check_is_dropped():
    story = asking()
    story.answer(value=12345)
    made = story.settle()
    assert kinds(made)[0] == "PlanDropped"
    assert "12345" in made[0].reason
    assert story.state.plan.failures == 1


def test_an_answer_that_leaves_out_a_task_is_dropped():
    story = asking()
    story.answer(allocations=())
    dropped = of(story.settle(), ev.PlanDropped)
    assert "task-missing" in dropped.reason


def test_a_floor_that_cannot_be_met_does_not_keep_a_plan_from_being_applied():
    """Which floors are given up is worked out from the sizes: the log doesn't name them."""
    story = Unsolved()
    story.join("n1")
    story.submit(replace(SPEC, min_gflops=10**6))
    story.settle()
    plan = dynamic_plan(problem_of(story.state))
    assert plan.relaxed == ("gpt",)
    story.answer()
    decided = of(story.settle(), ev.PlanDecided)
    assert decided.reason == "gpt grows from 0 to 2 devices"
    assert task(story).phase == "running"


def test_a_smaller_quota_takes_devices_and_another_tenant_gets_them():
    story = Story()
    for name in ("n1", "n2"):
        story.join(name)
    story.submit(replace(SPEC, weight_milli=5000, tenant="lab"))
    story.submit(replace(OTHER, tenant="house"))
    story.settle()
    assert [len(task(story, name).allocation.slots) for name in ("gpt", "bert")] == [3, 1]
    quota = ev.Planning(quotas=(ev.Quota(tenant="lab", max_devices=1),))
    story.decide_input(ev.ClusterConfigured(planning=quota, by="anna", digest=""))
    made = story.settle()
    assert of(made, ev.PlanRequested).reason == "anna has configured the cluster"
    decided = of(made, ev.PlanDecided)
    assert decided.reason == (
        "bert grows from 1 to 3 devices, 2 from gpt; gpt shrinks from 3 to 1 device"
    )


def test_an_answer_is_stale_once_a_node_has_joined():
    story = asking()
    story.join("n2")
    story.settle()
    assert story.state.plan.request
    story.answer()
    made = story.settle()
    assert kinds(made) == ["PlanDropped", "PlanRequested"]
    assert story.state.plan.failures == 0  # nobody's fault
    story.answer()
    story.settle()
    assert len(members(story)) == 4


def test_an_answer_waits_for_a_transition_and_is_checked_again():
    story = running()
    story.solve = lambda: None
    story.join("n3")
    story.settle()
    request = story.state.plan.request
    assert request
    hold(story, "ready", "n1/0")
    story.exit("n2/1")
    story.settle()
    Unsolved.answer(story)
    assert decide(story.state) is None
    story.held.clear()
    story.ready_all(story.log[task(story).order - 1].envelope.body)
    made = story.settle()
    assert {"PlanDecided", "PlanDropped"} & set(kinds(made))


# --- Several tasks ------------------------------------------------------------------------------

OTHER = msgspec.structs.replace(SPEC, task=ev.TaskId("bert"))


def test_two_tasks_share_the_devices():
    story = running()
    story.submit(OTHER)
    story.settle()
    assert {task(story).phase, task(story, "bert").phase} == {"running"}
    assert not set(members(story)) & set(members(story, "bert"))
    assert len(members(story)) + len(members(story, "bert")) == 4


def test_a_task_that_ends_leaves_its_devices_to_the_other():
    story = running()
    story.submit(OTHER)
    story.settle()
    story.decide_input(ev.TaskFailed(task="gpt", reason="cancelled"))
    story.settle()
    assert len(members(story, "bert")) == 4


def test_a_plan_may_park_a_task_that_should_run():
    """Two tasks, one device: the plan says so by its allocations, and passes the check."""
    story = Story()
    story.join("n1", devices=1)
    story.submit()
    story.submit(OTHER)
    story.settle()
    assert sorted([task(story).phase, task(story, "bert").phase]) == ["idle", "running"]
    assert decide(story.state) is None


def test_a_task_that_trains_is_parked_for_a_weightier_one():
    """Its generation is closed, its workers go, the other one gets the devices."""
    story = Story()
    story.join("n1", devices=1)
    story.submit(replace(SPEC, min_devices=0))
    story.settle()
    story.submit(replace(OTHER, weight_milli=100_000, max_devices=1))
    made = story.settle()
    assert "the plan parks the task" in of(made, ev.GenerationClosed).reason
    assert (task(story).phase, task(story).closes) == ("closed", 0)
    assert task(story, "bert").phase == "running"
    assert not story.state.incidents
    story.join("n2", devices=1)
    story.settle()
    assert task(story).phase == "running"


def test_a_parked_task_keeps_its_workers_while_nobody_needs_the_devices():
    """They hold its state."""
    story = running()
    allocate(story, "gpt", [])
    story.settle()
    assert task(story).phase == "closed"
    assert {w.status for w in story.state.workers.values()} == {"member"}
    story.join("n3")
    made = story.settle()
    assert not [b for b in made if isinstance(b, ev.TransitionOrdered) and "initial" in b.reason]
    assert len(members(story)) >= 4


def test_a_task_is_moved_as_a_whole():
    """Nobody stays: rank 0 does until the others have the state, then it leaves."""
    story = running()
    story.join("n3")
    story.join("n4")
    story.settle()
    allocate(story, "gpt", ["n3/0", "n3/1"])
    story.settle()
    assert set(members(story)) == {"n3/0", "n3/1"}
    state = with_task(story.state, task(story))
    assert state.workers["n1/0"].status == "exited"
    allocate(story, "gpt", ["n4/0"])
    made = story.settle()
    orders = [b for b in made if isinstance(b, ev.TransitionOrdered)]
    assert [len(o.members) for o in orders] == [2, 1]
    assert all(o.planned for o in orders)
    assert members(story) == ["n4/0"]
    assert not is_open(story)


def test_who_was_left_out_but_is_wanted_again_holds_the_state_for_all():
    """The members die before it has rejoined: an older state is better than none."""
    story = running()
    allocate(story, "gpt", ["n1/0", "n1/1", "n2/0"])
    while task(story).generation < 2 or task(story).phase != "running":
        story.react(story.step())
    allocate(story, "gpt", ["n1/0", "n1/1", "n2/0", "n2/1"])
    assert story.state.workers["n2/1"].status == "prepared"
    for name in ("n1/0", "n1/1", "n2/0"):
        story.exit(name)
    made = story.settle()
    orders = [b for b in made if isinstance(b, ev.TransitionOrdered)]
    assert [m.worker for m in orders[0].members] == ["n2/1"]
    assert not any("initial state" in o.reason for o in orders)
    assert len(members(story)) == 4


def test_two_tasks_exchange_devices():
    """Each leaves before it waits for the other's."""
    story = running()
    story.submit(OTHER)
    story.settle()
    allocate(story, "gpt", ["n1/0", "n2/0"])
    allocate(story, "bert", ["n1/1", "n2/1"])
    story.settle()
    allocate(story, "gpt", ["n1/0", "n2/1"])
    allocate(story, "bert", ["n1/1", "n2/0"])
    story.settle()
    assert set(members(story)) == {"n1/0", "n2/1"}
    assert set(members(story, "bert")) == {"n1/1", "n2/0"}


def test_a_task_that_cannot_be_planned_for_is_refused_and_hinders_nobody():
    story = running()
    bad = replace(SPEC, task=ev.TaskId("bad"), micro_batches=0)
    worse = replace(SPEC, task=ev.TaskId("worse"), max_devices=2**40)
    sideways = replace(SPEC, task=ev.TaskId("sideways"), tensor_parallel=2)
    for spec in (bad, worse, sideways):
        story.submit(spec)
        assert kinds(story.settle())[0] == "TaskFailed"
    assert "micro_batches is 0" in task(story, "bad").outcome
    assert "max_devices" in task(story, "worse").outcome
    assert "parallel" in task(story, "sideways").outcome
    assert task(story).phase == "running"


def test_an_agent_that_claims_too_much_is_not_believed():
    story = Story()
    story.join("n1", devices=10**12)
    story.submit()
    story.settle()
    assert task(story).phase == "running"


def test_an_incident_waits_for_the_plan_that_its_node_calls_for():
    story = running()
    story.solve = lambda: None
    sicken(story, "n2")
    story.settle()
    assert story.state.plan.request
    assert is_open(story)
    Unsolved.answer(story)
    story.settle()
    assert not is_open(story)
