"""Tables in TOML, read strictly: every complaint names the file, the place and what to do."""

from __future__ import annotations

import difflib
import pkgutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from unicron.planner.errors import BadProblem

#: More than any table or problem takes: what never ends, such as a device, isn't read for ever.
BYTES_MAX = 128 * 1024 * 1024

_Row = TypeVar("_Row", bound=msgspec.Struct)


def shipped(name: str) -> Mapping[str, object]:
    """A table that comes with this package."""
    content = pkgutil.get_data("unicron.planner.cost", f"data/{name}")
    assert content is not None, f"{name} is missing from the installation"
    return tomllib.loads(content.decode())


def table_in(path: Path | str) -> Mapping[str, object]:
    """A table in a user's file. Raises `BadProblem` if it can't be read or isn't TOML."""
    try:
        return tomllib.loads(text_in(path))
    except OSError as error:
        why = error.strerror or str(error)
        raise BadProblem(str(path), f"can't be read: {why}", "give a readable file") from None
    except ValueError as error:  # no TOML, or no text at all
        raise BadProblem(str(path), f"is not TOML: {error}", "correct it there") from None
    except RecursionError:
        raise BadProblem(str(path), "is nested too deeply", "correct it there") from None


def text_in(path: Path | str) -> str:
    """The text of a file, a pipe or a device. Raises `OSError`, and `ValueError` for what is no
    UTF-8; `BadProblem` if it is larger than `BYTES_MAX`."""
    with Path(path).open("rb") as file:
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise BadProblem(
            str(path), f"is larger than {BYTES_MAX // 1024**2} MiB", "give a smaller file"
        )
    return content.decode("utf-8-sig")


def row(value: object, kind: type[_Row], place: str) -> _Row:
    """One row as `kind`. Raises `BadProblem` for unknown and missing keys and for wrong types."""
    if not isinstance(value, Mapping):
        raise BadProblem(place, f"is {value!r}", "make it a table")
    known = kind.__struct_fields__
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            fix = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise BadProblem(f"{place}.{key}", "is no field here", fix)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, inner = str(error).partition(" - at `$")
        where = f"{place}{inner.strip('`')}"
        raise BadProblem(where, reason, f"fields: {', '.join(known)}") from None
