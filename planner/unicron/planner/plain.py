"""Problems from plain data: what a JSON or TOML file, or another program's dicts, hold.

Field names are those of `unicron.planner.problem`. Unlike bytes from the log, what a person writes
is read strictly: an unknown key is a slip, and every complaint names the place.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from unicron.planner.cost.reading import text_in
from unicron.planner.errors import BadProblem
from unicron.planner.modelled import MODEL_WORDS, modelled
from unicron.planner.problem import (
    Layout,
    LayoutOption,
    NodeSupply,
    PlanProblem,
    Slot,
    TaskDemand,
    TenantQuota,
)
from unicron.planner.shorthand import TASK_WORDS, as_written, expanded_nodes, expanded_tasks
from unicron.planner.validation import validate
from unicron.planner.whatif import expected_run_ms

#: What is assumed if the data doesn't say: no log, and a day until the next change.
_EXPECTED_RUN_MS = 24 * 3600 * 1000

#: Deeper than any problem is; and integers beyond 64 bits mean nothing in any field.
_DEPTH_MAX = 20
_INTEGER_MAX = 2**63

#: Where in the data which struct stands.
_SHAPES: dict[str, type[msgspec.Struct]] = {
    "": PlanProblem,
    ".nodes[]": NodeSupply,
    ".tasks[]": TaskDemand,
    ".tasks[].options[]": LayoutOption,
    ".tasks[].options[].layout": Layout,
    ".tasks[].current": Layout,
    ".tasks[].placement[]": Slot,
    ".quotas[]": TenantQuota,
}


def problem_from(data: Mapping[str, object]) -> PlanProblem:
    """A valid problem from dicts, lists, strings, integers and Booleans.

    `computed_at` may be left out (0), `expected_run_ms` too (what `node_mtbf_ms` makes of the
    number of nodes, or a day). `shorthand.py` says what can be written shorter, `modelled.py` how a
    task names its model instead of its options. Raises `BadProblem` with the path of the first
    mistake.
    """
    if not isinstance(data, Mapping):
        raise BadProblem("problem", f"is a {type(data).__name__}", "give a mapping")
    _refuse_unsayable(data, "", 0)
    nodes = expanded_nodes(data)
    try:
        return _converted(expanded_tasks(modelled(nodes)))
    except BadProblem as error:
        raise BadProblem(as_written(data, error.field), error.reason, error.fix) from None


def _converted(full: dict[str, object]) -> PlanProblem:
    _refuse_unknown(full, "", "")
    try:
        problem = msgspec.convert(_defaults(full) | full, PlanProblem)
    except msgspec.ValidationError as error:
        raise _misfit(str(error)) from None
    validate(problem)
    return problem


def read_problem(path: Path | str) -> PlanProblem:
    """The problem in a file: TOML if its name ends in .toml, else JSON. Raises `BadProblem`."""
    path = Path(path)
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    try:
        text = text_in(path)
        data = (
            tomllib.loads(text)
            if kind == "TOML"
            else json.loads(text, object_pairs_hook=unique_keys)
        )
    except OSError as error:
        why = error.strerror or str(error)
        raise BadProblem(str(path), f"can't be read: {why}", "give a readable file") from None
    except ValueError as error:  # both parsers' errors, and bytes that are no text
        fix = "name a TOML file *.toml; anything else is read as JSON"
        raise BadProblem(str(path), f"is not {kind}: {error}", fix) from None
    except RecursionError:
        fix = "a problem is a few levels deep: see docs/planner.md"
        raise BadProblem(str(path), "is nested too deeply", fix) from None
    return problem_from(data)


def unique_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """A JSON object whose keys are there once, as in TOML: else one of them would be lost."""
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} is there twice in one object")
        found[key] = value
    return found


def _refuse_unsayable(value: object, path: str, depth: int) -> None:
    """What couldn't even be named in a complaint, nor written into a plan."""
    if depth > _DEPTH_MAX:
        raise BadProblem(path, "is nested too deeply", "see docs/planner.md")
    if isinstance(value, str):
        _refuse_surrogates(value, path)
    elif isinstance(value, int) and not -_INTEGER_MAX <= value < _INTEGER_MAX:
        raise BadProblem(path, "is an integer beyond 64 bits", "give a smaller one")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_unsayable(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            place = f"{path}.{key}".lstrip(".")
            _refuse_surrogates(str(key), place)
            _refuse_unsayable(item, place, depth + 1)


def _refuse_surrogates(text: str, path: str) -> None:
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise BadProblem(path, "has half a surrogate pair in it, no character", "correct the text")


def _defaults(full: Mapping[str, object]) -> dict[str, object]:
    run_ms, mtbf_ms, nodes = _EXPECTED_RUN_MS, full.get("node_mtbf_ms"), full.get("nodes")
    if type(mtbf_ms) is int and mtbf_ms > 0 and isinstance(nodes, list):
        run_ms = expected_run_ms(len(nodes), mtbf_ms)
    return {"computed_at": 0, "expected_run_ms": run_ms}


def _refuse_unknown(value: object, shape: str, path: str) -> None:
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_unknown(item, f"{shape}[]", f"{path}[{index}]")
    struct = _SHAPES.get(shape)
    if struct is None or not isinstance(value, Mapping):
        return  # what doesn't fit here is a wrong type, which the conversion names
    known = struct.__struct_fields__
    for key, item in value.items():
        place = f"{path}.{key}".lstrip(".")
        if key not in known:
            words = (*known, *((*TASK_WORDS, *MODEL_WORDS) if shape == ".tasks[]" else ()))
            near = difflib.get_close_matches(str(key), words, n=1)
            fix = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise BadProblem(place, "is no field here", fix)
        _refuse_unknown(item, f"{shape}.{key}", place)


def _misfit(message: str) -> BadProblem:
    """msgspec's complaint, with the place where this package has it."""
    reason, _, place = message.partition(" - at `$")
    return BadProblem(
        place.strip(".`") or "problem", reason, "see docs/planner.md, and unicron.planner.problem"
    )
