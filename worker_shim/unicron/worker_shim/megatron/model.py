"""A task's model, gradient buffers, optimizer and schedule, as Megatron builds them.

Everything is built in a world of this process alone (`groups.Groups.apart`), so building runs no
collective and a joiner can get ready while the others train. The initial state depends on the
task's seed only.
"""

from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

from unicron.events.task import TaskSpec

_PER_MILLION = 1e-6
_PER_BILLION = 1e-9


@dataclass
class Built:
    """One replica: Megatron's own objects."""

    config: Any  # TransformerConfig
    ddp: Any  # DistributedDataParallel around GPTModel
    optimizer: Any  # ChainedOptimizer around one FP32 or Float16 optimizer
    scheduler: Any  # OptimizerParamScheduler, counted in iterations

    @property
    def buffers(self) -> list[torch.Tensor]:
        """Gradient buffers, 1-D float32, one for each dtype of parameters."""
        return [buffer.grad_data for buffer in self.ddp.buffers]

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.ddp.parameters())


def build(spec: TaskSpec) -> Built:
    """Build the replica. ValueError when the task asks for what this adapter can't do yet."""
    _check(spec)
    seed_streams(spec.seed)
    config = _transformer_config(spec)
    model: Any = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(normalization="LayerNorm"),
        vocab_size=spec.model.vocab_size,
        max_sequence_length=spec.model.seq_length,
        share_embeddings_and_output_weights=False,
        position_embedding_type="rope",
    )
    if spec.model.bf16:
        model = Float16Module(config, model)
    # Overlapped reduction would start an all-reduce of its own from inside the backward pass.
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=False, use_distributed_optimizer=False
    )
    ddp = DistributedDataParallel(config=config, ddp_config=ddp_config, module=model)
    optimizer = get_megatron_optimizer(
        _optimizer_config(spec), [ddp], use_gloo_process_groups=False
    )
    return Built(config, ddp, optimizer, _scheduler(spec, optimizer))


def seed_streams(seed: int) -> None:
    """Set every random stream a forward pass draws from: CUDA's (hidden dropout) and the tracker's
    (attention dropout). Takes this rank's place in TP and EP as 0, the only one there is."""
    torch.default_generator.manual_seed(seed)
    model_parallel_cuda_manual_seed(seed, tp_rank=0, ep_rank=0, etp_rank=0)


def _check(spec: TaskSpec) -> None:
    if (spec.tensor_parallel, spec.pipeline_parallel) != (1, 1):
        raise ValueError(
            f"task {spec.task}: this adapter trains with TP = PP = 1,"
            f" not {spec.tensor_parallel} x {spec.pipeline_parallel}"
        )
    if spec.model.vocab_size < 256:
        raise ValueError(f"task {spec.task}: tokens are bytes, the vocabulary needs 256 or more")


def _transformer_config(spec: TaskSpec) -> Any:
    size = spec.model
    dtype = torch.bfloat16 if size.bf16 else torch.float32
    dropout = size.dropout_ppm * _PER_MILLION
    return TransformerConfig(
        num_layers=size.num_layers,
        hidden_size=size.hidden_size,
        num_attention_heads=size.num_attention_heads,
        ffn_hidden_size=4 * size.hidden_size,
        hidden_dropout=dropout,
        attention_dropout=dropout,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=size.bf16,
        # Initial weights come from the CPU's generator: equal on every kind of device.
        use_cpu_initialization=True,
        # Gradients are sums over tokens, scaled once by 1 / all tokens: nothing depends on DP.
        calculate_per_token_loss=True,
        # We call it ourselves, with the tokens of kept micro-batches too.
        finalize_model_grads_func=None,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
    )


def _optimizer_config(spec: TaskSpec) -> Any:
    wanted = spec.optimizer
    return OptimizerConfig(
        optimizer="adam",
        lr=wanted.lr_ppb * _PER_BILLION,
        min_lr=wanted.min_lr_ppb * _PER_BILLION,
        weight_decay=wanted.weight_decay_ppb * _PER_BILLION,
        clip_grad=wanted.clip_grad_ppm * _PER_MILLION,
        bf16=spec.model.bf16,
        params_dtype=torch.bfloat16 if spec.model.bf16 else torch.float32,
        use_distributed_optimizer=False,
    )


def _scheduler(spec: TaskSpec, optimizer: Any) -> Any:
    """Learning rate and weight decay as a function of the number of committed iterations."""
    wanted = spec.optimizer
    decay = wanted.weight_decay_ppb * _PER_BILLION
    return OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=wanted.lr_ppb * _PER_BILLION,
        min_lr=wanted.min_lr_ppb * _PER_BILLION,
        lr_warmup_steps=wanted.warmup_iterations,
        lr_decay_steps=wanted.decay_iterations,
        lr_decay_style="cosine",
        start_wd=decay,
        end_wd=decay,
        wd_incr_steps=wanted.decay_iterations,
        wd_incr_style="constant",
    )
