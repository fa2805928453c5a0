"""What must hold at every moment of any history, and what every state must be waiting for."""

import msgspec

from unicron import events as ev
from unicron.controlplane.core import limits, tables
from unicron.controlplane.core.deadlines import deadlines
from unicron.controlplane.core.fold_task import awaited, is_parked
from unicron.controlplane.core.supply import slot_workers, usable


def waits_for_something(state) -> list[str]:
    """Complaints about a state on which decide() has nothing to say: whatever isn't as it should
    be must have a limit running, or wait for a person or a device."""
    keys = deadlines(state)
    complaints = []
    for node in state.nodes.values():
        if node.status in ("joining", "returning"):
            complaints.append(f"{node.node} is {node.status} and nobody admits it")
        if node.status == "lost" and node.reason.startswith("lost: "):
            complaints.append(f"{node.node} is lost and nobody isolates it")
        if node.sick and node.status not in ("isolated", "lost"):
            complaints.append(f"{node.node} is sick and nobody isolates it")
    if state.causes:
        complaints.append(f"evidence without an incident: {state.causes}")
    plan = state.plan
    if plan.request and not plan.answer and f"solve:{plan.request}" not in keys:
        complaints.append("a plan was requested and may never come")
    planning = bool(plan.request or (plan.wanted and plan.failures < limits.PLAN_FAILURES_MAX))
    planning |= f"replan:{plan.wanted}" in keys
    for task in state.tasks.values():
        why = _task_waits(state, task, keys, planning)
        if why:
            complaints.append(f"task {task.spec.task} is {task.phase} and {why}")
    for incident in state.incidents.values():
        task = state.tasks.get(incident.task)
        if not incident.resolved and (task is None or task.phase in tables.ENDED):
            complaints.append(f"{incident.incident} has no end")
    return complaints


def _task_waits(state, task, keys, planning) -> str:
    name = task.spec.task
    if task.phase in tables.ENDED:
        return _leftovers(state, task, keys)
    if task.phase == "ordered":
        return "" if f"ready:{name}:{task.generation}" in keys else "has no limit"
    if task.phase == "closed" and awaited(state, task):
        return "" if f"quiesce:{name}:{task.generation}" in keys else "its answers have no limit"
    if task.allocation is None:
        return "" if planning else "nobody plans it"
    if is_parked(state, task):
        return ""
    wanted = slot_workers(task)
    pending = [w for w in wanted if _is_coming(state, name, w, keys)]
    if task.phase in ("idle", "closed"):
        return "" if pending else "nobody comes"
    if task.broken:
        return "it is broken"
    dead = [m.worker for m in task.members if state.workers[m.worker].status != "member"]
    if dead:
        return f"its members {dead} are dead"
    members = {m.worker for m in task.members}
    if set(task.committed) != members or task.finished or planning or pending:
        return ""  # it trains; whoever hangs in it is for the monitor of progress to find
    return "" if members == {*wanted} else f"isn't what the plan says: {wanted}"


def _is_coming(state, task, name, keys) -> bool:
    worker = state.workers.get(name)
    if worker is None or not usable(state, worker.node):
        return False
    if worker.task != task and state.tasks[worker.task].phase not in tables.ENDED:
        return worker.status in tables.ALIVE  # the other task is to leave it, and is looked at
    life = f"{worker.worker}:{worker.incarnation}"
    return f"start:{life}" in keys or f"stop:{life}" in keys


def _leftovers(state, task, keys) -> str:
    for worker in state.workers.values():
        if worker.task != task.spec.task or worker.status in ("exited", "lost"):
            continue
        node = state.nodes[worker.node]
        apart = node.status == "isolated"  # the process is beyond our reach, and so is its device
        if f"stop:{worker.worker}:{worker.incarnation}" not in keys and not apart:
            return f"{worker.worker} is left over ({worker.status})"
    return ""


