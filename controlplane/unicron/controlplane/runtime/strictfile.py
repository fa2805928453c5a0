"""Files that people write, in TOML or JSON, read strictly: what isn't understood is refused."""

import difflib
import json
import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from unicron.events import ConfigError
from unicron.planner.plain import unique_keys

#: Larger than any of them is; what never ends, such as a device, isn't read for ever.
_BYTES_MAX = 16 * 1024 * 1024

_Shape = TypeVar("_Shape", bound=msgspec.Struct)


def read_strictly(path: Path, shape: type[_Shape], *, what: str, see: str, code: str) -> _Shape:
    """What the file holds: TOML if its name ends in .toml, else JSON. `what` it should be, and
    where one can `see` how, are for the errors, whose code is `code`.

    Raises:
        ConfigError: it names the file, the place and the fix.
    """
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    try:
        text = _text(path)
        if kind == "TOML":
            given = tomllib.loads(text)
        else:
            given = json.loads(text, object_pairs_hook=unique_keys)
        json.dumps(given, ensure_ascii=False, default=str).encode()  # no halves of characters
    except OSError as error:
        raise ConfigError(
            f"can't read the {what} file {path}", why=error.strerror or str(error), code=code
        ) from error
    except UnicodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8", why=str(error), code=code) from error
    except ValueError as error:  # both parsers' errors
        raise ConfigError(
            f"{path} is not {kind}",
            why=str(error),
            fix="name a TOML file *.toml; anything else is read as JSON",
            code=code,
        ) from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply", fix=see, code=code) from error
    try:
        found = msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is no {what}", why=str(error), fix=see, code=code) from error
    _refuse_unknown(path, given, msgspec.to_builtins(found), "")
    return found


def _text(path: Path) -> str:
    """Whatever the locale is, it is UTF-8; some editors begin that with a mark."""
    with path.open("rb") as file:
        content = file.read(_BYTES_MAX + 1)
    if len(content) > _BYTES_MAX:
        raise ValueError(f"it is larger than {_BYTES_MAX // 1024**2} MiB")
    return content.decode("utf-8-sig")


def _refuse_unknown(path: Path, given: object, known: object, where: str) -> None:
    """On the wire an unknown field may come from a newer version; in a file it is a slip."""
    if isinstance(given, list) and isinstance(known, list | tuple):
        for number, (item, meant) in enumerate(zip(given, known, strict=True)):
            _refuse_unknown(path, item, meant, f"{where}[{number}]")
    if not isinstance(given, dict) or not isinstance(known, dict):
        return
    for key, value in given.items():
        place = f"{where}.{key}".lstrip(".")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise ConfigError(
                f"{path} has an unknown key {place}",
                fix=f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}",
                code="E-UNKNOWN-KEY",
            )
        _refuse_unknown(path, value, known[key], place)
