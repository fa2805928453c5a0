"""Only workers of one software train together, also when nobody holds the training state yet."""

import pytest

from tests.core.reading import hold, incidents, is_open, members, of, release, task
from tests.core.story import SPEC, Story
from tests.core.test_node_loss import raised
from tests.core.test_plan import OTHER, allocate
from unicron import events as ev
from unicron.controlplane.core import limits
from unicron.controlplane.core.change import replace
from unicron.controlplane.core.decide import decide
from unicron.controlplane.core.invariants import rest_violations
from unicron.controlplane.core.supply import slot_workers


class Mixed(Story):
    """`versions`: what is installed on a node or for one worker; "2" elsewhere."""

    def __init__(self, **nodes: int) -> None:
        super().__init__()
        self.versions: dict[str, str] = {}
        for name, devices in nodes.items():
            self.join(name, devices=devices)
        self.settle()

    def prepare(self, body: ev.WorkerStartOrdered) -> None:
        common = {"task": body.task, "worker": body.worker, "incarnation": body.incarnation}
        agent = self.state.nodes[body.node]
        version = self.versions.get(body.worker, self.versions.get(body.node, "2"))
        self.fact(f"agent/{body.node}", agent.incarnation, ev.WorkerStarted(pid=1, **common))
        self.connect("worker", body.worker, body.incarnation)
        said = {"parameters": 1, "threads": 1, "megatron": "0", "spec_digest": "s"}
        fact = ev.WorkerPrepared(torch=version, **said, **common)
        self.fact(f"worker/{body.worker}", body.incarnation, fact)

    def begin(self, **versions: str) -> list[ev.Decision]:
        """Submit with these versions on nodes."""
        self.versions |= versions
        self.submit(replace(SPEC, max_devices=8))
        return self.settle()


def statuses(story, *names) -> list[str]:
    return [story.state.nodes[name].status for name in names]


def at_rest(story) -> bool:
    """Nothing is to be decided, no incident is open, and the task is what the plan says."""
    assert decide(story.state) is None
    assert rest_violations(story.state) == ()
    assert set(members(story)) == set(slot_workers(task(story)))
    return not is_open(story)


def prepared(story, name) -> ev.WorkerStartOrdered:
    worker = story.state.workers[name]
    return ev.WorkerStartOrdered(
        task=worker.task,
        worker=worker.worker,
        incarnation=worker.incarnation,
        node=worker.node,
        device=worker.device,
        spec=SPEC,
        reason="x",
    )


# --- Who trains -----------------------------------------------------------------------------------


def test_the_most_that_agree_start():
    story = Mixed(n1=1, n2=1, n3=1)
    made = story.begin(n1="3")
    order = of(made, ev.TransitionOrdered)
    assert [m.worker for m in order.members] == ["n2/0", "n3/0"]
    assert statuses(story, "n1", "n2", "n3") == ["isolated", "healthy", "healthy"]
    assert incidents(story) == [(1, "trains on 2 devices, generation 1")]
    assert at_rest(story)


def test_of_two_groups_as_large_the_one_with_the_lowest_name_starts():
    story = Mixed(n1=1, n2=1)
    story.begin(n2="3")
    assert members(story) == ["n1/0"]
    assert statuses(story, "n1", "n2") == ["healthy", "isolated"]
    assert at_rest(story)


def test_it_does_not_matter_who_is_ready_first():
    """The odd one is there long before the others."""
    story = Mixed(n1=1, n2=1, n3=1)
    late = ["n2/0", "n3/0"]
    hold(story, "start", *late)
    assert [b for b in story.begin(n1="3") if isinstance(b, ev.TransitionOrdered)] == []
    assert story.state.workers["n1/0"].status == "prepared"
    for name in late:
        story.prepare(prepared(story, name))
    story.settle()
    assert set(members(story)) == set(late)
    assert statuses(story, "n1") == ["isolated"]
    assert at_rest(story)


def test_nobody_is_refused_before_somebody_holds_the_state():
    """Whoever is chosen may still be lost: then the others can start."""
    story = Mixed(n1=1, n2=1)
    hold(story, "ready", "n1/0")
    story.begin(n2="3")
    assert [m.worker for m in task(story).target] == ["n1/0"]
    assert story.state.workers["n2/0"].status == "prepared"
    story.lose("n1")
    story.settle()
    assert members(story) == ["n2/0"]
    assert statuses(story, "n1", "n2") == ["isolated", "healthy"]
    assert at_rest(story)


def test_an_answer_that_tells_of_the_state_refuses_too():
    """It was broken off before anybody could say that he was ready."""
    story = Mixed(n1=1, n2=2)
    hold(story, "ready", "n2/0", "n2/1")
    hold(story, "quiesce", "n2/0")
    story.begin(n1="3")
    hold(story, "start", "n2/1")
    story.exit("n2/1")
    story.settle()
    assert story.state.workers["n1/0"].status == "prepared"
    release(story, "ready", "n2/0")
    story.quiesce("n2/0", iteration=0)
    assert story.state.workers["n1/0"].status == "failed"
    story.settle()
    assert members(story) == ["n2/0"]
    assert statuses(story, "n1") == ["isolated"]


