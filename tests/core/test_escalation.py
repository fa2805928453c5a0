"""Evidence that overtakes the decision about an earlier piece waits, and raises the incident."""

import pytest

from tests.core.reading import incidents, kinds
from tests.core.story import running
from tests.core.test_node_loss import sicken
from tests.core.test_worker_loss import peer_error
from unicron import events as ev
from unicron.controlplane.core.decide import decide


def overtaken(story, *, by) -> ev.Decision:
    """The next decision, written after what happens `by` then."""
    at, verdict = story.state, decide(story.state)
    by(story)
    story.write(verdict, at)
    return verdict.body


def waiting(story) -> list[int]:
    """Severities of the evidence that no incident has taken in."""
    return [cause.severity for cause in story.state.causes]


def test_worse_evidence_than_the_incident_opens_with_is_not_taken_in_by_the_opening():
    story = running()
    peer_error(story, "n1/0", 1)
    assert type(overtaken(story, by=lambda s: sicken(s, "n2"))) is ev.IncidentOpened
    assert (incidents(story), waiting(story)) == ([(3, "")], [1])
    raised = story.step()
    assert (type(raised), raised.severity) == (ev.IncidentEscalated, 1)
    assert (incidents(story), waiting(story)) == ([(1, "")], [])


def test_worse_evidence_than_it_is_raised_to_is_not_taken_in_by_the_raising():
    story = running()
    peer_error(story, "n1/0", 1)
    story.step()
    story.exit("n2/1")
    raised = overtaken(story, by=lambda s: sicken(s, "n2"))
    assert (type(raised), raised.severity) == (ev.IncidentEscalated, 2)
    assert (incidents(story), waiting(story)) == ([(2, "")], [1])
    assert story.step().severity == 1
    assert waiting(story) == []
    (incident,) = story.state.incidents.values()
    assert len(incident.evidence) == 3


@pytest.mark.parametrize("first,then", [("exit", "peer"), ("peer", "exit")])
def test_evidence_that_is_no_worse_joins_what_overtook_it(first, then):
    """In whichever order the two are heard, one incident holds both at the higher severity."""
    story = running()
    tell = {"exit": lambda s: s.exit("n2/1"), "peer": lambda s: peer_error(s, "n1/0", 1)}
    tell[first](story)
    assert type(overtaken(story, by=tell[then])) is ev.IncidentOpened
    made = story.settle()
    assert ("IncidentEscalated" in kinds(made)) == (first == "peer")
    assert [severity for severity, _ in incidents(story)] == [2]
    (incident,) = story.state.incidents.values()
    assert len(incident.evidence) == 2
