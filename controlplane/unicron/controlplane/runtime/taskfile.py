"""Task files: a TaskSpec as TOML or JSON, read strictly."""

from collections.abc import Iterable
from pathlib import Path

from unicron.controlplane.core.admission import fault_of
from unicron.controlplane.runtime.strictfile import read_strictly
from unicron.events import ConfigError, Planning, TaskSpec

_CODE = "E-TASK-FILE"


def read_tasks(paths: Iterable[str]) -> tuple[TaskSpec, ...]:
    """The tasks of these files. Raises ConfigError that names the file, the field and the fix."""
    return tuple(_read(Path(path)) for path in paths)


def _read(path: Path) -> TaskSpec:
    see = "see TaskSpec in docs/events.md"
    spec = read_strictly(path, TaskSpec, what="task", see=see, code=_CODE)
    _refuse_nonsense(path, spec)
    return spec


def _refuse_nonsense(path: Path, spec: TaskSpec) -> None:
    size = spec.model
    rules = (
        ("task", spec.task != "" and set(spec.task) <= _NAME, "letters, digits, - and _"),
        ("iterations", spec.iterations >= 1, "at least 1"),
        ("micro_batches", spec.micro_batches >= 1, "at least 1"),
        ("weight_milli", spec.weight_milli >= 1, "at least 1"),
        ("min_devices", 1 <= spec.min_devices <= spec.max_devices, "1 to max_devices"),
        ("max_devices", spec.max_devices >= 1, "at least 1"),
        ("model.num_layers", size.num_layers >= 1, "at least 1"),
        ("model.vocab_size", size.vocab_size >= 256, "at least 256, tokens are bytes"),
        (
            "model.hidden_size",
            size.num_attention_heads >= 1 and size.hidden_size % size.num_attention_heads == 0,
            "a multiple of num_attention_heads",
        ),
    )
    for name, holds, wanted in rules:
        if not holds:
            raise ConfigError(f"{path}: {name} doesn't fit", fix=f"give {wanted}", code=_CODE)
    if fault := fault_of(spec, Planning()):
        raise ConfigError(f"{path}: the task can't be run", why=fault, code=_CODE)


_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
