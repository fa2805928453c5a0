"""Run megatron-core 0.16 on a CPU with gloo: every assumption of CUDA it makes on our way.

Each patch names the Megatron calls it serves (file:function below megatron/core); no file of
Megatron is edited and no configuration flag is needed. Where CUDA is available `apply` does
nothing.

What is not patched because it isn't reached at TP = PP = 1: ``torch.cuda.synchronize``
(p2p_communication.py), ``Tensor.cuda`` (language_module.py, tied embeddings over stages).
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.tensor_parallel import random as megatron_random

#: Called with the patch's name and the Megatron call site that reached it, ``file:function``.
Recorder = Callable[[str, str], None]

_CPU = torch.device("cpu")
_recorder: Recorder | None = None
_applied = False


@dataclass(frozen=True)
class Patch:
    """`serves`: the places in Megatron that call what is patched while a task builds and trains."""

    name: str
    serves: tuple[str, ...]
    install: Callable[[str], None]


def apply() -> bool:
    """Install all patches, once per process. True if they are in force, False on a CUDA host."""
    global _applied  # noqa: PLW0603 - the patches are the process's, and so is this
    if torch.cuda.is_available():
        return False
    if not _applied:
        for patch in PATCHES:
            patch.install(patch.name)
        _applied = True
    return True


def record(recorder: Recorder | None) -> None:
    """Tell `recorder` of every patched call that Megatron makes from now on; None ends it."""
    global _recorder  # noqa: PLW0603 - as above
    _recorder = recorder


def _fired(name: str) -> None:
    if _recorder is None:
        return
    frame = sys._getframe(2)
    while frame is not None:
        _, found, place = frame.f_code.co_filename.partition("/megatron/core/")
        if found:
            _recorder(name, f"{place}:{frame.f_code.co_name}")
            return
        frame = frame.f_back  # type: ignore[assignment] # None ends the loop


def _current_device(name: str) -> None:
    """Where to allocate: on the CPU."""

    def current_device() -> torch.device:
        _fired(name)
        return _CPU

    torch.cuda.current_device = current_device  # type: ignore[assignment]


def _factories(name: str) -> None:
    """``torch.zeros`` and ``torch.tensor`` with a literal ``device="cuda"``."""

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def create(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
            if device is not None and torch.device(device).type == "cuda":
                _fired(name)
                kwargs["device"] = _CPU
            return original(*args, **kwargs)

        return create

    torch.zeros = wrapped(torch.zeros)
    torch.tensor = wrapped(torch.tensor)


def _random_stream(name: str) -> None:
    """The CUDA random stream is the CPU's default generator.

    `torch.manual_seed` would do the same in 2 ms instead of 40 us: it also queues a seeding of
    CUDA for later, with a formatted stack.
    """

    def manual_seed(seed: int) -> None:
        _fired(name)
        torch.default_generator.manual_seed(int(seed))

    def get_rng_state(device: Any = "cuda") -> torch.Tensor:
        _fired(name)
        return torch.default_generator.get_state()

    torch.cuda.manual_seed = manual_seed
    torch.cuda.get_rng_state = torch.cuda.random.get_rng_state = get_rng_state


def _tracker_states(name: str) -> None:
    """The forked streams of the model-parallel tracker are states of the CPU's generator too, so
    the tracker's warning that the CPU's state changed inside a fork is always true: silenced."""

    def set_state(new_state: torch.Tensor, device: int = -1, graph_safe: bool = False) -> None:
        _fired(name)
        torch.default_generator.set_state(new_state)

    megatron_random._set_cuda_rng_state = set_state
    logging.getLogger(megatron_random.__name__).addFilter(
        lambda entry: "CPU RNG state changed" not in entry.getMessage()
    )


def _type_names(name: str) -> None:
    """Megatron's optimizers ask for a tensor's kind by name: 'torch.cuda.FloatTensor'."""
    original = torch.Tensor.type

    def type_(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is not None:
            return original(self, dtype, *args, **kwargs)
        kind: str = original(self)
        if "/megatron/core/optimizer/" in sys._getframe(1).f_code.co_filename:
            _fired(name)
            return kind.replace("torch.", "torch.cuda.", 1)
        return kind

    torch.Tensor.type = type_  # type: ignore[method-assign,assignment]


PATCHES = (
    Patch(
        "current_device",
        (
            "distributed/param_and_grad_buffer.py:__init__",
            "models/common/embeddings/rotary_pos_embedding.py:get_emb",
        ),
        _current_device,
    ),
    Patch(
        "factories",
        (
            "pipeline_parallel/schedules.py:forward_backward_no_pipelining",
            "optimizer/optimizer.py:__init__",
            "optimizer/clip_grads.py:clip_grad_by_total_norm_fp32",
        ),
        _factories,
    ),
    Patch(
        "random_stream",
        (
            "tensor_parallel/random.py:model_parallel_cuda_manual_seed",
            "tensor_parallel/random.py:add",
            "tensor_parallel/random.py:_get_cuda_rng_state",
        ),
        _random_stream,
    ),
    Patch(
        "tracker_states",
        ("tensor_parallel/random.py:add", "tensor_parallel/random.py:fork"),
        _tracker_states,
    ),
    Patch("type_names", ("optimizer/clip_grads.py:clip_grad_by_total_norm_fp32",), _type_names),
)
