"""What a simulated cluster is like, and what happens to it, as data."""

import re
from typing import Final

import msgspec

from unicron.controlplane.core.limits import NODE_DEVICES_MAX
from unicron.controlplane.testing.network import Weather
from unicron.controlplane.testing.pace import PaceOptions
from unicron.events import GPTSpec, OptimizerSpec, TaskId, TaskSpec

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: Their names are letters.
INSTANCES_MAX: Final = 5
_LONGEST_MS: Final = 24 * 3600 * 1000


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that goes wrong at a time. `kind`: a key of faults.KINDS. `target`: a node or
    worker, or "" for one that `pick` chooses among those there are then. `detail`: which variety.
    `for_ms`: how long it lasts, if it lasts."""

    at_ms: int
    kind: str
    target: str = ""
    pick: int = 0
    detail: str = ""
    for_ms: int = 0


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node, the kind of its devices, and when it begins."""

    name: str
    devices: int
    at_ms: int = 0
    kind: str = "cpu"


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task and when it is handed in."""

    spec: TaskSpec
    at_ms: int = 0


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole run. The faults come within `faults_ms`; afterwards everything that broke is mended,
    and within `heal_ms` every task and incident must have come to an end. `window_ms`: how long
    the log knows an id again. `skew_ms`: how far clocks may be apart. `nodes_max`: beyond it no
    node is added unasked. `instances`: control planes, one of which leads."""

    seed: int
    nodes: tuple[NodeOptions, ...]
    tasks: tuple[Submission, ...]
    faults: tuple[Fault, ...] = ()
    weather: Weather = Weather()
    pace: PaceOptions = PaceOptions()
    faults_ms: int = 60_000
    heal_ms: int = 900_000
    window_ms: int = 120_000
    skew_ms: int = 0
    nodes_max: int = 6
    instances: int = 1


def mistake_in(options: Options) -> str:
    """What is wrong with options that weren't made by ourselves, or ""."""
    names = [node.name for node in options.nodes]
    tasks = [submission.spec.task for submission in options.tasks]
    times = [f.at_ms for f in options.faults] + [f.for_ms for f in options.faults]
    times += [n.at_ms for n in options.nodes] + [s.at_ms for s in options.tasks]
    times += [options.heal_ms, options.window_ms, options.skew_ms]
    if len(set(names)) < len(names) or len(set(tasks)) < len(tasks):
        return "two nodes or two tasks have the same name"
    if not all(_NAME.fullmatch(name) for name in (*names, *tasks)):
        return "names are letters, digits, - and _"
    if not all(0 <= n.devices <= NODE_DEVICES_MAX for n in options.nodes):
        return f"a node has 0 to {NODE_DEVICES_MAX} devices"
    if not 1 <= options.instances <= INSTANCES_MAX:
        return f"there are 1 to {INSTANCES_MAX} control planes"
    if not all(0 <= ms <= _LONGEST_MS for ms in (*times, options.faults_ms)):
        return f"times are from 0 to {_LONGEST_MS} ms"
    return ""


def task_spec(
    name: str,
    *,
    iterations: int,
    micro_batches: int,
    weight_milli: int = 1000,
    min_devices: int = 1,
    max_devices: int = 8,
    tenant: str = "",
    device_kinds: tuple[str, ...] = (),
) -> TaskSpec:
    """A small GPT; in a simulation nothing of the model matters but its name."""
    return TaskSpec(
        task=TaskId(name),
        iterations=iterations,
        micro_batches=micro_batches,
        model=GPTSpec(
            num_layers=4,
            hidden_size=64,
            num_attention_heads=4,
            seq_length=32,
            vocab_size=256,
            micro_batch_size=1,
        ),
        optimizer=OptimizerSpec(lr_ppb=1_000_000, min_lr_ppb=10_000),
        weight_milli=weight_milli,
        min_devices=min_devices,
        max_devices=max_devices,
        tenant=tenant,
        device_kinds=device_kinds,
    )
