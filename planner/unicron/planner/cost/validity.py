"""What the cost model's arguments have in common: whole numbers above zero, and clear refusals."""

from __future__ import annotations

from unicron.planner.errors import BadProblem


def require_positive(**values: object) -> None:
    """Raise `BadProblem` at the first value that is no integer from 1 on."""
    for name, value in values.items():
        # NaN, fractions and Booleans are refused with the zeros.
        if type(value) is not int or value < 1:
            raise BadProblem(name, f"is {value!r}", "give a positive integer")


def require_whole(**values: object) -> None:
    """Raise `BadProblem` at the first value that is no integer from 0 on."""
    for name, value in values.items():
        if type(value) is not int or value < 0:
            raise BadProblem(name, f"is {value!r}", "give an integer, 0 or more")


def require_flags(**values: object) -> None:
    """Raise `BadProblem` at the first value that is neither true nor false."""
    for name, value in values.items():
        if type(value) is not bool:
            raise BadProblem(name, f"is {value!r}", "give true or false")


def require_split(name: str, parts: int, what: str, whole: int) -> None:
    """Raise `BadProblem` for `name` unless `whole` (which is `what`) splits into `parts`."""
    if whole % parts:
        raise BadProblem(name, f"{whole} {what} don't split over {parts}", "choose a divisor")


def require_one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise `BadProblem` unless `value` is one of these words."""
    if value not in choices:
        raise BadProblem(name, f"is {value!r}", f"give one of: {', '.join(choices)}")
