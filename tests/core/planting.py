"""Wrong states and events for tests of the invariants: what was told, said by name."""

from unicron import events as ev
from unicron.controlplane.core.change import replace, with_node, with_task, with_worker
from unicron.controlplane.core.fold import fold
from unicron.controlplane.core.invariants import step_violations

CONTROL, FACT = "unicron.c.control.task.gpt", "unicron.c.fact.n1"


def names(violations) -> set[str]:
    return {v.invariant for v in violations}


def recorded(state, body, *, who="control/i1", counter=9_999, term=None, basis=None, subject=None):
    """The next entry of the log: a decision of the leader, or a fact."""
    decision = isinstance(body, ev.Decision)
    source = ev.Source(who=who, incarnation=1, counter=counter)
    envelope = ev.Envelope(
        id=ev.event_id(source),
        source=source,
        written_at_ns=0,
        body=body,
        term=(state.term if decision else 0) if term is None else term,
        basis=basis,
    )
    return ev.Recorded(
        seq=ev.Sequence(state.seq + 1),
        subject=subject or (CONTROL if decision else FACT),
        data=b"",
        at_ns=0,
        entry=envelope,
    )


def noise(state) -> ev.Recorded:
    """A fact that changes nothing: some other program connects to the server."""
    body = ev.ConnectionOpened(client="else", server="s", client_number=1)
    return recorded(state, body, who="server/s", counter=0)


def folded(state, entry, change=lambda state: state):
    """What is told when folding the entry gives a state with a change planted in it."""
    return names(step_violations(state, change(fold(state, entry)), entry))


def basis(state) -> ev.Basis:
    """Decided on this state."""
    return ev.Basis(decided_at=state.seq, chain="", state_digest="", logic_version=1)


# --- Changes ------------------------------------------------------------------------------------


def of_node(name, **fields):
    return lambda state: with_node(state, replace(state.nodes[name], **fields))


def of_worker(name, **fields):
    return lambda state: with_worker(state, replace(state.workers[name], **fields))


def of_task(**fields):
    return lambda state: with_task(state, replace(state.tasks["gpt"], **fields))


def of_state(**fields):
    return lambda state: replace(state, **fields)


def of_plan(**fields):
    return lambda state: replace(state, plan=replace(state.plan, **fields))
