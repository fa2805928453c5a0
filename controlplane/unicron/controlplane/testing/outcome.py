"""What came of a simulated run."""

import hashlib

import msgspec

from unicron.controlplane.core.invariants import Violation
from unicron.controlplane.core.state import ClusterState
from unicron.events import Recorded


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds`: virtual time. `lines`: the trace. `fired`: how many faults of each kind were
    done. `stuck`: what hadn't come to an end, or "". `ends`: how often each incident ended."""

    seed: int
    seconds: float
    log: tuple[Recorded, ...]
    lines: tuple[str, ...]
    fired: dict[str, int]
    violations: tuple[Violation, ...]
    stuck: str
    state: ClusterState
    ends: dict[str, int]

    @property
    def faults_fired(self) -> int:
        return sum(self.fired.values())

    @property
    def digest(self) -> str:
        """SHA-256 of the whole trace and of every byte in the log."""
        total = hashlib.sha256("\n".join(self.lines).encode())
        for recorded in self.log:
            total.update(recorded.data)
        return total.hexdigest()
