"""Seconds of one iteration, from what the devices can do and what the layout makes them do.

Sources: D. Narayanan et al., 2021 (arXiv 2104.04473): section 2.2 for the pipeline's bubble,
section 3.2 for what tensor and pipeline parallelism send, section 4.1 for stages that send each
other 1/t of an activation; V. Korthikanti et al., 2022 (arXiv 2205.05198): section 4.2 for
sequence parallelism, section 5 for selective recomputation.

Every term is operations or bytes over a rate. Left out: kernels' start times, data loading, the
imbalance of unequal stages, and what a busy network adds. Floats are sums, products and quotients
only, which IEEE 754 fixes to the last bit on every machine.
"""

from __future__ import annotations

import msgspec

from unicron.planner.cost.accelerators import Accelerator, check_accelerator
from unicron.planner.cost.constants import Constants, resolved
from unicron.planner.cost.memory import stage_parameters
from unicron.planner.cost.model import (
    Transformer,
    attention_flops,
    embedding_parameters,
    padded_vocabulary,
)
from unicron.planner.cost.training import (
    Execution,
    Training,
    check_execution,
    micro_batches,
    share,
)


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one iteration, one after the other: `total` is their sum.

    `micro_batches`: the slowest stage's work on its replica's share, its sends included.
    `bubble`: filling and draining the pipeline. `exchange`: what of the gradient exchange isn't
    hidden. `optimizer`: norm, clipping, Adam.
    """

    micro_batches: float
    bubble: float
    exchange: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.micro_batches + self.bubble + self.exchange + self.optimizer


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds one stage spends on one micro-batch. `head`: the output layer and the loss, of the
    last stage; `transfer`: sends to the next stages and back."""

    forward: float
    backward: float
    recompute: float
    head: float
    transfer: float

    @property
    def steady(self) -> float:
        """Of the slowest stage."""
        return self.forward + self.backward + self.recompute + self.head + self.transfer

    @property
    def passing(self) -> float:
        """Of a stage that has no output layer: what the pipeline takes to fill and drain."""
        return self.forward + self.backward + self.recompute + self.transfer


def step_time(
    model: Transformer,
    training: Training,
    execution: Execution,
    device: Accelerator,
    known: Constants | None = None,
) -> StepTime:
    """One iteration. Raises `BadProblem` if the execution doesn't fit the model, or if a figure of
    the device makes no sense."""
    check_execution(model, training, execution)
    check_accelerator(device)
    known = resolved(known)
    stage = stage_time(model, training, execution, device, known)
    parameters = stage_parameters(model, execution, last=False)
    exchange = exchange_time(training, execution, device, known, parameters, stage.backward)
    return StepTime(
        micro_batches=share(training, execution) * stage.steady,
        bubble=(execution.pp - 1) / execution.virtual * stage.passing,
        exchange=exchange + tied_time(model, training, execution, device, known),
        optimizer=optimizer_time(execution, device, known, parameters),
    )


def stage_time(
    model: Transformer,
    training: Training,
    execution: Execution,
    device: Accelerator,
    known: Constants,
) -> StageTime:
    """One micro-batch through one stage; dp matters only as far as `stages_apart` does."""
    layers = model.layers // execution.pp
    attention = _attention_time(model, training, execution, device, known)
    compute = _matrices_time(model, execution, device, known) + attention
    compute += _elementwise_time(model, execution, device, known)
    gathered = _tensor_parallel_time(model, execution, device, known)
    recompute = {"none": 0.0, "selective": attention, "full": compute + gathered}
    return StageTime(
        forward=layers * (compute + gathered),
        backward=layers * (2 * compute + gathered),
        recompute=layers * recompute[execution.recompute],
        head=_head_time(model, execution, device, known),
        transfer=_transfer_time(model, training, execution, device, known),
    )


def stages_apart(training: Training, execution: Execution, device: Accelerator) -> bool:
    """Whether the pipeline's neighbours sit on different nodes."""
    near = execution.tp * execution.pp
    if training.order == "tp-dp-pp":
        near *= execution.dp
    return near > device.node_devices


def exchange_time(
    training: Training,
    execution: Execution,
    device: Accelerator,
    known: Constants,
    parameters: int,
    backward: float,
) -> float:
    """What replicas need to add up the gradients of a device's `parameters`, beyond what `backward`
    seconds hide.

    A ring moves 2 (d - 1)/d of them; with the distributed optimizer the second half are bf16
    weights. The exact sum sends each root by itself, so the first half r times for r roots.
    """
    dp = execution.dp
    if dp == 1:
        return 0.0
    scattered = training.gradient_bytes * mean_roots(training, execution)
    gathered = 2 if execution.distributed_optimizer else training.gradient_bytes
    rate = _replica_rate(training, execution, device, known)
    moved = parameters * (scattered + gathered) * (dp - 1) / dp / rate
    moved += 2 * dp.bit_length() * known.inter_latency_s
    if training.overlap:
        moved = max(known.exposed_share * moved, moved - backward)
    return moved


def tied_time(
    model: Transformer,
    training: Training,
    execution: Execution,
    device: Accelerator,
    known: Constants,
) -> float:
    """In a pipeline a tied embedding has two copies, whose gradients are added after the last
    micro-batch."""
    if execution.pp == 1 or not model.tied_embeddings:
        return 0.0
    size = embedding_parameters(model, execution.tp) * training.gradient_bytes
    return size / _between_nodes(device, known) + known.inter_latency_s


def optimizer_time(
    execution: Execution, device: Accelerator, known: Constants, parameters: int
) -> float:
    """The update of a device's `parameters`, bound by memory; the distributed optimizer does its
    shard only."""
    shards = execution.dp if execution.distributed_optimizer else 1
    return parameters * known.optimizer_bytes / shards / _memory_rate(device, known)


