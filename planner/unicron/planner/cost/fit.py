"""Fits the constants to published rows, and says what comes out on rows that were held out.

The sum of squared log ratios of predicted to measured times is minimised over the logarithms of the
constants, by Levenberg and Marquardt's method with differences for derivatives. It starts from the
same point every time, so the same rows give the same constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from unicron.planner.cost.constants import Constants, documented, shipped_constants
from unicron.planner.cost.published import Row, error, rows
from unicron.planner.errors import BadProblem

#: Where the search may go: below 1 for shares of a figure, any sensible size for gemm_half.
BOUNDS = {
    "gemm_efficiency": (0.3, 1.0),
    "gemm_half": (1.0, 2000.0),
    "hbm_efficiency": (0.3, 1.0),
    "intra_efficiency": (0.3, 1.0),
}
#: Where it starts: the middle, so that the shipped values don't decide what is found.
START = {
    "gemm_efficiency": 0.8,
    "gemm_half": 100.0,
    "hbm_efficiency": 0.8,
    "intra_efficiency": 0.7,
}
_DIFFERENCE = 1e-5  # of a logarithm
_ROUNDS = 200


class HeldOut(msgspec.Struct, frozen=True, kw_only=True):
    """A fit without one paper: its constants, and the errors on that paper's rows."""

    paper: str
    constants: Constants
    errors: tuple[tuple[Row, float], ...]

    @property
    def mean(self) -> float:
        """Mean absolute error: 0.06 is 6 %."""
        return sum(abs(each) for _, each in self.errors) / len(self.errors)

    @property
    def largest(self) -> float:
        return max(abs(each) for _, each in self.errors)


def fitted(measurements: Sequence[Row]) -> Constants:
    """The constants that suit these rows best; those that aren't fitted keep their value.

    Raises `BadProblem` with fewer rows than constants.
    """
    if len(measurements) < len(BOUNDS):
        raise BadProblem("measurements", f"are {len(measurements)}", f"give at least {len(BOUNDS)}")
    return _minimise(measurements, msgspec.structs.replace(shipped_constants(), **START))


def held_out(paper: str) -> HeldOut:
    """Fit to all rows but this paper's. Raises `BadProblem` if no row is from it."""
    outside = tuple(row for row in rows() if row.paper == paper)
    if not outside:
        raise BadProblem("paper", f"is {paper!r}", "name a paper that has rows")
    known = fitted(tuple(row for row in rows() if row.paper != paper))
    return HeldOut(
        paper=paper, constants=known, errors=tuple((row, error(row, known)) for row in outside)
    )


def fitted_names() -> tuple[str, ...]:
    """Constants that `data/constants.toml` calls fitted."""
    return tuple(name for name, constant in documented().items() if constant.fitted)


def _minimise(measurements: Sequence[Row], start: Constants) -> Constants:
    best, damping = start, 1e-2
    gaps = _gaps(measurements, best)
    for _ in range(_ROUNDS):
        slopes = [_slopes(measurements, best, name, gaps) for name in BOUNDS]
        step = _step(slopes, gaps, damping)
        tried = _moved(best, step)
        found = _gaps(measurements, tried)
        if _squares(found) < _squares(gaps):
            best, gaps, damping = tried, found, damping / 3
        else:
            damping *= 4
            if damping > 1e9:
                break
    return best


def _gaps(measurements: Sequence[Row], known: Constants) -> list[float]:
    return [math.log1p(error(row, known)) for row in measurements]


def _squares(gaps: Sequence[float]) -> float:
    return math.fsum(gap * gap for gap in gaps)


def _slopes(
    measurements: Sequence[Row], known: Constants, name: str, gaps: Sequence[float]
) -> list[float]:
    """How each gap changes with the logarithm of one constant."""
    nudged = msgspec.structs.replace(known, **{name: getattr(known, name) * math.exp(_DIFFERENCE)})
    return [
        (near - gap) / _DIFFERENCE
        for near, gap in zip(_gaps(measurements, nudged), gaps, strict=True)
    ]


def _step(slopes: list[list[float]], gaps: Sequence[float], damping: float) -> list[float]:
    """The damped normal equations, solved by elimination: they are few and positive definite."""
    size = len(slopes)
    lines = [
        [math.fsum(x * y for x, y in zip(one, other, strict=True)) for other in slopes]
        + [-math.fsum(x * gap for x, gap in zip(one, gaps, strict=True))]
        for one in slopes
    ]
    for i in range(size):
        lines[i][i] += damping * (lines[i][i] + 1e-9)
    for i in range(size):
        for j in range(i + 1, size):
            share = lines[j][i] / lines[i][i]
            lines[j] = [y - share * x for x, y in zip(lines[i], lines[j], strict=True)]
    solved = [0.0] * size
    for i in reversed(range(size)):
        rest = math.fsum(lines[i][j] * solved[j] for j in range(i + 1, size))
        solved[i] = (lines[i][size] - rest) / lines[i][i]
    return solved


def _moved(known: Constants, step: Sequence[float]) -> Constants:
    """A step along the logarithms, at most by a factor of two, kept inside the bounds."""
    values = {}
    for (name, (low, high)), change in zip(BOUNDS.items(), step, strict=True):
        factor = math.exp(min(max(change, -math.log(2)), math.log(2)))
        values[name] = min(max(getattr(known, name) * factor, low), high)
    return msgspec.structs.replace(known, **values)