class Watch:
    """Looks at everything that happens in a World, and objects."""

    def __init__(self, world) -> None:
        self.world = world
        self.opened: set[int] = set()
        self.commits: dict[tuple[str, int], int] = {}
        self.void = 0
        self.seen: dict[str, int] = {}
        self.broken_start: set[str] = set()

    def count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    def unstartable(self, node, order) -> bool:
        return order.worker in self.broken_start

    # --- Decisions ----------------------------------------------------------------------------

    def decided(self, at, verdict) -> None:
        body = verdict.body
        self.count(type(body).__name__)
        for member in getattr(body, "members", ()):
            worker = at.workers[member.worker]
            assert worker.incarnation == member.incarnation, f"{member} is another life"
            assert worker.status in ("prepared", "member"), f"{member} is {worker.status}"
            assert worker.task == body.task, f"{member} belongs to {worker.task}"
        if isinstance(body, ev.TransitionOrdered):
            self._ordered(at.tasks[body.task], body)
        if isinstance(body, ev.GenerationClosed):
            self.count(f"close: {body.reason[:17]}" if "park" in body.reason else "close")
        if isinstance(body, ev.WorkerStartOrdered):
            old = at.workers.get(body.worker)
            again = old is not None and old.incarnation == body.incarnation and not old.begun
            free = old is None or old.status in ("exited", "lost")
            assert free or again, f"{body.worker} is {old.status}"
        if isinstance(body, ev.IncidentOpened):
            evidence = {c.at for c in at.causes if c.task == body.task}
            assert evidence, "an incident without evidence"

    def _ordered(self, task, body) -> None:
        assert [m.rank for m in body.members] == list(range(len(body.members)))
        assert len({m.worker for m in body.members}) == len(body.members)
        assert body.store_port
        donors = {m.rank for m in body.members if m.state_from is None}
        for member in body.members:
            assert member.state_from in (None, -1) or member.state_from in donors
        if body.planned:
            self.count("planned")
            return
        if body.iteration < task.spec.iterations:
            done = [m for member in body.members for m in (*member.keeps, *member.owes)]
            assert sorted(done) == list(range(task.spec.micro_batches)), body
        self.count("again" if body.members[0].state_from == -1 and task.generation else "after")
        for kind in ("keeps", "step_forward"):
            if any(getattr(m, kind) for m in body.members):
                self.count(kind)
        if any(m.state_from not in (None, -1) for m in body.members):
            self.count("bridge")

    # --- States -------------------------------------------------------------------------------

    def folded(self, before, after) -> None:
        if after.void > before.void:
            self.void += 1
            body = self.world.log[-1].envelope.body
            obeyed = isinstance(body, ev.GenerationClosed | ev.TransitionOrdered)
            assert not obeyed, f"shims obey a {type(body).__name__} that is void"
        for name, task in after.tasks.items():
            old = before.tasks.get(name)
            assert task.generation - (old.generation if old else 0) in (0, 1)
            assert old is None or old.phase not in tables.ENDED or old.phase == task.phase
        self._incidents(before, after)
        owners: dict[str, str] = {}
        for task in after.tasks.values():
            for name in slot_workers(task) if task.phase not in tables.ENDED else ():
                assert owners.setdefault(name, task.spec.task) == task.spec.task, f"{name} twice"
        if self.world.verdict() is None:
            complaints = waits_for_something(after)
            assert not complaints, complaints

    def repeated(self, before, after) -> None:
        """A fact that was folded before changes nothing."""
        same = msgspec.structs.replace(after, seq=before.seq, duplicates=before.duplicates)
        assert same == before

    def _incidents(self, before, after) -> None:
        for name, incident in after.incidents.items():
            old = before.incidents.get(name)
            if old is incident:
                continue
            news = set(incident.evidence) - (set(old.evidence) if old is not None else set())
            key = {(seq, incident.task, incident.node if not incident.task else "") for seq in news}
            assert not key & self.opened, f"{name}: {news} belongs to another incident"
            self.opened |= key
            assert old is None or not old.resolved, f"{name} was over"

    # --- Training -----------------------------------------------------------------------------

    def reduced(self, spec, everybody) -> None:
        iterations = {iteration for iteration, _ in everybody}
        assert len(iterations) == 1, f"members stand at {iterations}"
        done = sorted(m for _, kept in everybody for m in kept)
        assert done == list(range(spec.micro_batches)), f"iteration {iterations}: {done}"

    def committed(self, trainee) -> None:
        key = (trainee.spec.task, trainee.iteration)
        self.commits[key] = self.commits.get(key, 0) + 1

    # --- Ends ---------------------------------------------------------------------------------

    def stuck(self, why: str) -> None:
        state = self.world.state
        raise AssertionError(
            "\n".join(
                [
                    f"{why} at #{state.seq}",
                    *(str(t) for t in state.tasks.values()),
                    *(f"{w.worker}/{w.incarnation} {w.status}" for w in state.workers.values()),
                    *(f"{n.node} {n.status} {n.reason}" for n in state.nodes.values()),
                    *(str(i) for i in state.incidents.values() if not i.resolved),
                    str(state.plan),
                    str(deadlines(state)),
                    *(
                        f"{t.identity} {t.stage} {t.iteration} {t.shim}"
                        for t in self.world.living()
                    ),
                ]
            )
        )
