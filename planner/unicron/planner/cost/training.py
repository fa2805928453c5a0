"""How a task is trained, and how one size of it is laid out over devices."""

from __future__ import annotations

from typing import Literal

import msgspec

from unicron.planner.cost.model import Transformer, check_model
from unicron.planner.cost.validity import (
    require_flags,
    require_one_of,
    require_positive,
    require_split,
)
from unicron.planner.errors import BadProblem
from unicron.planner.problem import Layout

Recompute = Literal["none", "selective", "full"]
Order = Literal["tp-dp-pp", "tp-pp-dp"]

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
ORDERS: tuple[Order, ...] = ("tp-dp-pp", "tp-pp-dp")


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same whatever the size.

    `global_batch` in samples. `exact`: gradients are added in Unicron's tree, which costs buffers
    and excludes overlap, but makes sizes with the same tp, pp and micro-batch bit-identical.
    `overlap`: the exchange runs beside the last backward pass. `gradient_bytes`: of one exchanged
    gradient element. `fused_attention`: scores never reach memory. `order`: which neighbours a rank
    has, named as Megatron does.
    """

    global_batch: int
    exact: bool = True
    overlap: bool = False
    gradient_bytes: int = 4
    fused_attention: bool = True
    order: Order = "tp-dp-pp"


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One way to lay a model out over tp x pp x dp devices.

    `virtual`: model chunks a device has (interleaved schedule); 1 is the plain one. `micro_batch`
    in samples.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    virtual: int = 1
    micro_batch: int = 1
    recompute: Recompute = "none"
    sequence_parallel: bool = False
    distributed_optimizer: bool = False

    @property
    def devices(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def layout(self) -> Layout:
        return Layout(tp=self.tp, pp=self.pp, dp=self.dp)


def micro_batches(training: Training, execution: Execution) -> int:
    """Micro-batches of the whole global batch."""
    return training.global_batch // execution.micro_batch


def share(training: Training, execution: Execution) -> int:
    """Micro-batches of the replica that has most: ceil(M / dp). Shares may be uneven."""
    return -(-micro_batches(training, execution) // execution.dp)


def check_training(training: Training) -> None:
    """Raise `BadProblem` naming the first field that makes no sense."""
    require_positive(global_batch=training.global_batch, gradient_bytes=training.gradient_bytes)
    require_flags(
        exact=training.exact, overlap=training.overlap, fused_attention=training.fused_attention
    )
    require_one_of("order", training.order, ORDERS)
    if training.exact and training.overlap:
        raise BadProblem(
            "overlap", "excludes the exact gradient tree", "set either exact or overlap to false"
        )


def check_execution(model: Transformer, training: Training, execution: Execution) -> None:
    """Raise `BadProblem` naming the first field that doesn't fit the model or the batch."""
    check_model(model)
    check_training(training)
    tp, pp = execution.tp, execution.pp
    require_positive(
        tp=tp,
        pp=pp,
        dp=execution.dp,
        virtual=execution.virtual,
        micro_batch=execution.micro_batch,
    )
    require_one_of("recompute", execution.recompute, RECOMPUTE)
    require_flags(
        sequence_parallel=execution.sequence_parallel,
        distributed_optimizer=execution.distributed_optimizer,
    )
    require_split("tp", tp, "heads", model.heads)
    require_split("tp", tp, "query groups", model.groups)
    require_split("tp", tp, "units of the MLP", model.ffn)
    require_split("pp", pp, "layers", model.layers)
    require_split("virtual", execution.virtual, "layers a stage", model.layers // pp)
    require_split("micro_batch", execution.micro_batch, "samples", training.global_batch)
    if execution.sequence_parallel:
        require_split("sequence_parallel", tp, "tokens", model.sequence)
    total = micro_batches(training, execution)
    if execution.dp > total:
        raise BadProblem(
            "dp", f"is {execution.dp} with {total} micro-batches", "give each replica at least one"
        )
    if execution.virtual > 1:
        _check_interleaving(execution, total)


def _check_interleaving(execution: Execution, total: int) -> None:
    """Megatron's interleaved schedule takes turns in groups of pp micro-batches."""
    if execution.pp == 1:
        raise BadProblem("virtual", "needs a pipeline", "set virtual to 1 or pp above 1")
    if total % (execution.dp * execution.pp):
        raise BadProblem(
            "virtual",
            f"{total} micro-batches on {execution.dp} replicas are no multiples of pp "
            f"{execution.pp}",
            "set virtual to 1, or choose dp so that each share is a multiple of pp",
        )
