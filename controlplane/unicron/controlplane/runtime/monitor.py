"""Liveness from heartbeats, on the receiver's monotonic clock only; pure, fed with the time.

Beats aren't events. What becomes one is a change of opinion: suspected, or heard again.
"""

from unicron.controlplane.core import limits
from unicron.controlplane.core.state import ClusterState, NodeState
from unicron.events import Beat, NodeRecovered, NodeSuspected

Opinion = NodeSuspected | NodeRecovered


class Monitor:
    """What was heard of each node, and when. All times in milliseconds of one monotonic clock."""

    def __init__(self) -> None:
        self.beats: dict[str, Beat] = {}
        self._heard: dict[tuple[str, int], int] = {}
        self._grace_until = 0
        #: The nodes of the newest state, and whom of them an opinion may be about, by name.
        self._known: dict[str, NodeState] = {}
        self._watched: list[NodeState] = []
        #: Nodes that fell silent together with most others: no opinion was formed about them.
        self.withheld: tuple[str, ...] = ()

    def heard(self, beat: Beat, now_ms: int) -> None:
        """A beat arrived."""
        known = self.beats.get(beat.node)
        same = known is not None and known.incarnation == beat.incarnation
        if same and known is not None and beat.number < known.number:
            return  # overtaken on the way
        self.beats[beat.node] = beat
        self._heard[beat.node, beat.incarnation] = now_ms

    def grace(self, now_ms: int) -> None:
        """We were away or not leading: everybody gets the full time again."""
        self._grace_until = now_ms + limits.GRACE_MS

    def opinions(self, state: ClusterState, now_ms: int) -> list[Opinion]:
        """Changes of opinion that are due. If most nodes are silent at once it is more likely us
        or the network than they: none is suspected."""
        silent: list[tuple[str, int]] = []
        result: list[Opinion] = []
        if self._known is not state.nodes:
            present = [n for n in state.nodes.values() if n.status in ("healthy", "suspected")]
            self._known, self._watched = state.nodes, sorted(present, key=lambda n: n.node)
        watched, spared = self._watched, self._grace_until - limits.SILENCE_MS
        for node in watched:
            last = self._heard.setdefault((node.node, node.incarnation), now_ms)
            quiet = now_ms - max(last, spared)
            if quiet > limits.SILENCE_MS:
                silent.append((node.node, quiet))
            elif node.status == "suspected":
                result.append(
                    NodeRecovered(
                        node=node.node,
                        incarnation=node.incarnation,
                        evidence=f"heard {quiet} ms ago",
                    )
                )
        self.withheld = ()
        if len(watched) > 1 and 2 * len(silent) > len(watched):
            self.withheld = tuple(name for name, _ in silent)
            return result
        for name, quiet in silent:
            node = state.nodes[name]
            if node.status == "healthy":
                result.append(
                    NodeSuspected(
                        node=node.node,
                        incarnation=node.incarnation,
                        newest_fact=node.last_fact,
                        evidence=f"silent for {quiet} ms",
                    )
                )
        return result
