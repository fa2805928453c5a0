"""The model's constants: `data/constants.toml`, each with where its value comes from."""

from __future__ import annotations

from functools import cache

import msgspec

from unicron.planner.cost import reading
from unicron.planner.errors import BadProblem


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """What formulas can't know. Shares are of the accelerator's figure; what each is for and where
    its value is from stands in `data/constants.toml`."""

    gemm_efficiency: float
    gemm_half: float
    hbm_efficiency: float
    intra_efficiency: float
    inter_efficiency: float
    fused_attention_efficiency: float
    intra_latency_s: float
    inter_latency_s: float
    exposed_share: float
    optimizer_bytes: float
    fixed_memory_bytes: float


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """One constant as it stands in the file. `fitted`: `fit.py` found it, else it is assumed."""

    value: float
    fitted: bool
    meaning: str
    source: str


@cache
def documented() -> dict[str, Constant]:
    """Name -> value, meaning and source."""
    return {
        name: reading.row(entry, Constant, f"constants.toml: {name}")
        for name, entry in reading.shipped("constants.toml").items()
    }


@cache
def shipped_constants() -> Constants:
    """The shipped values, fitted to all published rows at once (`fit.py`)."""
    values = {name: constant.value for name, constant in documented().items()}
    found = reading.row(values, Constants, "constants.toml")
    check(found)
    return found


def resolved(known: Constants | None) -> Constants:
    """`known` once it is checked, or the shipped ones."""
    if known is None:
        return shipped_constants()
    check(known)
    return known


def check(found: Constants) -> None:
    """Raise `BadProblem` at the first constant that is no finite number above zero."""
    for name in found.__struct_fields__:
        value = getattr(found, name)
        if not 0 < value < float("inf"):  # NaN compares false
            raise BadProblem(name, f"is {value!r}", "give a finite number above zero")
