"""Two tasks trade a device, and the control plane dies at each of its effects meanwhile."""

import pytest

from unicron.controlplane.testing import scripted
from unicron.controlplane.testing.scenario import parse
from unicron.events import WorkerStartOrdered, WorkerStopOrdered

TRADE = """nodes n1 to n2 with 4 devices each
task gpt of 60 iterations, 12 micro-batches, at least 2 devices, at most 4 devices
task light of 40 iterations, 12 micro-batches, at most 4 devices, weight 25 percent
at 6 s, n2 loses power
after the 3rd PlanDecided, the control plane is killed at its {nth} effect for 0.4 s
until everything has ended within 120 s
expect gpt completed
expect light completed
expect 2 LeadershipTaken
expect 2 incidents
expect no TransitionOrdered saying "starts again"
expect 1 WorkerStopOrdered of n1/3 saying "gives it to gpt"
expect light on 1 device in generation 3
expect gpt on 3 devices in generation 3
"""
#: From the plan to the first commit of the task that grew; more than that many there aren't.
EFFECTS = range(1, 25)


def run(nth):
    ending = {1: "st", 2: "nd", 3: "rd"}.get(nth % 10 if nth not in (11, 12, 13) else 0, "th")
    return scripted.run(parse(TRADE.format(nth=f"{nth}{ending}"), "trade.txt"))


@pytest.mark.parametrize("nth", EFFECTS)
def test_the_control_plane_dies_in_the_trade(nth):
    report = run(nth)
    assert report.held, "\n".join(["", *report.wrong(), "", report.golden])


def test_they_are_all_effects_of_the_trade():
    """The first comes right after the plan, the last after the device has passed on."""
    first, last = (_order(run(EFFECTS[i])) for i in (0, -1))
    assert first.index("killed") < first.index("released")
    assert last.index("started") < last.index("killed")


def _order(report):
    told = []
    for recorded in report.outcome.log:
        match recorded.envelope.body:
            case WorkerStopOrdered(worker="n1/3"):
                told.append("released")
            case WorkerStartOrdered(worker="n1/3", task="gpt"):
                told.append("started")
            case _ if recorded.envelope.term > 1:
                told.append("killed")
            case _:
                pass
    return told
