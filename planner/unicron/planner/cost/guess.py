"""A quick guess of T(t, x) for a GPT model on devices of which little is known.

What a device achieves is an argument here, and its memory doesn't count; `layouts.py` knows the
devices and finds the layouts itself. The control plane's recorded decisions depend on these
results: the same arguments must go on giving the same options.

Sources: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", 2021 (arXiv 2104.04473): eq. 2 for parameters, eq. 3 for floating-point operations,
section 2.2 for the pipeline bubble.

What is left out: traffic inside a tensor parallel group, memory limits, kernels that get less
efficient as they get smaller, overlap of the gradient exchange. Expect errors of tens of percent,
mostly common to all sizes of a task. Floats are rounded at the end; they are sums, products and
quotients, which IEEE 754 fixes to the last bit on every machine.
"""

from __future__ import annotations

import msgspec

from unicron.planner.cost.validity import require_positive
from unicron.planner.errors import BadProblem
from unicron.planner.problem import Layout, LayoutOption

# Gradients are reduced in fp32.
GRADIENT_BYTES = 4
# One 200 Gb/s network card a device, as usable bytes per second. Assumed; callers know better.
LINK_BYTES_PER_S = 20_000_000_000


class GPTShape(msgspec.Struct, frozen=True, kw_only=True):
    """A GPT model and how it is trained; `micro_batch` and `sequence` in samples and tokens."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    micro_batch: int


def parameters(shape: GPTShape) -> int:
    """Parameters of the model: eq. 2, multiplied out."""
    layers, hidden = shape.layers, shape.hidden
    return 12 * layers * hidden**2 + 13 * layers * hidden + _embeddings(shape) * hidden


def _embeddings(shape: GPTShape) -> int:
    return shape.vocabulary + shape.sequence


def model_flops_per_microbatch(shape: GPTShape, *, recompute: bool = False) -> int:
    """Floating-point operations of one forward and backward pass over one micro-batch.

    Eq. 3 is `96 B s l h^2 (1 + s/6h + V/16lh)` and counts the layers' forward pass twice, since
    activations are recomputed in the backward pass. Without that (the default: a model FLOP is
    counted once however often it is computed) 96 becomes 72, and the logits' share stays 6 B s h V.
    """
    tokens = shape.micro_batch * shape.sequence
    passes = 4 if recompute else 3
    # 24 B s h^2 + 4 B s^2 h in each layer's forward pass, twice that in its backward pass
    layer = 24 * tokens * shape.hidden**2 + 4 * tokens * shape.sequence * shape.hidden
    return passes * shape.layers * layer + 6 * tokens * shape.hidden * shape.vocabulary


def step_seconds(
    shape: GPTShape,
    layout: Layout,
    micro_batches: int,
    device_gflops: int,
    link_bytes_per_s: int = LINK_BYTES_PER_S,
) -> float:
    """Seconds of one iteration of `micro_batches` micro-batches in all.

    The slowest replica has ceil(M / dp) of them, and its pipeline runs pp - 1 more to fill and
    drain. Then a ring all-reduce moves 2 (dp - 1) / dp of a device's gradients over its link.
    """
    split = layout.tp * layout.pp
    flops = model_flops_per_microbatch(shape)
    stage = flops / split / (device_gflops * 1e9)
    compute = (-(-micro_batches // layout.dp) + layout.pp - 1) * stage
    exchanged = 2 * (layout.dp - 1) / layout.dp * parameters(shape) / split * GRADIENT_BYTES
    return compute + exchanged / link_bytes_per_s


def options_for(
    shape: GPTShape,
    micro_batches: int,
    max_devices: int,
    device_gflops: int,
    tp: int = 1,
    pp: int = 1,
    *,
    min_devices: int = 1,
    link_bytes_per_s: int = LINK_BYTES_PER_S,
) -> tuple[LayoutOption, ...]:
    """Every data parallel size from `min_devices` to `max_devices` devices, with its throughput.

    `micro_batches` is the global batch; replicas may have unequal shares of it, so every size up to
    one micro-batch each is possible. `device_gflops` is what one device achieves (not its peak).
    Throughputs are rounded to whole GFLOP/s and are at least 1.
    """
    require_positive(
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        sequence=shape.sequence,
        vocabulary=shape.vocabulary,
        micro_batch=shape.micro_batch,
        micro_batches=micro_batches,
        device_gflops=device_gflops,
        link_bytes_per_s=link_bytes_per_s,
        tp=tp,
        pp=pp,
    )
    if shape.layers % pp:
        raise BadProblem("pp", f"{shape.layers} layers don't split over {pp}", "choose a divisor")
    if shape.heads % tp:
        raise BadProblem("tp", f"{shape.heads} heads don't split over {tp}", "choose a divisor")
    work = model_flops_per_microbatch(shape) * micro_batches
    options = []
    for dp in range(-(-max(min_devices, 1) // (tp * pp)), max_devices // (tp * pp) + 1):
        if dp > micro_batches:
            break
        layout = Layout(tp=tp, pp=pp, dp=dp)
        seconds = step_seconds(shape, layout, micro_batches, device_gflops, link_bytes_per_s)
        gflops = max(1, round(work / seconds / 1e9))
        options.append(LayoutOption(layout=layout, throughput_gflops=gflops))
    return tuple(options)
