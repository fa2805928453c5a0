"""What a task could run: its layouts on a kind of device, as fast as is assumed of that.

They follow from a few integers of the task and of the kind, and are asked for again and again, so
the newest are kept.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from unicron.controlplane.core.change import replace
from unicron.controlplane.core.speeds import gflops_of, link_of
from unicron.events import Planning, TaskSpec
from unicron.planner.cost import (
    GPTShape,
    model_flops_per_microbatch,
    options_for,
    parameters,
)
from unicron.planner.problem import Layout, LayoutOption

Options = tuple[LayoutOption, ...]

#: Floating-point operations of a GFLOP/s in a microsecond.
_FLOPS_US: Final = 1000


class _Asked(NamedTuple):
    """Everything that the layouts follow from."""

    shape: GPTShape
    micro_batches: int
    least: int
    most: int
    tp: int
    pp: int
    kind: str
    gflops: int
    link_bytes_per_s: int


def options_of(spec: TaskSpec, kind: str, planning: Planning) -> Options:
    """Every layout the task could run in on devices of this kind, the smallest first. Raises
    BadProblem."""
    return _offered(_asked(spec, kind, planning))


def worthwhile_of(spec: TaskSpec, kind: str, planning: Planning, keep: Iterable[Layout]) -> Options:
    """Those of them that are not slower than a smaller one, and those that are to be kept in any
    case. (Who has the most micro-batches sets the pace: 12 take as long on 7 replicas as on 6.)
    Plans are the same without the others, and made in a fraction of the time. Raises BadProblem."""
    asked = _asked(spec, kind, planning)
    found = _worthwhile(asked)
    wanted = set(keep) - {option.layout for option in found}
    if not wanted:
        return found
    kept = [option for option in _offered(asked) if option.layout in wanted]
    return tuple(sorted((*found, *kept), key=lambda option: option.layout.devices))


def assumed_us(spec: TaskSpec, kind: str, planning: Planning, layout: Layout) -> int | None:
    """What an iteration is assumed to take in this layout, in microseconds; None if the task can't
    run so. Raises BadProblem."""
    gflops = _by_layout(_asked(spec, kind, planning)).get(layout)
    return None if gflops is None else max(1, flops_of(spec) // (_FLOPS_US * gflops))


def flops_of(spec: TaskSpec) -> int:
    """Floating-point operations of one iteration."""
    return model_flops_per_microbatch(_shape(spec)) * spec.micro_batches


def state_bytes_of(spec: TaskSpec) -> int:
    """What one rank trains with: weights and Adam's two moments in fp32."""
    return 12 * parameters(_shape(spec)) // (spec.tensor_parallel * spec.pipeline_parallel)


def _asked(spec: TaskSpec, kind: str, planning: Planning) -> _Asked:
    return _Asked(
        shape=_shape(spec),
        micro_batches=spec.micro_batches,
        least=spec.min_devices,
        most=min(spec.max_devices, spec.micro_batches),
        tp=spec.tensor_parallel,
        pp=spec.pipeline_parallel,
        kind=kind,
        gflops=gflops_of(planning, kind),
        link_bytes_per_s=link_of(planning, kind),
    )


@lru_cache(maxsize=1024)
def _offered(asked: _Asked) -> Options:
    offered = options_for(
        asked.shape,
        asked.micro_batches,
        asked.most,
        asked.gflops,
        asked.tp,
        asked.pp,
        min_devices=asked.least,
        link_bytes_per_s=asked.link_bytes_per_s,
    )
    return tuple(replace(option, kind=asked.kind) for option in offered)


@lru_cache(maxsize=1024)
def _by_layout(asked: _Asked) -> dict[Layout, int]:
    return {option.layout: option.throughput_gflops for option in _offered(asked)}


@lru_cache(maxsize=4096)
def _worthwhile(asked: _Asked) -> Options:
    found: list[LayoutOption] = []
    for option in _offered(asked):
        if not found or option.throughput_gflops >= found[-1].throughput_gflops:
            found.append(option)
    return tuple(found)


def _shape(spec: TaskSpec) -> GPTShape:
    model = spec.model
    return GPTShape(
        layers=model.num_layers,
        hidden=model.hidden_size,
        heads=model.num_attention_heads,
        sequence=model.seq_length,
        vocabulary=model.vocab_size,
        micro_batch=model.micro_batch_size,
    )
