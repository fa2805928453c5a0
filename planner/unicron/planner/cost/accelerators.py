"""What devices can do, as a table that can be extended: `data/accelerators.toml`.

Every figure names its source. All are per device; links are counted in one direction. A file of
the same form adds kinds or replaces some; `docs/cost-model.md` shows how.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from unicron.planner.cost import reading
from unicron.planner.cost.validity import require_positive
from unicron.planner.errors import BadProblem


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of device in its usual node.

    `peak_gflops`: dense bf16 matrix products with fp32 accumulation, GFLOP/s, as the vendor prints
    it. `achievable_gflops`: what one large matrix product was measured to reach. `memory_bytes`:
    nominal, 10**9 bytes a GB. `hbm_bytes_per_s`: memory bandwidth. `intra_bytes_per_s`: to the
    other devices of its node. `inter_bytes_per_s`: its share of the node's network cards.
    `node_devices`: devices in a node. `sources`: figure -> where it comes from.
    """

    name: str
    peak_gflops: int
    achievable_gflops: int
    memory_bytes: int
    hbm_bytes_per_s: int
    intra_bytes_per_s: int
    inter_bytes_per_s: int
    node_devices: int
    sources: dict[str, str]
    aliases: tuple[str, ...] = ()


FIGURES = (
    "peak_gflops",
    "achievable_gflops",
    "memory_bytes",
    "hbm_bytes_per_s",
    "intra_bytes_per_s",
    "inter_bytes_per_s",
    "node_devices",
)


def accelerator_table(extra: Path | str | None = None) -> dict[str, Accelerator]:
    """All kinds by name and by alias: the shipped ones, and those of the file `extra`, which win.

    In `extra` an entry with `extends = "h100"` takes over what it doesn't give itself. Raises
    `BadProblem` with file, kind and field: unknown or missing keys, figures that are no positive
    integers, a figure without a source, an alias that two kinds claim.
    """
    kinds = _shipped()
    if extra is not None:
        kinds = _with(kinds, reading.table_in(extra), str(extra))
    return _by_any_name(kinds)


def accelerator(kind: str, extra: Path | str | None = None) -> Accelerator:
    """The kind of that name or alias. Raises `BadProblem` naming those there are."""
    table = accelerator_table(extra)
    if kind not in table:
        known = sorted({each.name for each in table.values()})
        raise BadProblem("kind", f"is {kind!r}, not in the table", f"known: {', '.join(known)}")
    return table[kind]


@cache
def _shipped() -> dict[str, Accelerator]:
    return _with({}, reading.shipped("accelerators.toml"), "accelerators.toml")


def _with(
    kinds: Mapping[str, Accelerator], table: Mapping[str, object], file: str
) -> dict[str, Accelerator]:
    found = dict(kinds)
    for name, entry in table.items():
        found[name] = _kind(name, entry, found, f"{file}: {name}")
    return found


def _kind(name: str, entry: object, known: Mapping[str, Accelerator], place: str) -> Accelerator:
    if not isinstance(entry, Mapping):
        raise BadProblem(place, f"is {entry!r}", "make it a table")
    given = {key: value for key, value in entry.items() if key != "extends"}
    if "extends" in entry:
        given = _extended(given, entry["extends"], known, place)
    kind = reading.row({**given, "name": name}, Accelerator, place)
    check_accelerator(kind, place)
    return kind


def _extended(
    given: Mapping[str, object], base: object, known: Mapping[str, Accelerator], place: str
) -> dict[str, object]:
    """`given` on top of another kind; what it gives anew needs sources of its own."""
    if not isinstance(base, str) or base not in known:
        fix = f"extend one of: {', '.join(known)}"
        raise BadProblem(f"{place}.extends", f"is {base!r}, which isn't there", fix)
    sources = given.get("sources", {})
    if not isinstance(sources, Mapping):
        raise BadProblem(f"{place}.sources", f"is {sources!r}", "make it a table")
    for field in FIGURES:
        if field in given and field not in sources:
            raise BadProblem(f"{place}.sources", f"lacks {field}", "say where the figure is from")
    inherited = msgspec.structs.asdict(known[base]) | {"aliases": ()}
    return {**inherited, **given, "sources": {**known[base].sources, **sources}}


def check_accelerator(kind: Accelerator, place: str = "device") -> None:
    """Raise `BadProblem` at the first figure that makes no sense or names no source."""
    for field in FIGURES:
        require_positive(**{f"{place}.{field}": getattr(kind, field)})
        if not kind.sources.get(field, "").strip():
            raise BadProblem(f"{place}.sources", f"lacks {field}", "say where the figure is from")
    unknown = sorted(set(kind.sources) - set(FIGURES))
    if unknown:
        raise BadProblem(f"{place}.sources.{unknown[0]}", "is no figure here", "remove it")
    if kind.achievable_gflops > kind.peak_gflops:
        raise BadProblem(
            f"{place}.achievable_gflops", "is above peak_gflops", "give dense figures for both"
        )


def _by_any_name(kinds: Mapping[str, Accelerator]) -> dict[str, Accelerator]:
    found = dict(kinds)
    for kind in kinds.values():
        for alias in kind.aliases:
            other = found.setdefault(alias, kind)
            if other is not kind:
                raise BadProblem(
                    f"{kind.name}.aliases", f"{alias!r} is {other.name!r} already", "rename one"
                )
    return found
