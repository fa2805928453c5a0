"""What holds for every folded event, whatever it is about: order, repetition, terms, tables.

Each predicate is an invariant of its name; its docstring is the sentence for people. It yields
what is wrong, in words, and nothing otherwise.
"""

from collections.abc import Iterator
from typing import Final

from unicron.controlplane.core import tables
from unicron.controlplane.core.fold_node import LOST
from unicron.controlplane.core.state import NodeState
from unicron.controlplane.core.step import Step, parts_changed, took_effect, was_heard
from unicron.events import (
    DeadlinePassed,
    Decision,
    Fact,
    GenerationClosed,
    LeadershipTaken,
    NodeReturned,
    TransitionOrdered,
    WorkerStartOrdered,
    subjects,
)

_REPETITION_MOVES: Final = frozenset({"seq", "duplicates"})
_HEARING_MOVES: Final = frozenset({"seq", "sources", "gaps"})
_VOID_MOVES: Final = _HEARING_MOVES | {"void", "unknown", "unknown_decisions"}


def events_come_in_order(step: Step) -> Iterator[str]:
    """Every event moves the state on by one sequence, its own."""
    before, seq, after = step.before.seq, step.recorded.seq, step.after.seq
    if not before + 1 == seq == after:
        yield f"#{seq} was folded on a state at #{before} and gave one at #{after}"


def repeated_events_change_nothing(step: Step) -> Iterator[str]:
    """An event that was heard before changes nothing but the counter of duplicates."""
    counted = step.after.duplicates - step.before.duplicates
    envelope = step.envelope
    heard = envelope is not None and was_heard(step.before, envelope.source)
    if heard and not counted and not _in_wrong_tree(step):
        yield f"{step.recorded.id} was heard before and counts again"
    if counted and (not heard or counted != 1):
        yield f"{step.recorded.id} is dropped as a duplicate and was never heard"
    if counted and (changed := parts_changed(step, _REPETITION_MOVES)):
        yield f"{step.recorded.id} was heard before and changes {changed}"


def void_events_change_nothing(step: Step) -> Iterator[str]:
    """An event that is void, not understood or written under the wrong tree changes nothing but
    counters."""
    if step.body is not None and step.after.void == step.before.void and not _in_wrong_tree(step):
        return
    if changed := parts_changed(step, _VOID_MOVES):
        yield f"{step.recorded.id} must have no effect and changes {changed}"


def _in_wrong_tree(step: Step) -> bool:
    if step.body is None:
        return False
    control = subjects.tree_of(step.recorded.subject) == "control"
    return isinstance(step.body, Decision) != control


def old_terms_decide_nothing(step: Step) -> Iterator[str]:
    """A decision that was not written under the newest term is void."""
    if _is_of_other_term(step) and took_effect(step):
        term = step.envelope.term if step.envelope is not None else 0
        yield f"{_what(step)} of term {term} took effect in term {step.before.term}"


def one_leader_writes(step: Step) -> Iterator[str]:
    """Every decision in the log stands under the newest term: the fence lets no other writer
    through."""
    envelope = step.envelope
    if envelope is None or not _is_of_other_term(step) or _in_wrong_tree(step):
        return
    if not was_heard(step.before, envelope.source):
        yield f"{_what(step)} of term {envelope.term} was written in term {step.before.term}"


def _is_of_other_term(step: Step) -> bool:
    if not isinstance(step.body, Decision) or isinstance(step.body, LeadershipTaken):
        return False
    term = step.envelope.term if step.envelope is not None else 0
    return term != step.before.term or not term


def terms_only_grow(step: Step) -> Iterator[str]:
    """The term is the sequence of the newest leadership, and nothing else changes it."""
    before, after = step.before.term, step.after.term
    takes = isinstance(step.body, LeadershipTaken) and took_effect(step)
    if after != (step.recorded.seq if takes else before):
        yield f"{_what(step)} moves the term from {before} to {after}"


def obeyed_orders_are_never_void(step: Step) -> Iterator[str]:
    """An order that shims obey as soon as they hear it, a close or a transition, is never void."""
    if not isinstance(step.body, GenerationClosed | TransitionOrdered):
        return
    if step.after.void > step.before.void and not _is_of_other_term(step):
        yield f"shims obey {_what(step)} of generation {step.body.generation}, which is void"


def decisions_that_nothing_overtook_take_effect(step: Step) -> Iterator[str]:
    """A decision whose basis is the state it is folded on takes effect, or it would be decided
    again for ever."""
    envelope = step.envelope
    if envelope is None or envelope.basis is None or step.after.duplicates > step.before.duplicates:
        return
    if envelope.basis.decided_at != step.before.seq or _is_of_other_term(step):
        return
    if step.after.void > step.before.void:
        yield f"{_what(step)} is void on the state it was decided on"
    elif not parts_changed(step, _HEARING_MOVES):
        yield f"{_what(step)} changes nothing"