def test_all_die_and_start_anew():
    """Meanwhile another version was installed on one of the nodes."""
    story = Mixed(n1=1, n2=1, n3=1)
    story.begin()
    assert len(members(story)) == 3
    story.versions["n1"] = "3"
    for name in members(story):
        story.exit(name)
    story.settle()
    assert set(members(story)) == {"n2/0", "n3/0"}
    assert task(story).generation == 2
    assert statuses(story, "n1") == ["isolated"]
    assert at_rest(story)


def test_the_odd_one_holds_the_state_alone():
    """Whoever comes can't join it, and each node is blamed once."""
    story = Mixed(n1=1)
    story.begin(n1="3")
    assert members(story) == ["n1/0"]
    for node in ("n2", "n3"):
        story.join(node, devices=1)
        story.settle()
    assert members(story) == ["n1/0"]
    assert statuses(story, "n1", "n2", "n3") == ["healthy", "isolated", "isolated"]
    assert len(incidents(story)) == 2
    assert at_rest(story)
    first = min(story.state.incidents.values(), key=lambda i: i.opened)
    assert first.what == (
        "n2/0 runs other software than n1/0 (s threads=1 2 0 against s threads=1 3 0): "
        "results would not be reproducible"
    )


def test_who_must_go_itself_refuses_nobody():
    """The only one that holds the state failed and is being ended; what it runs is mended."""
    story = Mixed(n1=1)
    story.begin(n1="3")
    story.join("n2", devices=1)
    hold(story, "start", "n2/0")
    hold(story, "stop", "n1/0")
    story.settle()
    raised(story, "n1/0", "software")
    story.settle()
    assert story.state.workers["n1/0"].status == "stopping"
    story.prepare(prepared(story, "n2/0"))
    assert story.state.workers["n2/0"].status == "prepared"
    del story.versions["n1"]
    story.exit("n1/0", ordered=True)
    story.settle()
    assert set(members(story)) == {"n1/0", "n2/0"}
    assert statuses(story, "n1", "n2") == ["healthy", "healthy"]
    assert at_rest(story)


# --- What becomes of the others -------------------------------------------------------------------


def test_on_the_only_node_the_odd_one_is_tried_again_and_then_its_device_is_given_up():
    story = Mixed(n1=3)
    story.versions["n1/1"] = "3"
    story.begin()
    assert set(members(story)) == {"n1/0", "n1/2"}
    assert statuses(story, "n1") == ["healthy"]
    assert story.state.nodes["n1"].given_up == (1,)
    assert story.state.workers["n1/1"].incarnation == limits.SAME_FAILURES_MAX
    assert incidents(story) == [(2, "trains on 2 devices, generation 1")]
    assert task(story).blame == ""
    assert at_rest(story)


def test_mended_in_time_the_odd_one_takes_part():
    story = Mixed(n1=2)
    story.versions["n1/1"] = "3"
    hold(story, "stop", "n1/1")
    story.begin()
    assert story.state.workers["n1/1"].status == "stopping"
    del story.versions["n1/1"]
    story.exit("n1/1", ordered=True)
    story.settle()
    assert set(members(story)) == {"n1/0", "n1/1"}
    assert at_rest(story)


def test_nodes_that_are_mixed_in_themselves_are_not_all_set_apart():
    story = Mixed(n1=2, n2=2)
    story.versions = {"n1/1": "3", "n2/1": "3"}
    story.begin()
    assert statuses(story, "n1", "n2") == ["isolated", "healthy"]
    assert members(story) == ["n2/0"]
    assert story.state.nodes["n2"].given_up == (1,)
    assert at_rest(story)


@pytest.mark.parametrize(
    "needs,status,given_up", [(1, "isolated", ()), (3, "healthy", (3,))], ids=["moves", "stays"]
)
def test_a_node_without_which_another_task_could_not_go_on_is_kept(needs, status, given_up):
    """The task that refuses could do without it."""
    story = Mixed(n1=4, n2=2)
    story.submit(replace(OTHER, min_devices=needs, max_devices=3))
    story.settle()
    allocate(story, "bert", ["n1/0", "n1/1", "n1/2"])
    story.settle()
    assert set(members(story, "bert")) == {"n1/0", "n1/1", "n1/2"}
    story.solve = lambda: None
    story.begin(n1="3")
    allocate(story, "gpt", ["n1/3", "n2/0", "n2/1"])
    story.settle()
    assert set(members(story)) == {"n2/0", "n2/1"}
    assert statuses(story, "n1") == [status]
    assert story.state.nodes["n1"].given_up == given_up
    severity = 1 if status == "isolated" else 2
    assert [i.severity for i in story.state.incidents.values() if i.task == "gpt"] == [severity]
