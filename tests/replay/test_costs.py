"""What incidents cost: by hand on small histories, and that the parts add up on long ones."""

import itertools

import pytest
from msgspec import structs

from tests.replay.histories import Restless, killed, night, powered_off
from tests.replay.record import HISTORIES
from tests.replay.simulated import SEEDS, incident_of, night_of
from unicron.controlplane.replay import IncidentBook
from unicron.controlplane.replay.costs import Episode, costs_of
from unicron.controlplane.replay.headline import cost_words
from unicron.controlplane.replay.summary import (
    LOG_END,
    TASK_ENDED,
    WHOLE,
    TaskCost,
    counted_longest,
)
from unicron.controlplane.replay.throughput import Pace
from unicron.events import MemberQuiesced, TaskId, read_history

MS = 1_000_000


def pace(at_ms, seq, devices, *, ended=False):
    """A device does 10 GFLOP/s."""
    return Pace(
        at_ns=at_ms * MS,
        seq=seq,
        gflops=10 * devices,
        devices=devices,
        generation=1,
        ended=ended,
    )


def episode(name, first_seq, began_ms, over_ms=None, **more):
    over = None if over_ms is None else over_ms * MS
    return Episode(
        incident=name, task="t", first_seq=first_seq, began_ns=began_ms * MS, over_ns=over, **more
    )


def test_a_stall_and_a_smaller_generation_until_all_is_back():
    paces = [pace(0, 1, 4), pace(1000, 10, 0), pace(3000, 12, 3), pace(8000, 20, 4)]
    (cost,) = costs_of(paces, [episode("a", 10, 1000, 8000)], 99_000 * MS)
    assert (cost.stall_ms, cost.until) == (2000, WHOLE)
    assert cost.lost_flop == (40 * 2000 + 10 * 5000) * MS
    assert cost.lost_device_ms == 4 * 2000 + 1 * 5000
    assert (cost.gflops_before, cost.devices_before) == (40, 4)
    assert (cost.from_ns, cost.to_ns) == (1000 * MS, 8000 * MS)


def test_the_count_goes_on_after_the_resolution_until_the_task_is_whole():
    paces = [pace(0, 1, 4), pace(1000, 10, 0), pace(2000, 12, 2), pace(9000, 20, 4)]
    (cost,) = costs_of(paces, [episode("a", 10, 1000, 2500)], 99_000 * MS)
    assert (cost.to_ns, cost.until) == (9000 * MS, WHOLE)
    assert cost.lost_device_ms == 4 * 1000 + 2 * 7000


def test_the_count_ends_with_the_log_or_with_the_task():
    paces = [pace(0, 1, 4), pace(1000, 10, 0), pace(2000, 12, 2)]
    (cost,) = costs_of(paces, [episode("a", 10, 1000, 2500)], 5000 * MS)
    assert (cost.to_ns, cost.until) == (5000 * MS, LOG_END)
    (cost,) = costs_of(paces, [episode("a", 10, 1000)], 5000 * MS)
    assert (cost.to_ns, cost.until) == (5000 * MS, LOG_END)
    over = [*paces, pace(4000, 30, 0, ended=True)]
    (cost,) = costs_of(over, [episode("a", 10, 1000, 2500)], 5000 * MS)
    assert (cost.to_ns, cost.until, cost.stall_ms) == (4000 * MS, TASK_ENDED, 1000)


def test_two_incidents_bear_a_part_each():
    """The second finds two devices of four: what is missing of those is its own."""
    paces = [
        *(pace(0, 1, 4), pace(1000, 10, 0), pace(2000, 12, 2)),
        *(pace(5000, 20, 0), pace(6000, 22, 1), pace(9000, 30, 4)),
    ]
    both = [episode("a", 10, 1000, 2500), episode("b", 20, 5000, 6500)]
    first, second = costs_of(paces, both, 99_000 * MS)
    assert first.lost_device_ms == 4 * 1000 + 2 * 7000
    assert second.lost_device_ms == 2 * 1000 + 1 * 3000
    assert (first.stall_ms, second.stall_ms) == (1000, 1000)
    assert (second.gflops_before, second.devices_before) == (20, 2)


