"""The gradient norm of a replica that has the whole gradient, without a collective.

Megatron ends its norm with an all-reduce over the model-parallel group, which at TP = PP = 1 is
this rank alone. It changes nothing, but it needs a process group, and a member must be able to step
after its generation is gone.
"""

from typing import Any

import torch
from megatron.core.optimizer import clip_grads
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate
from megatron.core.transformer.module import param_is_not_shared


def use_local_norm(optimizer: Any) -> None:
    """Replace ``optimizer/optimizer.py:get_grad_norm`` of this ChainedOptimizer. To be called while
    it still has process groups: they say which parameters count."""
    parameters = [
        parameter
        for part in optimizer.chained_optimizers
        for parameter in part.get_parameters()
        if param_is_not_shared(parameter)
        and param_is_not_tensor_parallel_duplicate(parameter, part.tp_group)
    ]

    @torch.no_grad()
    def norm() -> float:
        """As ``optimizer/clip_grads.py:get_grad_norm_fp32`` before its all-reduces, to the bit."""
        gradients = [parameter.grad for parameter in parameters]
        overflow = torch.zeros(1, dtype=torch.int, device=parameters[0].device)
        total, _ = clip_grads.multi_tensor_applier(
            clip_grads.l2_norm_impl, overflow, [gradients], False
        )
        return float((total**2.0).item() ** 0.5)

    optimizer.get_grad_norm = norm
