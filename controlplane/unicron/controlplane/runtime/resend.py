"""Orders said again: republished once by the server, they may not have been heard."""

from unicron.controlplane.core.fold_node import LOST
from unicron.controlplane.core.limits import RESEND_MS
from unicron.controlplane.core.orders import OpenOrder, open_orders
from unicron.controlplane.core.state import ClusterState
from unicron.events import Beat, NodeLost, Recorded, Sequence

_KEPT, _KEPT_MAX = 64, 256
_AWAY = ("lost", "isolated")


class Resender:
    """What has to be said again, and when. Times in milliseconds of one monotonic clock.

    Open orders are due once a second, and at once when somebody asks whom they concern. A node
    that was declared lost and yet beats or asks is told of it: its agent then ends what it still
    runs and begins a new life.
    """

    def __init__(self) -> None:
        self._recent: dict[Sequence, Recorded] = {}
        self._losses: dict[str, Sequence] = {}
        self._told: dict[str, int] = {}
        self._asked: set[str] = set()
        self._said: dict[OpenOrder, int] = {}
        self._open: tuple[ClusterState | None, tuple[OpenOrder, ...]] = (None, ())

    @property
    def losses(self) -> dict[str, Sequence]:
        """The newest NodeLost of each node; with the state, all that can't be read again."""
        return dict(self._losses)

    def resume(self, losses: dict[str, Sequence]) -> None:
        """Go on from there."""
        self._losses = dict(losses)

    def taken(self, decision: Recorded, state: ClusterState) -> None:
        """A decision was folded; the newest are kept at hand."""
        self._recent[decision.seq] = decision
        if decision.envelope is not None and isinstance(decision.envelope.body, NodeLost):
            self._losses[decision.envelope.body.node] = decision.seq
        if len(self._recent) > _KEPT_MAX:
            wanted = {o.seq for o in open_orders(state)}
            newest = decision.seq - _KEPT
            self._recent = {s: r for s, r in self._recent.items() if s in wanted or s > newest}

    def recent(self, seq: Sequence) -> Recorded | None:
        """The decision, if it is at hand."""
        return self._recent.get(seq)

    def asked(self, name: str) -> None:
        """A shim or agent asks for the orders of its task or node."""
        self._asked.add(name)

    def heard(self, beat: Beat, state: ClusterState, now_ms: int) -> None:
        """An agent beats: is it one that was given up?"""
        node = state.nodes.get(beat.node)
        if node is None or node.incarnation != beat.incarnation or node.status not in _AWAY:
            return
        if now_ms - self._told.get(beat.node, now_ms - RESEND_MS) >= RESEND_MS:
            self._told[beat.node] = now_ms
            self._asked.add(beat.node)

    def due(self, state: ClusterState, now_ms: int) -> list[Sequence]:
        """Sequences of what is to be said now."""
        asked, self._asked = self._asked, set()
        if self._open[0] is not state:
            self._open = (state, open_orders(state))
        orders = [*self._open[1], *self._lost(state, asked)] if asked else self._open[1]
        if not orders and not self._said:
            return []
        self._said = {o: self._said.get(o, now_ms) for o in orders}
        found = []
        for order in orders:
            if now_ms - self._said[order] >= RESEND_MS or order.name in asked:
                self._said[order] = now_ms
                found.append(order.seq)
        return found

    def _lost(self, state: ClusterState, asked: set[str]) -> list[OpenOrder]:
        """Losses that those who asked don't know of."""
        found = []
        for name in sorted(asked & set(self._losses)):
            node = state.nodes.get(name)
            if node is not None and node.status in _AWAY and node.reason.startswith(LOST):
                found.append(OpenOrder(self._losses[name], "node", name))
        return found
