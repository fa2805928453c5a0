"""Measured step times in the place of the model's: by layout, with age and spread.

Pure functions over frozen data in whole numbers: microseconds, milliseconds, parts per thousand.
There is no clock here; the caller says what time it is, on any clock that only grows.

A layout that was measured often enough and not too long ago has its measured time. What is known of
it less well pulls the model's time towards the measured one, and so does what was measured at other
layouts of the same model on the same kind of device: the model's errors are mostly common to them.
These move by the same factor as the layouts that were measured, with less confidence. If they moved
by a part of it, a measured layout would look better or worse than its neighbours by the rest, and
a task would change its size for an error that all its sizes share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from unicron.planner.cost.layouts import Choice
from unicron.planner.cost.training import Execution
from unicron.planner.cost.validity import require_positive, require_whole
from unicron.planner.errors import BadProblem

Origin = Literal["measured", "corrected", "model"]

#: Fully trusted from so many kept samples on.
SAMPLES_ENOUGH = 5
#: Samples kept of a layout: the newest.
SAMPLES_MAX = 64
#: Age of the newest sample, from which on trust falls; it is gone at twice this age.
FRESH_MS = 24 * 3600 * 1000
#: Of the confidence in a layout's own time, what is left for its neighbours', in thousandths.
CARRIED_MILLI = 500
#: Samples farther from the median than so many median deviations are left out ...
OUTLIER_DEVIATIONS = 5
#: ... but none that is closer than this share of the median, in thousandths.
TOLERATED_MILLI = 20

_FULL = 1000
_PPM = 1_000_000


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration: how long it took, and when it ended."""

    step_us: int
    at_ms: int


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one layout of one model on one kind of device, oldest first.

    `model`: any name that stands for the model and its training (global batch and so on).
    """

    model: str
    kind: str
    execution: Execution
    samples: tuple[Sample, ...] = ()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a series says. `step_us`: median without outliers. `spread_us`: their median deviation
    from it. `kept`, `dropped`: samples in and out. `age_ms`: of the newest sample kept."""

    step_us: int
    spread_us: int
    kept: int
    dropped: int
    age_ms: int


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A step time to plan with. `confidence_milli`: 1000 for a layout measured well, 0 for the
    model's bare word. `spread_us` and `age_ms` are those of what it rests on, 0 for the model."""

    step_us: int
    origin: Origin
    confidence_milli: int
    spread_us: int = 0
    age_ms: int = 0


def record(
    measured: Sequence[Series], model: str, kind: str, execution: Execution, sample: Sample
) -> tuple[Series, ...]:
    """`measured` with one more sample. Samples may come late; the newest `SAMPLES_MAX` are kept.

    Raises `BadProblem` if the sample's time is no positive integer.
    """
    _check(sample)
    found, others = None, []
    for series in measured:
        if (series.model, series.kind, series.execution) == (model, kind, execution):
            found = series
        else:
            others.append(series)
    samples = (*(found.samples if found is not None else ()), sample)
    newest = tuple(sorted(samples, key=lambda each: each.at_ms)[-SAMPLES_MAX:])
    return (*others, Series(model=model, kind=kind, execution=execution, samples=newest))


def summary(series: Series, now_ms: int) -> Summary | None:
    """The series' median without outliers; None if there are no samples.

    Raises `BadProblem` for a sample that makes no sense or lies after `now_ms`.
    """
    for sample in series.samples:
        _check(sample)
        if sample.at_ms > now_ms:
            raise BadProblem(
                "now_ms", f"{now_ms} is before a sample at {sample.at_ms}", "use one clock for both"
            )
    if not series.samples:
        return None
    times = [sample.step_us for sample in series.samples]
    middle = _median(times)
    limit = max(
        OUTLIER_DEVIATIONS * _median([abs(time - middle) for time in times]),
        middle * TOLERATED_MILLI // _FULL,
    )
    kept = [sample for sample in series.samples if abs(sample.step_us - middle) <= limit]
    step = _median([sample.step_us for sample in kept])
    return Summary(
        step_us=step,
        spread_us=_median([abs(sample.step_us - step) for sample in kept]),
        kept=len(kept),
        dropped=len(times) - len(kept),
        age_ms=now_ms - max(sample.at_ms for sample in kept),
    )


