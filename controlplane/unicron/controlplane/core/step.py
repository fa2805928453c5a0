"""One folded event, and what it changed: what the invariants of every event look at.

The state's maps are never changed in place, so whatever is the same object is unchanged; looking
at the rest only keeps this cheap enough for every event of a production cluster.
"""

from typing import Final, NamedTuple, TypeVar

from unicron.controlplane.core.change import changed_keys
from unicron.controlplane.core.state import (
    ClusterState,
    IncidentState,
    NodeState,
    TaskState,
    WorkerState,
)
from unicron.events import AnyEvent, Envelope, Recorded, Source

V = TypeVar("V")

#: The parts of the state, by name.
PARTS: Final[tuple[str, ...]] = ClusterState.__struct_fields__


class Step(NamedTuple):
    """One event between two states.

    `nodes`, `workers`, `tasks`, `incidents`: what is new or changed, as (old, new); old is None
    for what is new. `tasks_hit`: tasks that changed or whose workers did. `envelope`, `body`: None
    if the event isn't understood.
    """

    before: ClusterState
    after: ClusterState
    recorded: Recorded
    envelope: Envelope | None
    body: AnyEvent | None
    nodes: list[tuple[NodeState | None, NodeState]]
    workers: list[tuple[WorkerState | None, WorkerState]]
    tasks: list[tuple[TaskState | None, TaskState]]
    incidents: list[tuple[IncidentState | None, IncidentState]]
    tasks_hit: list[TaskState]


def step_between(before: ClusterState, after: ClusterState, recorded: Recorded) -> Step:
    """The step that folding `recorded` made."""
    envelope = recorded.envelope
    workers = _changed(before.workers, after.workers)
    tasks = _changed(before.tasks, after.tasks)
    hit = [new for _, new in tasks]
    named = [new.task for _, new in workers]
    named += [old.task for old, new in workers if old is not None and old.task != new.task]
    for name in named:
        task = after.tasks.get(name)
        if task is not None and not any(task is other for other in hit):
            hit.append(task)
    return Step(
        before,
        after,
        recorded,
        envelope,
        envelope.body if envelope is not None else None,
        _changed(before.nodes, after.nodes),
        workers,
        tasks,
        _changed(before.incidents, after.incidents),
        hit,
    )


def _changed(before: dict[str, V], after: dict[str, V]) -> list[tuple[V | None, V]]:
    changed = changed_keys(before, after)
    return [(before.get(key), after[key]) for key in changed if key in after]


def parts_changed(step: Step, but: frozenset[str]) -> list[str]:
    """Names of the parts of the state that differ, but for those."""
    before, after = step.before, step.after
    return [
        part
        for part in PARTS
        if part not in but
        and getattr(before, part) is not getattr(after, part)
        and getattr(before, part) != getattr(after, part)
    ]


def was_heard(state: ClusterState, source: Source) -> bool:
    """An event of this source with this number, or of a later life of it, was folded before."""
    known = state.sources.get(source.who)
    if known is None or source.counter == 0:
        return False
    if known.incarnation == source.incarnation:
        return source.counter <= known.counter
    return source.incarnation in known.past


def took_effect(step: Step) -> bool:
    """The event was understood, new, and not void."""
    return (
        step.body is not None
        and step.after.void == step.before.void
        and step.after.duplicates == step.before.duplicates
    )