def facts_decide_nothing(step: Step) -> Iterator[str]:
    """A fact gives no task another phase, generation or allocation, and opens, ends or raises no
    incident: only decisions do."""
    if not isinstance(step.body, Fact):
        return
    for old, new in step.tasks:
        if old is None or old.phase != new.phase or old.generation != new.generation:
            yield f"{_what(step)} moves task {new.spec.task} to {new.phase} {new.generation}"
        elif old.allocation is not new.allocation:
            yield f"{_what(step)} changes the allocation of task {new.spec.task}"
    for before, after in step.incidents:
        if before is None or before.severity != after.severity or before.resolved != after.resolved:
            yield f"{_what(step)} opens, raises or ends {after.incident}"


def _what(step: Step) -> str:
    return type(step.body).__name__ if step.body is not None else "what isn't understood"


# --- Nodes and workers --------------------------------------------------------------------------


def statuses_follow_the_tables(step: Step) -> Iterator[str]:
    """Nodes, workers and tasks change only as the tables of transitions say."""
    for node, to_node in step.nodes:
        if node is not None and not _may(tables.NODE, node.status, to_node.status):
            yield f"node {to_node.node}: {node.status} -> {to_node.status}"
    for worker, to_worker in step.workers:
        if worker is not None and not _may(tables.WORKER, worker.status, to_worker.status):
            yield f"worker {to_worker.worker}: {worker.status} -> {to_worker.status}"
    for task, to_task in step.tasks:
        if task is not None and not _may(tables.TASK, task.phase, to_task.phase):
            yield f"task {to_task.spec.task}: {task.phase} -> {to_task.phase}"


def _may(table: tables.Table, old: str, new: str) -> bool:
    return old == new or new in table.get(old, ())


def nothing_is_forgotten(step: Step) -> Iterator[str]:
    """No node, worker, task or incident ever vanishes from the state."""
    before, after = step.before, step.after
    for part in ("nodes", "workers", "tasks", "incidents"):
        old, new = getattr(before, part), getattr(after, part)
        if old is not new and not old.keys() <= new.keys():
            yield f"{sorted(old.keys() - new.keys())} vanished from {part}"


def lives_follow_each_other(step: Step) -> Iterator[str]:
    """A worker's lives are numbered upwards by start orders, and a new one begins only when the
    one before is over."""
    for old, new in step.workers:
        before = old.incarnation if old is not None else 0
        if new.incarnation == before:
            continue
        ordered = isinstance(step.body, WorkerStartOrdered) and step.body.worker == new.worker
        if new.incarnation < before or not ordered:
            yield f"{new.worker} goes from life {before} to {new.incarnation} by {_what(step)}"
        if old is not None and old.status not in ("exited", "lost"):
            yield f"life {new.incarnation} of {new.worker} begins while {before} is {old.status}"


def lost_nodes_carry_nobody(step: Step) -> Iterator[str]:
    """No worker lives on a node that is lost."""
    for _, node in step.nodes:
        if _is_lost(node):
            for worker in step.after.workers.values():
                if worker.node == node.node and worker.status in tables.ALIVE:
                    yield f"{worker.worker} is {worker.status} on {node.node}, which is lost"
    for _, worker in step.workers:
        found = step.after.nodes.get(worker.node)
        if worker.status in tables.ALIVE and (found is None or _is_lost(found)):
            yield f"{worker.worker} is {worker.status} on {worker.node}, which is lost or unknown"


def _is_lost(node: NodeState) -> bool:
    return node.status == "lost" or (node.status == "isolated" and node.reason.startswith(LOST))


def sick_nodes_stay_apart(step: Step) -> Iterator[str]:
    """A node that is sick stays so until an operator returns it, and is never taken for healthy
    again before."""
    for old, new in step.nodes:
        if old is None or not old.sick or isinstance(step.body, NodeReturned):
            continue
        if not new.sick:
            yield f"{new.node} is no longer sick by {_what(step)}"
        if new.status == "healthy" and old.status in ("joining", "returning", "isolated", "lost"):
            yield f"{new.node} is sick ({new.sick}) and healthy again by {_what(step)}"


def who_outlives_its_stop_makes_its_node_sick(step: Step) -> Iterator[str]:
    """A worker that is still being stopped when the limit of that passes makes its node sick: its
    device can't be used."""
    body = step.body
    if not isinstance(body, DeadlinePassed) or not took_effect(step):
        return
    kind, _, life = body.key.partition(":")
    worker = step.before.workers.get(life.rpartition(":")[0]) if kind == "stop" else None
    if worker is None or worker.status != "stopping" or worker.overdue:
        return
    node = step.after.nodes.get(worker.node)
    if life == f"{worker.worker}:{worker.incarnation}" and node is not None and not node.sick:
        yield f"{worker.worker} could not be stopped, and {worker.node} is not blamed"


STEP_CHECKS: Final = (
    events_come_in_order,
    repeated_events_change_nothing,
    void_events_change_nothing,
    old_terms_decide_nothing,
    one_leader_writes,
    terms_only_grow,
    obeyed_orders_are_never_void,
    decisions_that_nothing_overtook_take_effect,
    facts_decide_nothing,
    statuses_follow_the_tables,
    nothing_is_forgotten,
    lives_follow_each_other,
    lost_nodes_carry_nobody,
    sick_nodes_stay_apart,
    who_outlives_its_stop_makes_its_node_sick,
)
