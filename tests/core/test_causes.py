"""Every decision names the events that led to it, and the incident it belongs to: the audit's
chain from the first evidence to the last step has no missing link."""

import pytest

from tests.core.reading import hold, limit
from tests.core.story import Story, running
from tests.core.test_end import ALL, finish
from tests.core.test_limits import new_leader
from tests.core.test_node_loss import raised, suspect
from tests.core.test_opinions import stall
from tests.core.test_plan import Unsolved, allocate
from tests.core.test_worker_loss import peer_error
from unicron import events as ev


def links(story, since=0):
    """ "Decision <- causes" of each decision after that sequence, and whose incident it is."""
    found, incidents = [], []
    for recorded in story.log[since:]:
        envelope = recorded.envelope
        if envelope.basis is not None:
            causes = [type(story.log[seq - 1].envelope.body).__name__ for seq in envelope.cause]
            found.append(f"{type(envelope.body).__name__} <- {' '.join(causes)}")
            incidents.append(envelope.incident)
    return found, incidents


def test_a_task_that_starts():
    story = Story()
    story.join("n1")
    story.submit()
    story.settle()
    found, incidents = links(story)
    assert found == [
        "NodeAdmitted <- AgentStarted",
        "PlanRequested <- NodeAdmitted",
        "PlanDecided <- PlanRequested PlanSolved",
        "WorkerStartOrdered <- PlanDecided",
        "WorkerStartOrdered <- PlanDecided",
        "TransitionOrdered <- PlanDecided",
        "TransitionCompleted <- TransitionOrdered",
    ]
    assert set(incidents) == {None}


def test_a_worker_that_dies():
    story = running()
    since = len(story.log)
    story.exit("n2/1")
    story.settle()
    found, incidents = links(story, since)
    assert found == [
        "IncidentOpened <- WorkerExited",
        "GenerationClosed <- WorkerExited",
        "TransitionOrdered <- GenerationClosed MemberQuiesced MemberQuiesced MemberQuiesced",
        "TransitionCompleted <- TransitionOrdered",
        "WorkerStartOrdered <- PlanDecided",
        "TransitionOrdered <- PlanDecided",
        "TransitionCompleted <- TransitionOrdered",
        "IncidentResolved <- TransitionCompleted",
    ]
    assert incidents == [f"inc-{since + 1}-gpt"] * 8


def test_a_node_that_falls_silent():
    story = running(nodes=3)
    since = len(story.log)
    suspect(story, "n3")
    limit(story, "confirm:n3")
    story.settle()
    found, incidents = links(story, since)
    assert found == [
        "NodeLost <- NodeSuspected",
        "IncidentOpened <- NodeLost",
        "GenerationClosed <- NodeLost",
        "NodeIsolated <- NodeLost",
        "PlanDecided <- NodeIsolated",
        "TransitionOrdered <- GenerationClosed" + " MemberQuiesced" * 4,
        "TransitionCompleted <- TransitionOrdered",
        "PlanRequested <- NodeIsolated",
        "PlanDecided <- PlanRequested PlanSolved",
        "IncidentResolved <- TransitionCompleted",
    ]
    assert incidents == [None] + [f"inc-{since + 3}-gpt"] * 9


def test_a_node_that_is_lost_within_an_incident():
    """Its loss is part of the incident that its worker's end has opened."""
    story = running()
    since = len(story.log)
    story.exit("n2/0")
    hold(story, "quiesce", "n1/0")
    story.settle()
    story.lose("n2")
    story.settle()
    found, incidents = links(story, since)
    assert "NodeLost <- DeadlinePassed" in found
    assert "IncidentEscalated <- NodeLost" in found
    assert set(incidents) == {f"inc-{since + 1}-gpt"}


def test_a_sick_device():
    story = running()
    since = len(story.log)
    raised(story, "n2/0", "cuda.ecc")
    story.settle()
    found, incidents = links(story, since)
    assert "NodeIsolated <- ExceptionReported" in found
    assert "WorkerStopOrdered <- GenerationClosed" in found  # the fence
    assert set(incidents) == {f"inc-{since + 1}-gpt"}


def test_a_symptom_and_its_cause():
    story = running()
    since = len(story.log)
    peer_error(story, "n1/0", 1)
    story.step()
    story.exit("n2/1")
    story.settle()
    found, incidents = links(story, since)
    assert found[:3] == [
        "IncidentOpened <- PeerErrorReported",
        "IncidentEscalated <- WorkerExited",
        "GenerationClosed <- PeerErrorReported",
    ]
    assert set(incidents) == {f"inc-{since + 1}-gpt"}


def test_a_hang():
    story = running()
    since = len(story.log)
    stall(story, "n2/1")
    story.settle()
    found, incidents = links(story, since)
    assert found[:3] == [
        "IncidentOpened <- TaskStalled",
        "GenerationClosed <- TaskStalled",
        "WorkerStopOrdered <- GenerationClosed",
    ]
    assert set(incidents) == {f"inc-{since + 1}-gpt"}


def test_an_order_that_is_not_carried_out():
    story = running()
    hold(story, "ready", "n1/0")
    story.exit("n2/1")
    story.settle()
    since = len(story.log)
    limit(story, "ready:gpt:2")
    story.settle()
    found, _ = links(story, since)
    assert found[0] == "GenerationClosed <- TransitionOrdered"


def test_a_plan_that_parks_a_task():
    story = running()
    since = len(story.log)
    allocate(story, "gpt", [])
    story.settle()
    found, incidents = links(story, since)
    assert found[0] == "GenerationClosed <- PlanDecided"
    assert set(incidents) == {None}


def test_an_answer_that_is_dropped():
    story = Unsolved()
    story.join("n1")
    story.submit()
    story.settle()
    since = len(story.log)
    story.answer(error="crashed")
    story.settle()
    found, _ = links(story, since)
    assert found == ["PlanDropped <- PlanRequested PlanSolved", "PlanRequested <- NodeAdmitted"]


@pytest.mark.parametrize("digest,decided", [("d", "TaskCompleted"), ("other", "TaskFailed")])
def test_a_task_that_ends(digest, decided):
    story = running()
    since = len(story.log)
    for name in ALL:
        finish(story, name, digest="d" if name != "n2/1" else digest)
    story.settle()
    found, _ = links(story, since)
    assert found == [
        f"{decided} <- TransitionCompleted",
        *[f"WorkerStopOrdered <- {decided}"] * 4,
    ]


def test_orders_that_a_new_leader_says_again():
    story = running()
    hold(story, "start", "n1/1")
    hold(story, "stop", "n2/0")
    story.exit("n1/1")
    raised(story, "n2/0", "software")
    story.settle()
    new_leader(story)
    since = len(story.log)
    story.settle()
    found, incidents = links(story, since)
    assert found == [
        "WorkerStartOrdered <- WorkerStartOrdered",
        "WorkerStopOrdered <- WorkerStopOrdered",
    ]
    assert set(incidents) == set(story.state.incidents)
    assert ev.IncidentOpened in {type(r.envelope.body) for r in story.log}
