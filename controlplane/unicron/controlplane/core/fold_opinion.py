"""Fold of the monitor's opinions about tasks and workers: hangs and slow ranks."""

from unicron.controlplane.core.change import replace, with_worker
from unicron.controlplane.core.fold_worker import failed, known, symptom
from unicron.controlplane.core.state import ClusterState
from unicron.events import Sequence, TaskStalled, WorkerSlow


def stalled(state: ClusterState, at: Sequence, body: TaskStalled) -> ClusterState | None:
    """Whoever stands strictly behind hangs and must go (SEV2). If all stand at the same place it
    is the collective that hangs: same members, next generation (SEV3); who then doesn't answer
    is found out by that."""
    task = state.tasks.get(body.task)
    if task is None or task.phase != "running" or task.generation != body.generation:
        return None
    members = {m.worker: m.incarnation for m in task.members}
    if not set(body.behind) <= set(members):
        return None
    for name in body.behind:
        worker = known(state, name, members[name])
        if worker is not None and worker.status == "member":
            what = f"worker {name} hangs: the task makes no progress for {body.stalled_ms} ms"
            state = failed(state, at, worker, "hang", what, severity=2)
    if not body.behind:
        first = state.workers[task.members[0].worker]
        what = f"no member of {body.task} makes progress for {body.stalled_ms} ms"
        state = symptom(state, at, first, what)
    return state


def slow(state: ClusterState, at: Sequence, body: WorkerSlow) -> ClusterState | None:
    """It is named; nothing is done about it."""
    worker = known(state, body.worker, body.incarnation)
    if worker is None:
        return None
    percent = body.percent if body.percent > 100 else 0
    return with_worker(state, replace(worker, slow_percent=percent))