def test_a_task_that_a_plan_makes_smaller_pays_from_when_it_is():
    paces = [pace(0, 1, 4), pace(3000, 20, 2), pace(7000, 30, 4)]
    (cost,) = costs_of(paces, [episode("a", 10, 1000, 2000, planned=True)], 99_000 * MS)
    assert (cost.lost_device_ms, cost.stall_ms, cost.until) == (2 * 4000, 0, WHOLE)
    (cost,) = costs_of(paces[:1], [episode("a", 10, 1000, 2000, planned=True)], 99_000 * MS)
    assert (cost.lost_flop, cost.to_ns, cost.until) == (0, 2000 * MS, WHOLE)


def test_who_stands_still_already_was_not_stopped_by_the_plan_that_makes_it_smaller():
    paces = [pace(0, 1, 4), pace(1000, 10, 0), pace(3000, 20, 1), pace(9000, 30, 4)]
    own = episode("a", 10, 1000, 4000)
    hit, planned = costs_of(paces, [own, episode("b", 15, 2000, 4000, planned=True)], 99_000 * MS)
    assert (hit.stall_ms, planned.stall_ms) == (2000, 0)
    assert (hit.lost_device_ms, planned.lost_device_ms) == (4 * 2000 + 3 * 6000, 0)


def test_a_task_that_never_trained_loses_no_throughput():
    (cost,) = costs_of([pace(0, 1, 0), pace(4000, 9, 4)], [episode("a", 5, 1000, 4000)], 5000 * MS)
    assert (cost.lost_flop, cost.lost_device_ms, cost.stall_ms) == (0, 0, 3000)


def test_a_killed_worker_by_hand():
    """It died with the 4 devices at T+0; 3 committed first, then 4."""
    book = IncidentBook(killed().log)
    (incident,) = book.incidents()
    story = book.story(incident.id)
    commits = [e.t_plus_ms for e in story.events if e.type == "member.committed.v1"]
    (curve,) = story.throughput
    four, none, three, again = curve.points
    assert [p.devices for p in curve.points] == [4, 0, 3, 4]
    assert [none.t_plus_ms, three.t_plus_ms, again.t_plus_ms] == [0, commits[0], commits[3]]
    assert 0 < three.gflops < four.gflops == again.gflops
    lost = four.gflops * commits[0] + (four.gflops - three.gflops) * (commits[3] - commits[0])
    assert incident.lost_flop == lost * MS
    assert incident.lost_device_ms == 4 * commits[0] + (commits[3] - commits[0])
    assert (incident.stall_ms, incident.cost_until) == (commits[0], WHOLE)


def test_a_lost_node_is_counted_to_the_end_of_the_log_or_until_another_one_comes():
    (incident,) = IncidentBook(powered_off().log).incidents()
    assert incident.cost_until == LOG_END
    assert incident.costs[0].to_ns == powered_off().log[-1].at_ns
    second = IncidentBook(night().log).incidents()[1]
    assert second.cost_until == WHOLE
    assert second.costs[0].to_ns > night().log[second.resolved_seq - 1].at_ns


def test_two_tasks_that_lose_a_node_and_then_trade():
    """A recorded run: each stood still to its own first iteration, and for its own incident; what
    the other's plan took from it is only what it still had."""
    book = IncidentBook(read_history(HISTORIES / "logic5-fold4-demo-trade.ndjson").events)
    light, gpt = book.incidents()
    assert (light.tasks, gpt.tasks) == (("light",), ("gpt", "light"))
    for incident in (light, gpt):
        story = book.story(incident.id)
        commits = [e for e in story.events if e.type == "member.committed.v1"]
        assert incident.stall_ms == commits[0].t_plus_ms
        stopped = {told.iteration for told in quiesced(book, incident.task)}
        assert story.tasks[0].before.iteration == max(stopped)
    assert (light.cost_until, gpt.cost_until) == (TASK_ENDED, WHOLE)
    donor = book.story(gpt.id)
    assert "light was made smaller by plan #104: 2 -> 1 device." in donor.headline
    assert donor.headline[3].endswith("until it had what it had before.")
    stopped = {told.iteration for told in quiesced(book, "light")}
    assert donor.tasks[1].before.iteration == max(stopped)


def quiesced(book, task):
    bodies = (r.envelope.body for r in book._reading.log)
    return [b for b in bodies if isinstance(b, MemberQuiesced) and b.task == task]


