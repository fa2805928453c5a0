"""What is kept of a log gives the same traces as the whole, if it reaches back far enough."""

import pytest

from tests.replay.histories import night
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.replay.casefile import case_of, cases_of
from unicron.controlplane.replay.measures import measures_of, waf_best, waf_now
from unicron.controlplane.replay.spans import spans_of
from unicron.controlplane.replay.window import LogPart, LogWindow
from unicron.controlplane.testing import seeds, simulation


def followed(log, keep):
    """(window, state) after each entry, as whoever follows the log has them."""
    window, state = LogWindow(keep), ClusterState()
    for recorded in log:
        before, state = state, fold(state, recorded)
        window.add(
            recorded,
            void=state.void > before.void,
            twice=state.duplicates > before.duplicates,
        )
        yield window, before, state


@pytest.mark.parametrize("seed", [2, 5])
def test_a_follower_makes_the_traces_that_the_whole_log_gives(seed):
    log = simulation.run(seeds.options_of(seed)).log
    wanted = {c.incident.incident: c for c in cases_of(log)}
    seen = 0
    for window, before, state in followed(log, len(log)):
        for name, incident in state.incidents.items():
            if incident.resolved and not before.incidents[name].resolved:
                part, void, twice = window.part()
                named = [r for r in part if r.envelope and r.envelope.incident == name]
                case = case_of(part, incident, named, void=void, twice=twice)
                assert spans_of(case, cluster="c", birth="b") == spans_of(
                    wanted[name], cluster="c", birth="b"
                )
                seen += 1
    assert seen == sum(bool(c.incident.resolved) for c in wanted.values()) > 1


def test_a_window_forgets_what_is_old_and_keeps_its_place():
    log = night().log
    *_, (window, _, _) = followed(log, 10)
    part, _, _ = window.part()
    assert 10 <= len([*part]) < 20
    assert len(part) == len(log)
    assert part.first == len(log) - len([*part]) + 1
    assert part[len(log) - 1].seq == len(log)
    assert [r.seq for r in part[: part.first + 2]] == [part.first + i for i in range(3)]
    assert [r.seq for r in part[part.first : part.first + 2]] == [part.first + 1, part.first + 2]
    with pytest.raises(IndexError):
        part[part.first - 2]
    assert len(LogPart(1, ())) == 0


def test_what_an_incident_took_is_what_its_steps_took():
    killed, lost = cases_of(night().log)
    for case, severity, cause in (
        (killed, 2, "worker.exited.v1"),
        (lost, 1, "node.lost.v1"),
    ):
        told = measures_of(case)
        assert (told.severity, told.cause) == (severity, cause)
        (quiesce,), (detect,) = case.steps.named("quiesce"), case.steps.named("detect")
        resume = next(s for s in case.steps.named("resume") if s.transition == 1)
        assert told.down_ns == resume.start_ns - quiesce.start_ns > 0
        assert told.detect_ns == detect.duration_ns
        assert told.transitions[0] == (resume.end_ns - quiesce.start_ns, False)
        assert len(told.plans) == len(case.steps.named("plan"))


def test_the_waf_falls_with_a_failure_and_comes_back():
    story = night()
    whole = waf_now(story.states[-1])
    assert 0 < whole <= waf_best(story.states[-1])
    closed = [s for s in story.states if s.tasks and s.tasks["gpt"].phase == "closed"]
    assert closed
    assert {waf_now(s) for s in closed} == {0}
    assert waf_best(closed[0]) > 0
    assert waf_now(ClusterState()) == waf_best(ClusterState()) == 0
