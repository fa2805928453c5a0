"""What a planner is asked: the healthy devices, the tasks, and what each could run.

Plain frozen data with integer units, so that the same problem has the same bytes everywhere; its
digest goes into every plan. Whether a problem makes sense is said by `validation.py`.
"""

from __future__ import annotations

import hashlib

import msgspec


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One device of one node."""

    node: str
    device: int


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Tensor, pipeline and data parallel sizes, as in Megatron."""

    tp: int
    pp: int
    dp: int

    @property
    def devices(self) -> int:
        """How many devices this layout takes."""
        return self.tp * self.pp * self.dp


class LayoutOption(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a task, and how fast: T(t, x) of the paper, in GFLOP/s of the whole task.

    `kind`: all its devices are of this kind; "": of any kinds, also mixed, and as fast on each.
    The options of one task either all name a kind or none does.
    """

    layout: Layout
    throughput_gflops: int
    kind: str = ""


class TaskDemand(msgspec.Struct, frozen=True, kw_only=True):
    """One task: what it may run, what it runs now, and what a change costs it.

    `weight_milli` is the weight times 1000. `min_devices` > 0 means that the task must run;
    `min_gflops` > 0 that it must run at least as fast (what a deadline comes to: see
    `plain.py`). Both are its *floor*. Where not all floors can be met, those of the lowest
    `priority` are given up first (higher numbers are kept longer). A task whose floor is given up
    may run below `min_gflops`, and parks otherwise. Without a floor the planner parks a task
    whenever that pays.

    `current`, `current_kind` and `placement` say what the task holds now, in rank order, healthy or
    not; all are empty for a task that doesn't run. `hit`: a worker of it failed, so it changes over
    in any case.

    `transition_ms` is how long a change-over keeps it from training, the movement of state apart
    (D_transition). `state_bytes` is what a device that is taken anew has to be sent before it can
    train: weights and optimizer state of one rank.

    `tenant`: whose quotas it counts against. `avoid`: nodes it must not use.
    """

    task: str
    weight_milli: int
    min_devices: int
    max_devices: int
    options: tuple[LayoutOption, ...]
    current: Layout | None = None
    current_kind: str = ""
    placement: tuple[Slot, ...] = ()
    hit: bool = False
    transition_ms: int = 0
    state_bytes: int = 0
    priority: int = 0
    min_gflops: int = 0
    tenant: str = ""
    avoid: tuple[str, ...] = ()


class NodeSupply(msgspec.Struct, frozen=True, kw_only=True):
    """One node and the indexes of its healthy devices.

    `rack` and `segment` (what joins racks: a switch, a pod) say what is near and what fails
    together; nodes of one rack belong to one segment. `draining`: the node is to be emptied. Its
    devices are given to nobody and who holds some moves off, but its workers live, so state can be
    fetched from them.
    """

    node: str
    kind: str
    devices: tuple[int, ...]
    rack: str = ""
    segment: str = ""
    draining: bool = False


class TenantQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of `tenant` hold at most `max_devices` devices of `kind` (of all kinds: "").

    With a quota of one kind the options of all the tenant's tasks name their kind.
    """

    tenant: str
    max_devices: int
    kind: str = ""


class PlanProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a plan depends on.

    `computed_at` is the log sequence whose state this is. `expected_run_ms` is D_running: how long
    the cluster is expected to run until the next change, over which a change-over is paid off.

    Where failure rates are known, `node_mtbf_ms` is the mean time between failures of one node and
    `repair_ms` how long one is away; both are 0 if they aren't. They say how D_running changes with
    the number of nodes, and what a spare is worth. `link_bytes_per_s` is what one device receives
    state with; 0 means that moving it takes no time worth counting.
    """

    computed_at: int
    nodes: tuple[NodeSupply, ...]
    tasks: tuple[TaskDemand, ...]
    expected_run_ms: int
    quotas: tuple[TenantQuota, ...] = ()
    node_mtbf_ms: int = 0
    repair_ms: int = 0
    link_bytes_per_s: int = 0


def encode(problem: PlanProblem) -> bytes:
    """The problem as canonical JSON: equal problems have equal bytes."""
    return msgspec.json.encode(problem, order="deterministic")


def digest(problem: PlanProblem) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(encode(problem)).hexdigest()
