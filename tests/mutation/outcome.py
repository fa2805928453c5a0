"""What became of the mutants: per file, in all, and those that nobody noticed."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.forks import OVERRUN, Ended
from tests.mutation.session import KILLED
from tests.mutation.source import Mutant

NAMES = ("killed", "timed out", "survived", "not covered")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`name`: one of NAMES. `test`: which noticed it or never came to an end, or ""."""

    mutant: Mutant
    name: str
    test: str = ""


def outcome_of(mutant: Mutant, ended: Ended) -> Outcome:
    """What it means that a child with the mutant ended so.

    Raises:
        RuntimeError: it was the tool that failed.
    """
    if ended.status == 0:
        return Outcome(mutant, "survived")
    if ended.status != KILLED and ended.status > 0:
        raise RuntimeError(f"{mutant.diff()}: {ended.said.decode(errors='replace')}")
    tests = ended.said.decode().split("\n")
    name = "timed out" if ended.status in OVERRUN else "killed"
    return Outcome(mutant, name, tests[-2] if len(tests) > 1 else "")


def score(outcomes: Iterable[Outcome]) -> float:
    """Percentage of the mutants that were noticed; 100 if there are none."""
    counts = Counter(o.name for o in outcomes)
    noticed = counts["killed"] + counts["timed out"]
    return 100 * noticed / counts.total() if counts else 100.0


def table(outcomes: list[Outcome]) -> list[str]:
    """One line per file, and one for all."""
    rows = {path.name: [o for o in outcomes if o.mutant.path == path] for path in paths(outcomes)}
    rows["all"] = outcomes
    width = max(map(len, rows))
    lines = [f"{'':{width}}  mutants" + "".join(f"  {name:>11}" for name in NAMES) + "   score"]
    for name, mine in rows.items():
        counts = Counter(o.name for o in mine)
        cells = "".join(f"  {counts[n]:11}" for n in NAMES)
        lines.append(f"{name:{width}}  {len(mine):7}{cells}  {score(mine):5.1f}%")
    return lines


def paths(outcomes: list[Outcome]) -> list[Path]:
    """Files that have mutants, by name."""
    return sorted({o.mutant.path for o in outcomes})


def unnoticed(outcomes: list[Outcome], base: Path) -> list[str]:
    """Place, operator and diff of each mutant that survived or that no test reaches."""
    lines = []
    for o in sorted(outcomes, key=lambda o: (o.mutant.path, o.mutant.start, o.mutant.text)):
        if o.name in ("survived", "not covered"):
            place = f"{o.mutant.path.relative_to(base)}:{o.mutant.line}"
            lines += [f"{place}: {o.name}: {o.mutant.operator}"]
            lines += [f"    {line}" for line in o.mutant.diff()]
    return lines


def as_json(outcomes: list[Outcome], base: Path, *, complete: bool) -> str:
    """All of it for other programs."""
    found = [
        {
            "file": str(o.mutant.path.relative_to(base)),
            "line": o.mutant.line,
            "operator": o.mutant.operator,
            "outcome": o.name,
            "test": o.test,
            "diff": o.mutant.diff(),
        }
        for o in outcomes
    ]
    whole = {"score": round(score(outcomes), 2), "complete": complete, "mutants": found}
    return json.dumps(whole, indent=1) + "\n"


def unnoticed_in(text: str) -> set[tuple[str, ...]]:
    """File name and diff of each mutant that was not noticed, from what `as_json` gave. Lines may
    have moved since, so their numbers don't count."""
    found = json.loads(text)["mutants"]
    return {
        (Path(m["file"]).name, *m["diff"])
        for m in found
        if m["outcome"] in ("survived", "not covered")
    }
