"""Looks at everything that happens in a World with the product's invariants, and counts what
happened, so that a test can say that it did."""

from unicron import events as ev
from unicron.controlplane.core import invariants
from unicron.controlplane.core.deadlines import deadlines


def held(violations) -> None:
    """Raises AssertionError with the names and words of what doesn't hold."""
    told = [f"{v.invariant} at #{v.seq}: {v.what}" for v in violations]
    assert not told, "\n".join(told)


class Watch:
    """Objects to whatever an invariant says, and to a World that gets stuck."""

    def __init__(self, world) -> None:
        self.world = world
        self.commits: dict[tuple[str, int], int] = {}
        self.void = 0
        self.seen: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    # --- What the invariants are asked about ----------------------------------------------------

    def folded(self, before, after) -> None:
        self.void += after.void > before.void
        held(invariants.step_violations(before, after, self.world.log[-1]))
        if self.world.verdict() is None:
            held(invariants.rest_violations(after))

    def decided(self, at, verdict) -> None:
        held(invariants.decision_violations(at, verdict))
        self._count_decision(at, verdict.body)

    def reduced(self, spec, parts) -> None:
        held(invariants.samples_violations(spec, parts, self.world.state.seq))

    # --- What happened --------------------------------------------------------------------------

    def committed(self, trainee) -> None:
        key = (trainee.spec.task, trainee.iteration)
        self.commits[key] = self.commits.get(key, 0) + 1

    def _count_decision(self, at, body) -> None:
        self.count(type(body).__name__)
        if isinstance(body, ev.GenerationClosed):
            self.count(f"close: {body.reason[:17]}" if "park" in body.reason else "close")
        if not isinstance(body, ev.TransitionOrdered):
            return
        if body.planned:
            self.count("planned")
            return
        task = at.tasks[body.task]
        self.count("again" if body.members[0].state_from == -1 and task.generation else "after")
        for kind in ("keeps", "step_forward"):
            if any(getattr(m, kind) for m in body.members):
                self.count(kind)
        if any(m.state_from not in (None, -1) for m in body.members):
            self.count("bridge")

    # --- Ends -----------------------------------------------------------------------------------

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
                    *(f"{t.life} {t.stage} {t.iteration} {t.shim}" for t in self.world.living()),
                ]
            )
        )