# --- rates ----------------------------------------------------------------------------------------


def _memory_rate(device: Accelerator, known: Constants) -> float:
    return device.hbm_bytes_per_s * known.hbm_efficiency


def _inside_node(device: Accelerator, known: Constants) -> float:
    return device.intra_bytes_per_s * known.intra_efficiency


def _between_nodes(device: Accelerator, known: Constants) -> float:
    return device.inter_bytes_per_s * known.inter_efficiency


def _replica_rate(
    training: Training, execution: Execution, device: Accelerator, known: Constants
) -> float:
    """Bytes per second of a ring through the replicas: the members of a node share its cards."""
    near = execution.tp * (execution.pp if training.order == "tp-pp-dp" else 1)
    together = max(1, device.node_devices // near)
    inside = _inside_node(device, known)
    if execution.dp <= together:
        return inside
    return min(inside, together * _between_nodes(device, known))


def _gemm(flops: float, smallest: int, device: Accelerator, known: Constants) -> float:
    """A matrix product: small dimensions leave the device's units partly idle."""
    reached = device.achievable_gflops * 1e9 * known.gemm_efficiency
    return flops / (reached * (smallest / (smallest + known.gemm_half)))


# --- one layer, forward ---------------------------------------------------------------------------


def _matrices_time(
    model: Transformer, execution: Execution, device: Accelerator, known: Constants
) -> float:
    """Projections and MLP. Each is rows x inner x outer; tensor parallelism splits one of them."""
    tokens = execution.micro_batch * model.sequence
    hidden, tp = model.hidden, execution.tp
    up = (2 if model.swiglu else 1) * model.ffn
    seconds = 0.0
    for split in (hidden + 2 * model.key_value, hidden, up, model.ffn):
        part = split // tp
        seconds += _gemm(2 * tokens * hidden * part, min(tokens, hidden, part), device, known)
    return seconds


def _attention_time(
    model: Transformer,
    training: Training,
    execution: Execution,
    device: Accelerator,
    known: Constants,
) -> float:
    """Scores, softmax, weighted values. A fused kernel needs half the products (causal mask);
    otherwise 11 bytes of every score go through memory: written, masked, dropped out, read."""
    tokens = execution.micro_batch * model.sequence
    flops = attention_flops(model) * tokens / execution.tp
    if training.fused_attention:
        reached = device.achievable_gflops * 1e9 * known.fused_attention_efficiency
        return flops / 2 / reached
    scores = 11 * model.heads * model.sequence * tokens / execution.tp
    return _gemm(flops, model.sequence, device, known) + scores / _memory_rate(device, known)


def _elementwise_time(
    model: Transformer, execution: Execution, device: Accelerator, known: Constants
) -> float:
    """Norms, dropouts and residuals (22 h bytes a token), activation and reshapes (24 h for the
    plain layer), bound by memory."""
    tokens = execution.micro_batch * model.sequence
    whole = 22 * model.hidden / (execution.tp if execution.sequence_parallel else 1)
    mlp = (6 if model.swiglu else 4) * model.ffn
    split = (4 * model.hidden + 4 * model.key_value + mlp) / execution.tp
    return tokens * (whole + split) / _memory_rate(device, known)


def _tensor_parallel_time(
    model: Transformer, execution: Execution, device: Accelerator, known: Constants
) -> float:
    """Two all-reduces of an activation; as reduce-scatter and all-gather they move as much."""
    tp = execution.tp
    if tp == 1:
        return 0.0
    size = 2 * execution.micro_batch * model.sequence * model.hidden
    if tp <= device.node_devices:
        rate, latency = _inside_node(device, known), known.intra_latency_s
    else:
        rate = min(_inside_node(device, known), device.node_devices * _between_nodes(device, known))
        latency = known.inter_latency_s
    return 2 * (2 * (tp - 1) / tp * size / rate + latency)


# --- the rest of a stage --------------------------------------------------------------------------


def _head_time(
    model: Transformer, execution: Execution, device: Accelerator, known: Constants
) -> float:
    """Output layer and loss, forward and backward: three products, and the fp32 logits nine times
    through memory."""
    tokens = execution.micro_batch * model.sequence
    part = padded_vocabulary(model, execution.tp) // execution.tp
    flops = 2 * tokens * model.hidden * part
    products = 3 * _gemm(flops, min(tokens, model.hidden, part), device, known)
    return products + 9 * 4 * tokens * part / _memory_rate(device, known)


def _transfer_time(
    model: Transformer,
    training: Training,
    execution: Execution,
    device: Accelerator,
    known: Constants,
) -> float:
    """An activation to the next stage and a gradient back, for each chunk; 1/t on each link."""
    if execution.pp == 1:
        return 0.0
    size = 2 * execution.micro_batch * model.sequence * model.hidden / execution.tp
    inside = not stages_apart(training, execution, device)
    rate = _inside_node(device, known) if inside else _between_nodes(device, known)
    latency = known.intra_latency_s if inside else known.inter_latency_s
    return 2 * execution.virtual * (size / rate + latency)


def mean_roots(training: Training, execution: Execution) -> float:
    """Roots that a replica sends, on average: the ones in the binary digits of its share, if shares
    lie well in the tree; at its right edge there may be fewer."""
    if not training.exact:
        return 1.0
    least, more = divmod(micro_batches(training, execution), execution.dp)
    fewer = execution.dp - more
    return (fewer * least.bit_count() + more * (least + 1).bit_count()) / execution.dp