def trust(found: Summary) -> int:
    """How far a layout's own summary is believed, in thousandths: by samples, then by age."""
    by_count = min(_FULL, _FULL * found.kept // SAMPLES_ENOUGH)
    stale = max(0, found.age_ms - FRESH_MS)
    return by_count * max(0, FRESH_MS - stale) // FRESH_MS


def estimate(
    choice: Choice,
    model: str,
    measured: Iterable[Series],
    now_ms: int,
    references: Iterable[Choice] = (),
) -> Estimate:
    """The step time to plan with for one layout.

    `choice` has the model's own time for it. `references` have the model's times of the layouts
    that were measured (see `layouts.assess`); a series without one corrects no neighbour. Series of
    other models and kinds are ignored. A neighbour's factor is measured over modelled; the median
    of all moves the time as far as the best of them is trusted, and half of that trust is the
    confidence. Raises `BadProblem` as `summary`.
    """
    own = _summaries(model, choice.kind, measured, now_ms)
    return _Known(own, choice.kind, references).estimate(choice)


def estimates(choices: Sequence[Choice], own: Mapping[Execution, Summary]) -> tuple[Estimate, ...]:
    """As `estimate`, for choices of one kind of device, which are each other's references.

    `own`: what is known of each layout that was measured there.
    """
    if not choices:
        return ()
    known = _Known(own, choices[0].kind, choices)
    return tuple(known.estimate(choice) for choice in choices)


def overwritten(
    choices: Sequence[Choice],
    model: str,
    measured: Sequence[Series],
    now_ms: int,
    references: Sequence[Choice] = (),
) -> tuple[Choice, ...]:
    """`choices` with the times to plan with; throughputs change with them.

    They are each other's references, beside those given. Give whole tables and prune afterwards:
    what is measured at one size changes which of the others are worth their devices.
    """
    known = {
        kind: _Known(_summaries(model, kind, measured, now_ms), kind, (*choices, *references))
        for kind in {choice.kind for choice in choices}
    }
    return tuple(_with_time(choice, known[choice.kind].estimate(choice)) for choice in choices)


class _Known:
    """What was measured of one model on one kind of device, ready to be applied."""

    def __init__(
        self, own: Mapping[Execution, Summary], kind: str, references: Iterable[Choice]
    ) -> None:
        modelled = {each.execution: each.step_us for each in references if each.kind == kind}
        self._own = own
        self._factors: dict[Execution, tuple[int, int]] = {}  # parts per million, trust
        for execution, found in own.items():
            if execution in modelled and trust(found) > 0:
                factor = _ratio(found.step_us * _PPM, modelled[execution])
                self._factors[execution] = factor, trust(found)

    def estimate(self, choice: Choice) -> Estimate:
        own = self._own.get(choice.execution)
        near = [factor for at, factor in self._factors.items() if at != choice.execution]
        trusted = max((trusted for _, trusted in near), default=0)
        carried = trusted * CARRIED_MILLI // _FULL
        base = choice.step_us
        if trusted:
            target = _ratio(base * _median(factor for factor, _ in near), _PPM)
            base = _between(base, target, trusted)
        belief = 0 if own is None else trust(own)
        if own is None or belief == 0:
            origin: Origin = "corrected" if trusted else "model"
            return Estimate(step_us=base, origin=origin, confidence_milli=carried)
        return Estimate(
            step_us=_between(base, own.step_us, belief),
            origin="measured" if belief == _FULL else "corrected",
            confidence_milli=max(belief, carried),
            spread_us=own.spread_us,
            age_ms=own.age_ms,
        )


def _summaries(
    model: str, kind: str, measured: Iterable[Series], now_ms: int
) -> dict[Execution, Summary]:
    """What each layout's own series says."""
    mine = (each for each in measured if (each.model, each.kind) == (model, kind))
    found = {series.execution: summary(series, now_ms) for series in mine}
    return {execution: known for execution, known in found.items() if known is not None}


def _with_time(choice: Choice, found: Estimate) -> Choice:
    gflops = max(1, _ratio(choice.throughput_gflops * choice.step_us, found.step_us))
    return msgspec.structs.replace(choice, step_us=found.step_us, throughput_gflops=gflops)


def _check(sample: Sample) -> None:
    require_positive(step_us=sample.step_us)
    require_whole(at_ms=sample.at_ms)


def _between(start: int, end: int, milli: int) -> int:
    """`milli` thousandths of the way from `start` to `end`, at least 1."""
    return max(1, _ratio(start * (_FULL - milli) + end * milli, _FULL))


def _ratio(numerator: int, denominator: int) -> int:
    """Rounded to the nearest, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)


def _median(values: Iterable[int]) -> int:
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) // 2
