"""Transitions are tables, and every event has its fold step."""

from typing import get_args

import msgspec
import pytest

from tests.core.reading import task
from tests.core.story import running
from unicron import events as ev
from unicron.controlplane.core import fold as folding
from unicron.controlplane.core import tables
from unicron.controlplane.core.change import to_phase, to_status
from unicron.controlplane.core.fold_node import to_node

TABLES = {"node": tables.NODE, "worker": tables.WORKER, "task": tables.TASK}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_status_leads_to_statuses_of_the_table_only(table):
    assert {new for row in table.values() for new in row} <= set(table)


@pytest.mark.parametrize(
    "table,old,new",
    [
        (table, old, new)
        for table in TABLES.values()
        for old in table
        for new in table
        if new != old and new not in table[old]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_illegal_transition_raises(table, old, new):
    with pytest.raises(tables.IllegalTransition, match=f"{old} -> {new}"):
        tables.step(table, old, new)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_staying_is_always_legal(table):
    assert all(tables.step(table, status, status) == status for status in table)


def test_the_steps_on_the_state_use_the_tables():
    story = running()
    node, worker = story.state.nodes["n1"], story.state.workers["n1/0"]
    ended = to_phase(task(story), "completed", story.state.seq)
    with pytest.raises(tables.IllegalTransition):
        to_phase(ended, "running", story.state.seq)
    with pytest.raises(tables.IllegalTransition):
        to_status(worker, "ordered")
    with pytest.raises(tables.IllegalTransition):
        to_node(node, "joining", story.state.seq)


def test_ended_and_alive_are_of_the_tables():
    assert set(tables.TASK) > tables.ENDED
    assert {s for s, row in tables.TASK.items() if not row} == tables.ENDED
    assert set(tables.WORKER) > tables.ALIVE
    # Only from where no process is left a new life of the slot begins.
    assert {s for s, row in tables.WORKER.items() if "ordered" in row} == (
        set(tables.WORKER) - tables.ALIVE | {"failed"}
    )


def test_an_impossible_decision_is_void_and_leaves_the_state_alone():
    """An IllegalTransition inside the fold: a stop order for a worker that exited meanwhile."""
    story = running()
    worker = story.state.workers["n2/1"]
    story.exit("n2/1")
    before = story.state
    story.decide_input(
        ev.WorkerStopOrdered(
            task=worker.task,
            worker=worker.worker,
            incarnation=worker.incarnation,
            node=worker.node,
            grace_ms=0,
            reason="test",
        )
    )
    after = story.state
    assert after.void == before.void + 1
    assert (
        msgspec.structs.replace(after, seq=before.seq, void=before.void, sources=before.sources)
        == before
    )


def test_every_decision_has_a_fold_step():
    special = {ev.LeadershipTaken, ev.IncidentResolved, ev.AlarmRaised}
    decisions = {kind for kind in get_args(ev.AnyEvent) if issubclass(kind, ev.Decision)}
    assert set(folding.HANDLERS) | special == decisions
    assert not set(folding.HANDLERS) & special


def test_every_fact_has_a_fold_step():
    special = {
        ev.AgentStarted,
        ev.AgentStopped,
        ev.StoreBound,
        ev.ConnectionOpened,
        ev.ConnectionClosed,
        ev.FactsDropped,  # it says what is missing; there is nothing to do about it
    }
    facts = {kind for kind in get_args(ev.AnyEvent) if issubclass(kind, ev.Fact)}
    assert set(folding.WORKER_FACTS) | special == facts
    assert set(folding.WORKER_FACTS) == set(get_args(folding.WorkerFact))


#: As the paper has them: the node is sick; the process must go; all try again in place.
SEVERITIES = {
    1: ("cuda.ecc", "cuda.nvlink", "cuda.invalid_dma_mapping", "cuda.driver"),
    2: (
        "cuda.illegal_memory_access",
        "cuda.error",
        "out_of_memory",
        "software",
        "loss.not_finite",
    ),
    3: (
        "network.connection_refused",
        "network.connection_reset",
        "network.error",
        "nccl.timeout",
        "link.flapping",
    ),
}


@pytest.mark.parametrize("severity", SEVERITIES)
def test_severities(severity):
    assert {kind for kind, s in tables.SEVERITY.items() if s == severity} == {*SEVERITIES[severity]}
    assert {tables.severity_of(kind) for kind in SEVERITIES[severity]} == {severity}


def leads_to(table, status):
    """Statuses from which that one can be reached at once."""
    return {old for old, row in table.items() if status in row}


def test_a_process_can_end_whatever_it_was_doing():
    """Else a fact about its end would be dropped, and its slot would never be free again."""
    assert leads_to(tables.WORKER, "exited") == tables.ALIVE
    assert leads_to(tables.WORKER, "lost") == tables.ALIVE
    assert leads_to(tables.WORKER, "stopping") == tables.ALIVE - {"stopping"}
    assert leads_to(tables.WORKER, "failed") == tables.ALIVE - {"stopping", "failed"}


def test_a_worker_gets_to_train_step_by_step():
    assert leads_to(tables.WORKER, "started") == {"ordered"}
    assert leads_to(tables.WORKER, "prepared") == {"ordered", "started", "member"}
    assert leads_to(tables.WORKER, "member") == {"prepared"}


def test_a_node_can_be_lost_isolated_and_come_back_whatever_it_was_doing():
    every = set(tables.NODE)
    assert leads_to(tables.NODE, "isolated") == every - {"isolated"}
    assert leads_to(tables.NODE, "lost") == every - {"isolated", "lost"}
    assert leads_to(tables.NODE, "returning") == every - {"joining", "returning"}
    assert leads_to(tables.NODE, "healthy") == {"joining", "returning", "suspected"}
    assert leads_to(tables.NODE, "suspected") == {"healthy"}
    assert leads_to(tables.NODE, "joining") == set()


def test_a_task_can_end_whatever_it_was_doing():
    going = set(tables.TASK) - tables.ENDED
    assert leads_to(tables.TASK, "completed") == leads_to(tables.TASK, "failed") == going
    assert leads_to(tables.TASK, "ordered") == {"idle", "closed", "running"}
    assert leads_to(tables.TASK, "running") == {"ordered"}
    assert leads_to(tables.TASK, "closed") == {"ordered", "running"}


def test_an_unknown_error_starts_at_sev2():
    assert tables.severity_of("never heard of") == 2
    assert set(tables.SEVERITY.values()) == {1, 2, 3}
