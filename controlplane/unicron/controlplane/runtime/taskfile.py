"""Task files: a TaskSpec as TOML or JSON, read strictly."""

import difflib
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from unicron.events import ConfigError, TaskSpec

_CODE = "E-TASK-FILE"


def read_tasks(paths: Iterable[str]) -> tuple[TaskSpec, ...]:
    """The tasks of these files. Raises ConfigError that names the file, the field and the fix."""
    return tuple(_read(Path(path)) for path in paths)


def _read(path: Path) -> TaskSpec:
    try:
        text = path.read_text()
        given = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(
            f"can't read the task file {path}", why=error.strerror or str(error), code=_CODE
        ) from error
    except ValueError as error:  # both parsers' errors, and bytes that are no text
        raise ConfigError(
            f"{path} is not {'TOML' if path.suffix == '.toml' else 'JSON'}",
            why=str(error),
            fix="name a TOML file *.toml; anything else is read as JSON",
            code=_CODE,
        ) from error
    try:
        spec = msgspec.convert(given, TaskSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{path} is no task", why=str(error), fix="see TaskSpec in docs/events.md", code=_CODE
        ) from error
    _refuse_unknown(path, given, msgspec.to_builtins(spec), "")
    _refuse_nonsense(path, spec)
    return spec


def _refuse_unknown(path: Path, given: dict[str, Any], known: dict[str, Any], where: str) -> None:
    """On the wire an unknown field may come from a newer version; in a file it is a slip."""
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise ConfigError(
                f"{path} has an unknown key {where}{key}",
                fix=f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}",
                code="E-UNKNOWN-KEY",
            )
        if isinstance(value, dict):
            _refuse_unknown(path, value, known[key], f"{where}{key}.")


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


_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
