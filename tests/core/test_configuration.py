"""What is configured for the whole cluster: what makes sense, and what a change of it leads to."""

import pytest

from tests.core.reading import kinds, of
from tests.core.story import Story, running
from unicron import events as ev
from unicron.controlplane.core.configuration import digest_of, fault_of
from unicron.controlplane.core.state import ClusterState

PLANNING = ev.Planning(
    quotas=(
        ev.Quota(tenant="lab", max_devices=8),
        ev.Quota(tenant="lab", max_devices=4, kind="h100"),
    ),
    devices=(ev.DeviceSpeed(kind="h100", gflops=410_000, link_bytes_per_s=40_000_000_000),),
    node_mtbf_ms=30 * 86_400_000,
    repair_ms=3_600_000,
    link_bytes_per_s=10_000_000_000,
)


def configured(planning, by="anna"):
    return ev.ClusterConfigured(planning=planning, by=by, digest=digest_of(planning))


def test_it_is_in_force_from_there_on_and_calls_for_a_plan():
    story = running()
    assert story.state.planning == ev.Planning()
    story.decide_input(configured(PLANNING))
    assert story.state.planning == PLANNING
    made = story.settle()
    assert kinds(made)[0] == "PlanRequested"
    assert of(made, ev.PlanRequested).reason == "anna has configured the cluster"


def test_what_says_nothing_new_is_void():
    story = running()
    story.decide_input(configured(PLANNING))
    story.settle()
    before = story.state
    story.decide_input(configured(PLANNING, by="ben"))
    assert story.state.void == before.void + 1
    assert story.settle() == []


def test_what_is_not_given_is_as_before_anything_was_configured():
    story = running()
    story.decide_input(configured(PLANNING))
    story.settle()
    story.decide_input(configured(ev.Planning(measured_step_times=False)))
    assert story.state.planning == ev.Planning(measured_step_times=False)


def test_an_answer_that_was_asked_for_before_is_not_taken_any_more():
    story = Story()
    story.join("n1")
    story.submit()
    while story.state.plan.request == 0:
        assert story.step() is not None
    story.solve()
    story.decide_input(configured(PLANNING))
    dropped = of(story.settle(), ev.PlanDropped)
    assert "anna has configured the cluster" in dropped.reason
    assert story.state.plan.wanted == 0  # and the next one was


NONSENSE = {
    "two quotas of one tenant": (
        {"quotas": (ev.Quota(tenant="a", max_devices=1), ev.Quota(tenant="a", max_devices=2))},
        "quotas tenant and kind",
    ),
    "a quota of nobody": ({"quotas": (ev.Quota(tenant="", max_devices=1),)}, "quotas[0].tenant"),
    "a quota of a tenant that no task can name": (
        {"quotas": (ev.Quota(tenant="x" * 65, max_devices=1),)},
        "at most 64 printable characters",
    ),
    "more than one event takes": (
        {"quotas": tuple(ev.Quota(tenant=f"{i:060}", max_devices=1) for i in range(6000))},
        "give fewer, up to 524288 bytes",
    ),
    "a negative quota": (
        {"quotas": (ev.Quota(tenant="a", max_devices=-1),)},
        "quotas[0].max_devices is -1",
    ),
    "a speed of nothing": ({"devices": (ev.DeviceSpeed(kind=""),)}, "devices[0].kind is empty"),
    "two speeds of one kind": (
        {"devices": (ev.DeviceSpeed(kind="b"), ev.DeviceSpeed(kind="b"))},
        "devices[1].kind is there twice",
    ),
    "a negative speed": (
        {"devices": (ev.DeviceSpeed(kind="b", gflops=-1),)},
        "devices[0].gflops is -1",
    ),
    "a speed beyond all": (
        {"devices": (ev.DeviceSpeed(kind="b", gflops=10_000_001),)},
        "from 1 to 10000000, or 0",
    ),
    "a link beyond all": (
        {"devices": (ev.DeviceSpeed(kind="b", link_bytes_per_s=2**50 + 1),)},
        "devices[0].link_bytes_per_s",
    ),
    "a link that moves nothing": ({"link_bytes_per_s": 999_999}, "from 1000000 to"),
    "nodes that never train": ({"node_mtbf_ms": 59_999}, "node_mtbf_ms is 59999"),
    "a fast link for state": ({"link_bytes_per_s": 2**50 + 1}, "link_bytes_per_s is"),
    "a negative link": ({"link_bytes_per_s": -1}, "link_bytes_per_s is -1"),
    "a negative time": ({"node_mtbf_ms": -5}, "node_mtbf_ms is -5"),
    "a repair without failures": ({"repair_ms": 5}, "repair_ms is 5, and node_mtbf_ms 0"),
    "longer away than there": (
        {"repair_ms": 60_000, "node_mtbf_ms": 60_000},
        "repair_ms is 60000",
    ),
}


@pytest.mark.parametrize("given,said", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_named_and_never_takes_effect(given, said):
    planning = ev.Planning(**given)
    assert said in fault_of(planning)
    story = running()
    before = story.state
    story.decide_input(configured(planning))
    assert story.state.planning == ClusterState().planning
    assert story.state.void == before.void + 1


def test_what_makes_sense_is_not_complained_about():
    assert fault_of(PLANNING) == ""
    assert fault_of(ev.Planning()) == ""
    edge = ev.DeviceSpeed(kind="b", gflops=10_000_000, link_bytes_per_s=2**50)
    assert fault_of(ev.Planning(devices=(edge,), link_bytes_per_s=2**50)) == ""
    assert fault_of(ev.Planning(link_bytes_per_s=10**6, node_mtbf_ms=60_000)) == ""


def test_the_digest_tells_two_configurations_apart():
    given = {name: getattr(PLANNING, name) for name in PLANNING.__struct_fields__}
    assert digest_of(PLANNING) == digest_of(ev.Planning(**given))
    assert digest_of(PLANNING) != digest_of(ev.Planning())
