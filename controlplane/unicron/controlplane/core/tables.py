"""Legal transitions and severities, as data. An illegal transition raises in the fold."""

from typing import Final

#: status -> statuses it may become.
Table = dict[str, frozenset[str]]

NODE: Final[Table] = {
    "joining": frozenset({"healthy", "lost", "isolated"}),
    "healthy": frozenset({"suspected", "lost", "isolated", "returning"}),
    "suspected": frozenset({"healthy", "lost", "isolated", "returning"}),
    "lost": frozenset({"isolated", "returning"}),
    "isolated": frozenset({"returning"}),
    "returning": frozenset({"healthy", "lost", "isolated"}),
}

WORKER: Final[Table] = {
    "ordered": frozenset({"started", "prepared", "failed", "stopping", "exited", "lost"}),
    "started": frozenset({"prepared", "stopping", "exited", "lost", "failed"}),
    "prepared": frozenset({"member", "stopping", "exited", "lost", "failed"}),
    "member": frozenset({"prepared", "stopping", "exited", "lost", "failed"}),
    "stopping": frozenset({"exited", "lost"}),
    "exited": frozenset({"ordered"}),
    "failed": frozenset({"ordered", "exited", "stopping", "lost"}),
    "lost": frozenset({"ordered"}),
}

#: Statuses in which the worker's process exists or may exist.
ALIVE: Final = frozenset({"ordered", "started", "prepared", "member", "stopping", "failed"})

TASK: Final[Table] = {
    "idle": frozenset({"ordered", "completed", "failed"}),
    "ordered": frozenset({"running", "closed", "completed", "failed"}),
    "running": frozenset({"ordered", "closed", "completed", "failed"}),
    "closed": frozenset({"ordered", "completed", "failed"}),
    "completed": frozenset(),
    "failed": frozenset(),
}

ENDED: Final = frozenset({"completed", "failed"})


class IllegalTransition(Exception):
    """A fold step asked for a transition that the table doesn't have. A bug of ours."""


def step(table: Table, old: str, new: str) -> str:
    """`new`, if the table allows old -> new (or nothing changes).

    Raises:
        IllegalTransition: the table has no such transition.
    """
    if old != new and new not in table[old]:
        raise IllegalTransition(f"{old} -> {new} is not in the table")
    return new


#: Exception kind -> severity (paper, table of errors and severities; unknown kinds: 2).
SEVERITY: Final[dict[str, int]] = {
    "cuda.ecc": 1,
    "cuda.nvlink": 1,
    "cuda.invalid_dma_mapping": 1,
    "cuda.driver": 1,
    "cuda.illegal_memory_access": 2,
    "cuda.error": 2,
    "out_of_memory": 2,
    "software": 2,
    "loss.not_finite": 2,
    "network.connection_refused": 3,
    "network.connection_reset": 3,
    "network.error": 3,
    "nccl.timeout": 3,
    "link.flapping": 3,
}
UNKNOWN_SEVERITY: Final = 2


def severity_of(kind: str) -> int:
    """Severity of an exception kind."""
    return SEVERITY.get(kind, UNKNOWN_SEVERITY)