def test_the_words_name_the_task_whose_loss_lasts_longest():
    """If more than one lost something."""
    own = TaskCost(
        task=TaskId("gpt"),
        from_ns=0,
        to_ns=5000 * MS,
        until=WHOLE,
        gflops_before=40,
        devices_before=4,
        stall_ms=100,
        lost_flop=4_000_000_000,
        lost_device_ms=400,
    )
    incident = IncidentBook(killed().log).incidents()[0]

    def words(*costs):
        longest = counted_longest(costs)
        return cost_words(structs.replace(incident, costs=costs, cost_until=longest.until))

    for until, alone, both in (
        (WHOLE, "until it had what", "until light had what"),
        (TASK_ENDED, "until the task ended", "until light ended"),
        (LOG_END, "of the log, still short", "of the log, light still short"),
    ):
        other = structs.replace(own, task=TaskId("light"), to_ns=9000 * MS, until=until)
        assert alone in words(structs.replace(own, until=until))
        assert both in words(own, other)
        nothing = structs.replace(other, lost_flop=0, lost_device_ms=0)
        assert "until it had what" in words(own, nothing)
    sooner = structs.replace(other, to_ns=1000 * MS)
    assert counted_longest([own, sooner]) == sooner
    assert counted_longest([]) is None


def test_a_hang_counts_from_the_last_progress():
    (incident,) = incident_of("at 5 s, n2/0 hangs").incidents()
    before = (incident.first_evidence_at_ns - incident.began_at_ns) // MS
    assert before >= 1000
    assert incident.detect_ms >= before
    assert incident.stall_ms > before
    assert incident.duration_ms > incident.stall_ms


def test_a_peers_report_before_the_cause_is_known_is_not_when_it_began():
    """The node's connections closed first; a survivor noticed before the loss was confirmed."""
    story = Restless(0)
    story.disturbances = 0
    for n in (1, 2, 3):
        story.join(f"n{n}")
    story.settle()
    story.submit()
    story.settle()
    story.cut("n2")
    story.peer_error("n1/0")
    story.step()
    story.stay_closed("n2")
    story.settle()
    told = IncidentBook(story.log)
    (incident,) = told.incidents()
    events = told.story(incident.id).events
    assert [e.type for e in events][:4] == ["connection.closed.v1"] * 3 + ["worker.peer_error.v1"]
    assert incident.severity == 1
    commit = next(e.t_plus_ms for e in events if e.type == "member.committed.v1")
    assert incident.stall_ms == commit


def test_a_silent_node_counts_from_its_last_word_and_its_workers_from_their_end():
    """The agent died alone: its worker trained on until the node was given up."""
    (incident,) = incident_of("at 5 s, the agent of n2 is killed for 8 s").incidents()
    assert incident.detect_ms > 2500
    assert incident.stall_ms < 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_what_incidents_cost_a_task_adds_up_to_what_it_lost(seed):
    """At any time a task lacks what it has less than the most that an incident which isn't mended
    found."""
    book = night_of(seed)
    costs = [c for i in book.incidents() for c in i.costs]
    assert sum(c.lost_flop > 0 for c in costs) >= 2
    paces = book._reading.throughput.paces
    for task in {c.task for c in costs}:
        mine = [c for c in costs if c.task == task]
        edges = {c.from_ns for c in mine} | {c.to_ns for c in mine}
        edges |= {p.at_ns for p in paces[task]}
        lost = lost_device_ns = 0
        for start, end in itertools.pairwise(sorted(edges)):
            active = [c for c in mine if c.from_ns <= start and end <= c.to_ns]
            now = [p for p in paces[task] if p.at_ns <= start]
            gflops, devices = (now[-1].gflops, now[-1].devices) if now else (0, 0)
            most = max((c.gflops_before for c in active), default=0)
            lost += max(0, most - gflops) * (end - start)
            most = max((c.devices_before for c in active), default=0)
            lost_device_ns += max(0, most - devices) * (end - start)
        assert sum(c.lost_flop for c in mine) == lost
        rounded = sum(c.lost_device_ms for c in mine)
        assert 0 <= lost_device_ns // MS - rounded <= len(mine)


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_are_within_their_bounds(seed):
    for incident in night_of(seed).incidents():
        assert incident.lost_flop == (
            sum(c.lost_flop for c in incident.costs) if incident.costs else None
        )
        for cost in incident.costs:
            took_ns = cost.to_ns - cost.from_ns
            assert 0 <= cost.lost_flop <= cost.gflops_before * took_ns
            assert 0 <= cost.stall_ms <= took_ns // MS
