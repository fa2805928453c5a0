"""One micro-batch through Megatron's own schedule."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from megatron.core.pipeline_parallel import get_forward_backward_func

from unicron.events.task import TaskSpec
from unicron.worker_shim.megatron.model import Built, seed_streams
from unicron.worker_shim.megatron.text import Text, mix

Batch = tuple[torch.Tensor, torch.Tensor]

_SEEDS = 2**31 - 10_000  # Megatron adds a few thousand to a seed


class Compute:
    """Runs forward and backward passes of one replica."""

    def __init__(
        self, spec: TaskSpec, built: Built, text: Text, phase: Callable[[str, int], None]
    ) -> None:
        self._spec = spec
        self._built = built
        self._text = text
        self._phase = phase
        length = spec.model.seq_length
        self._positions = torch.arange(length)[None]
        self._mask = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1)

    def run(self, iteration: int, micro_batch: int) -> float:
        """Leave the gradient of this micro-batch alone in the buffers; return its loss, summed
        over its tokens. The same bits whoever runs it, and whatever ran before."""
        self._phase("forward", micro_batch)
        # Whatever a broken pass or an earlier reduction left in the buffers goes.
        self._built.ddp.zero_grad_buffer()
        seed_streams(mix(self._spec.seed, iteration, micro_batch) % _SEEDS)
        batch = self._text.micro_batch(iteration, micro_batch)
        size = self._spec.model

        def forward(batches: Iterator[Batch], model: Any) -> tuple[torch.Tensor, Any]:
            tokens, labels = next(batches)
            losses = model(tokens, self._positions, self._mask, labels=labels)
            return losses, total

        def total(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            self._phase("backward", micro_batch)
            loss = losses.float().sum()
            return loss, torch.tensor(losses.numel(), dtype=torch.int), loss.detach()

        (loss,) = get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter([batch]),
            model=[self._built.ddp],
            num_microbatches=1,
            seq_length=size.seq_length,
            micro_batch_size=size.micro_batch_size,
            forward_only=False,
        )
        return float(loss.item())
