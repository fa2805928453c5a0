"""Ids as people type them: whole, or the beginning of one, or a sequence."""

import difflib
from collections.abc import Iterable

import msgspec

from unicron import events as ev
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.replay.phrases import one_line
from unicron.controlplane.replay.units import count
from unicron.events import ConfigError, NodeId, WorkerId, node_of

INCIDENT, NODE, TASK, WORKER, EVENT = "incident", "node", "task", "worker", "event"


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """What an id names. `kind`: one of those above; `id`: whole; of an event its sequence."""

    kind: str
    id: str


def find(state: ClusterState, asked: str) -> Named:
    """What is asked for: ``inc-…``, a node, a task, a worker, their beginning, ``#123``; with
    ``node:``, ``task:`` … before it where one name means two things.

    Raises:
        ConfigError: there is nothing of that name, or more than one.
    """
    text = asked.removeprefix("#").replace(",", "")
    if text.isascii() and text.isdigit():
        return _event(state, int(text))
    kind, _, name = asked.rpartition(":")
    known = [n for n in _all(state) if kind in ("", n.kind)]
    exact = [n for n in known if n.id == name]
    if not exact:
        exact = [n for n in known if n.id.startswith(name)]
        if len({n.kind for n in exact}) > 1:  # a node's name begins those of its workers
            exact = [n for n in exact if n.kind != WORKER] or exact
    if len(exact) == 1:
        return exact[0]
    if exact and name:
        raise _ambiguous(asked, exact)
    raise _unknown(asked, known)


def _event(state: ClusterState, seq: int) -> Named:
    if not 1 <= seq <= state.seq:
        raise ConfigError(
            f"the log has no event #{seq}",
            why=f"it ends with #{state.seq}",
            fix=f"give a sequence from 1 to {state.seq}",
            code="E-ID-SEQUENCE",
        )
    return Named(kind=EVENT, id=str(seq))


def _all(state: ClusterState) -> list[Named]:
    kinds: tuple[tuple[str, Iterable[str]], ...] = (
        (INCIDENT, state.incidents),
        (NODE, state.nodes),
        (TASK, state.tasks),
        (WORKER, state.workers),
    )
    return [Named(kind=kind, id=name) for kind, names in kinds for name in sorted(names)]


def _ambiguous(asked: str, found: list[Named]) -> ConfigError:
    same = len({n.id for n in found}) < len(found)
    listed = ", ".join(f"{n.kind}:{n.id}" if same else n.id for n in found[:5])
    return ConfigError(
        f"{one_line(asked)!r} means more than one thing",
        why=f"there are {listed}{', ...' if len(found) > 5 else ''}",
        fix=f"say which, such as {found[0].kind}:{found[0].id}",
        code="E-ID-AMBIGUOUS",
    )


def _unknown(asked: str, known: list[Named]) -> ConfigError:
    near = difflib.get_close_matches(asked, [n.id for n in known], n=3, cutoff=0.5)
    kinds = ((INCIDENT, "incident"), (NODE, "node"), (TASK, "task"), (WORKER, "worker"))
    has = ", ".join(count(sum(n.kind == kind for n in known), word) for kind, word in kinds)
    return ConfigError(
        f"there is no {one_line(asked)!r} in this log",
        why=f"did you mean {' or '.join(near)}?" if near else f"it has {has}",
        fix="unicron status without an id lists what there is",
        code="E-ID-UNKNOWN",
    )


def is_about(body: ev.AnyEvent, named: Named) -> bool:
    """Is the event about what is named? The loss of a node is one of its workers'."""
    if named.kind == WORKER and isinstance(body, ev.NodeLost):
        return body.node == _node(named.id)
    return (named.kind, named.id) in mentioned(body)


def mentioned(body: ev.AnyEvent) -> frozenset[tuple[str, str]]:
    """(kind, id) of whatever the event is about; whoever is about a worker is about its node."""
    found = {
        (kind, name)
        for kind in (INCIDENT, NODE, TASK, WORKER)
        if isinstance(name := getattr(body, kind, None), str)
    }
    workers: list[str] = []
    match body:
        case ev.TaskSubmitted(spec=spec):
            found.add((TASK, spec.task))
        case ev.TaskStalled(behind=behind):
            workers += behind
        case ev.TransitionOrdered(members=members):
            workers += [m.worker for m in members]
        case ev.PlanDecided(allocations=allocations) | ev.PlanSolved(allocations=allocations):
            found |= {(TASK, a.task) for a in allocations}
            found |= {(NODE, node) for a in allocations for node, _ in a.slots}
        case ev.ConnectionOpened(client=client) | ev.ConnectionClosed(client=client):
            kind, _, rest = client.partition("/")
            name = rest.rpartition("/")[0]
            found |= {(NODE, name)} if kind == "agent" else set()
            workers += [name] if kind == WORKER else []
        case ev.DeadlinePassed(key=key):
            found |= _waited_for(key)
        case _:
            pass
    workers += [name for kind, name in found if kind == WORKER]
    found |= {(WORKER, name) for name in workers}
    return frozenset(found | {(NODE, _node(name)) for name in workers})


def _waited_for(key: str) -> set[tuple[str, str]]:
    wait, _, name = key.partition(":")
    subject = name.rpartition(":")[0]
    kinds = {"confirm": NODE, "closed": NODE, "start": WORKER, "stop": WORKER}
    kinds |= {"release": WORKER, "quiesce": TASK, "ready": TASK}
    return {(kinds[wait], subject)} if wait in kinds else set()


def _node(worker: str) -> NodeId:
    return node_of(WorkerId(worker))
