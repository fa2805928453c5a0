"""The gradient norm of a replica that has the whole gradient, without a collective.

Megatron ends its norm with an all-reduce over the model-parallel group, which at TP = PP = 1 is
this rank alone. It changes nothing, but it needs a process group, and a member must be able to step
after its generation is gone.
"""

import types
from typing import Any

import torch
from megatron.core.optimizer import clip_grads


def use_local_norm(optimizer: Any) -> None:
    """Replace ``optimizer/optimizer.py:get_grad_norm`` of this ChainedOptimizer."""
    optimizer.get_grad_norm = types.MethodType(_local_norm, optimizer)


@torch.no_grad()
def _local_norm(optimizer: Any) -> float:
    """As ``optimizer/clip_grads.py:get_grad_norm_fp32`` up to its all-reduces, to the same bits."""
    gradients = [
        gradient
        for part in optimizer.chained_optimizers
        for gradient in part.get_main_grads_for_grad_norm()
    ]
    overflow = torch.zeros(1, dtype=torch.int, device=gradients[0].device)
    norm, _ = clip_grads.multi_tensor_applier(clip_grads.l2_norm_impl, overflow, [gradients], False)
    return float((norm**2.0).item() ** 0.5)
