"""The state of a cluster at one sequence, on one screen."""

from unicron.controlplane.cli.output import hung, number, table, width
from unicron.controlplane.core.state import ClusterState


def state_lines(state: ClusterState) -> list[str]:
    """Nodes, tasks, workers and open incidents, in tables."""
    leader = f"{state.leader} since #{number(state.term)}" if state.term else "nobody"
    head = f"state at #{number(state.seq)}: cluster {state.cluster or '-'}, leader {leader}"
    lines = [hung(head, 2, width())]
    sections = (
        (("NODE", "STATUS", "SINCE ", "DEVICES ", "WHY"), _nodes(state)),
        (("TASK", "PHASE", "GEN ", "ITER ", "MEMBERS ", "INCIDENT"), _tasks(state)),
        (("WORKER", "LIFE ", "STATUS", "TASK"), _workers(state)),
        (("INCIDENT", "SEV ", "OPENED ", "TASK", "WHAT"), _incidents(state)),
    )
    for header, rows in sections:
        if rows:
            lines += ["", *table(header, rows, width()).splitlines()]
    plan = state.plan
    if plan.wanted or plan.request:
        asked = f"asked with #{plan.request}" if plan.request else "not asked for yet"
        wanted = f"plan wanted since #{plan.wanted} ({plan.reason}), {asked}"
        lines += ["", hung(wanted, 2, width())]
    return lines


def _nodes(state: ClusterState) -> list[tuple[str, ...]]:
    return [
        (n.node, n.status, f"#{n.since}", str(n.devices), n.reason or "-")
        for n in sorted(state.nodes.values(), key=lambda n: n.node)
    ]


def _tasks(state: ClusterState) -> list[tuple[str, ...]]:
    return [
        (
            t.spec.task,
            t.phase,
            str(t.generation),
            str(t.iteration),
            str(len(t.members)),
            t.incident or "-",
        )
        for t in sorted(state.tasks.values(), key=lambda t: t.submitted)
    ]


def _workers(state: ClusterState) -> list[tuple[str, ...]]:
    return [
        (w.worker, str(w.incarnation), w.status, w.task)
        for w in sorted(state.workers.values(), key=lambda w: w.worker)
    ]


def _incidents(state: ClusterState) -> list[tuple[str, ...]]:
    return [
        (i.incident, str(i.severity), f"#{i.opened}", i.task or "-", i.what)
        for i in sorted(state.incidents.values(), key=lambda i: i.opened)
        if not i.resolved
    ]
