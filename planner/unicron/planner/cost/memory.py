"""Bytes a device needs while it trains: parameters, optimizer, gradient tree, activations, logits.

Sources: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
2022 (arXiv 2205.05198): eq. 2 for the activations of a layer under tensor parallelism, eq. 4 with
sequence parallelism, section 4.2.3 for those of a pipeline's first stage, section 5 for selective
recomputation. D. Narayanan et al., 2021 (arXiv 2104.04473), section 2.2, for the schedules.

The device that holds most is looked for at both ends of the pipeline: the first stage has most
micro-batches in flight, the last has the logits. Whole numbers throughout; halves are rounded up.
"""

from __future__ import annotations

import msgspec

from unicron.planner.cost.constants import Constants, resolved
from unicron.planner.cost.model import (
    Transformer,
    embedding_parameters,
    layer_parameters,
    norm_parameters,
    padded_vocabulary,
)
from unicron.planner.cost.training import (
    Execution,
    Training,
    check_execution,
    micro_batches,
    share,
)

# A parameter in mixed precision: bf16 weight, fp32 gradient, fp32 master weight and two moments.
WEIGHT_BYTES = 2
GRADIENT_BYTES = 4
OPTIMIZER_BYTES = 12


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of the device that holds most, by what they are for.

    `tree`: buffers of the exact gradient sum beyond the gradients themselves. `fixed`: context,
    communicators, workspaces, fragmentation.
    """

    weights: int
    gradients: int
    optimizer: int
    tree: int
    activations: int
    logits: int
    fixed: int

    @property
    def total(self) -> int:
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.tree
            + self.activations
            + self.logits
            + self.fixed
        )


class Footprint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one device of a stage holds, as far as it doesn't depend on the number of replicas.

    `layer_bytes`: kept by one layer for one micro-batch. `chunk`: layers of a model chunk.
    `ahead`: chunks whose forward pass is done when the first backward pass begins. `working`: what
    a recomputed layer needs beside.
    """

    parameters: int
    layer_bytes: int
    chunk: int
    ahead: int
    virtual: int
    working: int
    logits: int
    fixed: int

    def activations(self, micro_batches: int) -> int:
        """Bytes kept for backward passes by a replica with so many micro-batches."""
        in_flight = self.chunk * min(self.ahead + 1, micro_batches * self.virtual)
        return self.layer_bytes * in_flight + self.working

    def total(self, micro_batches: int, buffers: int, shards: int) -> int:
        """Bytes in all: `buffers` of the gradient tree, optimizer state in `shards`."""
        state = (WEIGHT_BYTES + GRADIENT_BYTES * (1 + buffers)) * self.parameters
        state += -(-OPTIMIZER_BYTES * self.parameters // shards)
        return state + self.activations(micro_batches) + self.logits + self.fixed


def memory_needed(
    model: Transformer,
    training: Training,
    execution: Execution,
    known: Constants | None = None,
) -> Memory:
    """What the fullest device holds. Raises `BadProblem` if the execution doesn't fit the model."""
    check_execution(model, training, execution)
    most = share(training, execution)
    buffers = tree_buffers(training, execution)
    shards = execution.dp if execution.distributed_optimizer else 1
    fullest = max(
        footprints(model, training, execution, resolved(known)),
        key=lambda stage: stage.total(most, buffers, shards),
    )
    return Memory(
        weights=WEIGHT_BYTES * fullest.parameters,
        gradients=GRADIENT_BYTES * fullest.parameters,
        optimizer=-(-OPTIMIZER_BYTES * fullest.parameters // shards),
        tree=GRADIENT_BYTES * fullest.parameters * buffers,
        activations=fullest.activations(most),
        logits=fullest.logits,
        fixed=fullest.fixed,
    )


def footprints(
    model: Transformer, training: Training, execution: Execution, known: Constants
) -> tuple[Footprint, ...]:
    """Of the first stage and of the last; of the only one if there is no pipeline."""
    whole = execution.pp == 1
    return tuple(
        _footprint(model, training, execution, known, last=last)
        for last in ((True,) if whole else (False, True))
    )


def stage_parameters(model: Transformer, execution: Execution, *, last: bool) -> int:
    """Parameters of one device of the first or last stage; norms are counted as split, too."""
    layers = model.layers // execution.pp * layer_parameters(model)
    words = embedding_parameters(model, execution.tp) * execution.tp
    both = execution.pp == 1
    ends = 0
    if both or not last:
        ends += words + (model.sequence * model.hidden if model.learned_positions else 0)
    if both or last:
        # Behind a pipeline the output layer has weights of its own, tied or not.
        ends += norm_parameters(model) + (0 if both and model.tied_embeddings else words)
    return -(-(layers + ends) // execution.tp)


def layer_activations(model: Transformer, training: Training, execution: Execution) -> int:
    """Bytes that one layer keeps of one micro-batch for its backward pass.

    Korthikanti eq. 2, `s b h (10 + 24/t + 5 a s / h t)`; with sequence parallelism (eq. 4) the 10
    is divided by t, too; selective recomputation and fused attention drop the last term. Of the
    24, 16 are the MLP's and follow its width (6 x ffn with a gate); of the other 8, 4 are keys and
    values. Full recomputation keeps the layer's input, 2 s b h.
    """
    tokens = execution.micro_batch * model.sequence
    whole = execution.tp if execution.sequence_parallel else 1
    if execution.recompute == "full":
        return -(-2 * tokens * model.hidden // whole)
    stored = execution.recompute == "none" and not training.fused_attention
    return _working_set(model, execution, scores=stored)


def _working_set(model: Transformer, execution: Execution, *, scores: bool) -> int:
    """All that a layer writes for its backward pass, with or without the attention scores."""
    tokens = execution.micro_batch * model.sequence
    whole = 10 * model.hidden
    mlp = (6 if model.swiglu else 4) * model.ffn
    split = 4 * model.hidden + 4 * model.key_value + mlp
    if scores:
        split += 5 * model.heads * model.sequence
    if execution.sequence_parallel:
        return -(-tokens * (whole + split) // execution.tp)
    return tokens * whole + -(-tokens * split // execution.tp)


def tree_buffers(training: Training, execution: Execution) -> int:
    """Gradient-sized buffers of the exact sum: partial sums, and roots that were received.

    A replica with q micro-batches holds at most 1 + log2(q) partial sums; one more is set aside
    for what a loss leaves behind. In the exchange it receives its slice of everybody's roots; a
    share has as many roots as its binary digits ones, if shares lie well in the tree. None for one
    replica with one micro-batch, and without the exact sum.
    """
    total = micro_batches(training, execution)
    if not training.exact or total == 1:
        return 0
    least, more = divmod(total, execution.dp)
    most = least + (more > 0)
    if execution.dp == 1:
        return most.bit_length()
    return most.bit_length() + 1 + max(least.bit_count(), most.bit_count())


def _footprint(
    model: Transformer, training: Training, execution: Execution, known: Constants, *, last: bool
) -> Footprint:
    """Plain schedule: min(p, m) micro-batches in flight at the first stage, one at the last.
    Interleaved: the first device has run 2 (p - 1) + (v - 1) p chunks ahead when its first backward
    pass begins, which makes `l (1 + (p - 1)/(p v))` in all, and the last one (v - 1) p."""
    pp, virtual = execution.pp, execution.virtual
    ahead = (virtual - 1) * pp + (0 if last else (2 if virtual > 1 else 1) * (pp - 1))
    recomputed = execution.recompute == "full"
    scores = not training.fused_attention
    return Footprint(
        parameters=stage_parameters(model, execution, last=last),
        layer_bytes=layer_activations(model, training, execution),
        chunk=model.layers // (pp * virtual),
        ahead=ahead,
        virtual=virtual,
        working=_working_set(model, execution, scores=scores) if recomputed else 0,
        logits=_logits(model, execution) if last else 0,
        fixed=int(known.fixed_memory_bytes),
    )


def _logits(model: Transformer, execution: Execution) -> int:
    """The last norm's and the output layer's inputs, and logits in fp32 (section 4.3)."""
    tokens = execution.micro_batch * model.sequence
    whole = execution.tp if execution.sequence_parallel else 1
    inputs = -(-4 * tokens * model.hidden // whole)
    return inputs + 4 * tokens * padded_vocabulary(model, execution.tp) // execution.tp
