"""Quantities in words: three significant digits and the unit that fits."""

from typing import Final

#: Thousandths of GFLOP/s: what is smaller comes from the planner's whole numbers.
_MILLI_MIN: Final = 10
_FLOP: Final = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP", "YFLOP")


def duration(ms: int | None) -> str:
    """``412 ms``, ``6.20 s``, ``24.1 s``, ``4 min 07``, ``1 h 04``; ``-`` for none."""
    if ms is None:
        return "-"
    sign, ms = ("-", -ms) if ms < 0 else ("", ms)
    if ms < 1000:
        return f"{sign}{ms} ms"
    if ms < 60_000:
        digits = 2 if ms < 10_000 else 1
        return f"{sign}{ms / 1000:.{digits}f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    if minutes < 60:
        return f"{sign}{minutes} min {seconds:02}"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours} h {minutes:02}"


def flop(count: int | None) -> str:
    """``32.6 GFLOP``; ``-`` for none."""
    if count is None:
        return "-"
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_FLOP) - 1:
        value, unit = value / 1000, unit + 1
    return f"{_three(value) if unit else count} {_FLOP[unit]}"


def device_time(ms: int | None) -> str:
    """``1.74 device-seconds``, ``38.6 device-hours``; ``-`` for none."""
    if ms is None:
        return "-"
    if ms < 3_600_000:
        return f"{_three(ms / 1000)} device-seconds"
    return f"{_three(ms / 3_600_000)} device-hours"


def gflops(milli: int) -> str:
    """Thousandths of GFLOP/s: ``76 GFLOP/s``, ``38.999 GFLOP/s``; ``0 GFLOP/s`` for less than a
    hundredth, which is no more than rounding."""
    milli = milli if abs(milli) >= _MILLI_MIN else 0
    sign, milli = ("-", -milli) if milli < 0 else ("", milli)
    whole, rest = divmod(milli, 1000)
    return f"{sign}{whole:,}{f'.{rest:03}'.rstrip('0') if rest else ''} GFLOP/s"


def count(number: int, noun: str) -> str:
    """``1 device``, ``2 devices``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _three(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    digits = 1 if value >= 9.995 else 2 if value >= 0.9995 or not value else 3
    return f"{value:.{digits}f}"
