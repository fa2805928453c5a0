"""What a simulated cluster is like, and what happens to it, as data."""

import msgspec

from unicron.controlplane.testing.network import Weather
from unicron.controlplane.testing.pace import PaceOptions
from unicron.events import GPTSpec, OptimizerSpec, TaskId, TaskSpec


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong at a time. `kind`: a key of faults.KINDS. `target`: a node or
    worker, or "" for one that `pick` chooses among those there are then. `detail`: which variety.
    `for_ms`: how long it lasts, if it lasts."""

    at_ms: int
    kind: str
    target: str = ""
    pick: int = 0
    detail: str = ""
    for_ms: int = 0


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A node and when it begins."""

    name: str
    devices: int
    at_ms: int = 0


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A task and when it is handed in."""

    spec: TaskSpec
    at_ms: int = 0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. The faults come within `faults_ms`; afterwards everything that broke is mended,
    and within `heal_ms` every task and incident must have come to an end. `window_ms`: how long
    the log knows an id again. `skew_ms`: how far clocks may be apart. `nodes_max`: beyond it no
    node is added unasked."""

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


def task_spec(
    name: str,
    *,
    iterations: int,
    micro_batches: int,
    weight_milli: int = 1000,
    min_devices: int = 1,
    max_devices: int = 8,
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
    )
