"""What a fork server imports before it forks: the one list, and the settings that go before it."""

import importlib
import importlib.util
import os
import warnings

from unicron.events.errors import ConfigError

#: One thread in every library: results must not depend on the number of cores, and a process
#: with threads can't fork. Read by the libraries when they load, so set before any import.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

#: All that a worker uses, so that a fork has it at once. In the order of import.
MODULES = (
    "numpy",
    "torch",
    "torch.distributed",
    "megatron.core.parallel_state",
    "megatron.core.distributed",
    "megatron.core.distributed.finalize_model_grads",
    "megatron.core.models.gpt",
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.optimizer",
    "megatron.core.pipeline_parallel.schedules",
    "megatron.core.tensor_parallel.random",
    "unicron.worker_shim.transport",
)

MODES = ("megatron", "none")


def set_environment(folder: str) -> None:
    """Must run before numpy or torch is imported by anyone in the process. `folder` takes what
    torch would otherwise leave in the machine's temporary folder."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(folder, "torchinductor"))
    for name in THREADS:
        os.environ[name] = "1"
    # Every broken collective would print a C++ stack; what broke is reported as a fact.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def preload(mode: str, entry: str) -> None:
    """Import everything for `mode`; "none" imports nothing. `entry`: ``module:function`` of the
    worker, whose module is imported too. Raises ConfigError if something isn't installed."""
    if mode == "none":
        return
    own = entry.partition(":")[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Megatron tells of optional parts it lacks
            for name in MODULES:
                importlib.import_module(name)
            if importlib.util.find_spec(own) is not None:
                importlib.import_module(own)
        importlib.import_module("torch").set_num_threads(1)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the module {error.name} isn't installed, so no worker can train here",
            fix='pip install "unicron-controlplane[worker]" into this environment',
            code="E-WORKER-EXTRA",
        ) from error
