"""The control plane: a pure core, the runtime that carries it, replay, and its faces.

What a program outside needs is importable from here. Names are loaded when they are first used:
importing this starts nothing, and asks for none of the extra's libraries.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unicron.controlplane.core.snapshot import Snapshot, SnapshotUnusable, decode_snapshot
    from unicron.controlplane.core.state import ClusterState
    from unicron.controlplane.embed import (
        ControlPlane,
        EventStream,
        HostedWorker,
        Leadership,
        NodeChange,
        NodeOffered,
        NodeWithdrawn,
        NotApproved,
        PlannedChange,
        Scheduler,
        TaskChange,
    )
    from unicron.controlplane.replay import Replayer, ReplayReport
    from unicron.controlplane.runtime.memory import MemoryLog, MemoryStream
    from unicron.controlplane.runtime.ports import EventLog, Solved, Solver, SolverFailed
    from unicron.controlplane.runtime.watchman import InvariantViolated
    from unicron.controlplane.runtime.writer import NotLeading

__all__ = [
    "ClusterState",
    "ControlPlane",
    "EventLog",
    "EventStream",
    "HostedWorker",
    "InvariantViolated",
    "Leadership",
    "MemoryLog",
    "MemoryStream",
    "NodeChange",
    "NodeOffered",
    "NodeWithdrawn",
    "NotApproved",
    "NotLeading",
    "PlannedChange",
    "ReplayReport",
    "Replayer",
    "Scheduler",
    "Snapshot",
    "SnapshotUnusable",
    "Solved",
    "Solver",
    "SolverFailed",
    "TaskChange",
    "decode_snapshot",
]

_ELSEWHERE = {
    "ClusterState": "core.state",
    "EventLog": "runtime.ports",
    "InvariantViolated": "runtime.watchman",
    "MemoryLog": "runtime.memory",
    "MemoryStream": "runtime.memory",
    "NotLeading": "runtime.writer",
    "ReplayReport": "replay",
    "Replayer": "replay",
    "Snapshot": "core.snapshot",
    "SnapshotUnusable": "core.snapshot",
    "Solved": "runtime.ports",
    "Solver": "runtime.ports",
    "SolverFailed": "runtime.ports",
    "decode_snapshot": "core.snapshot",
}

if not TYPE_CHECKING:  # or any name at all would be one for type checkers

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'embed')}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("unicron"):
                raise
            raise ImportError(
                f"{__name__}.{name} needs {error.name}, which isn't installed: "
                "pip install 'unicron-controlplane[controlplane]'"
            ) from error
        return getattr(module, name)
