"""When something happens in a scenario: at a time, or behind an event that only the run knows."""

from typing import Any, Final

import msgspec

from unicron.controlplane.testing.options import Fault
from unicron.controlplane.testing.sentences import fault_of
from unicron.controlplane.testing.words import Form, Names, Problem, read_first


class After(msgspec.Struct, frozen=True, kw_only=True):
    """A moment that only the run knows: `after_ms` behind the `nth` event (0: never) of that kind
    about `name`, or behind the commit that brings the task to `iterations`."""

    event: str = ""
    name: str | None = None
    nth: int = 1
    iterations: int = 0
    after_ms: int = 0


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """What happens, and when: at the fault's own time unless there is an `after`."""

    line: int
    text: str
    fault: Fault
    after: After | None = None


#: When something happens; what stands behind the comma happens.
MOMENTS: Final = (
    Form("at {time}[,] {sentence}", "At that time of the run."),
    Form(
        "[{time} ]after [the {nth} ]{event}[ of {name}], {sentence}",
        "So long after the log has stored that event, the first of its kind unless said otherwise.",
    ),
    Form(
        "[{time} ]after {number} iterations of {task}, {sentence}",
        "So long after a member has committed that many.",
    ),
)


def happening_of(line: int, text: str, names: Names) -> Happening | None:
    """What a line says that happens, and when; None if it is no such line.

    Raises:
        Problem: it is, but something in it doesn't exist.
    """
    found = read_first(((form, form) for form in MOMENTS), text, names)
    if found is None:
        return None
    form, v = found
    at_ms = v.get("time") or 0
    fault = fault_of(v["sentence"], at_ms, names)
    after = None if form is MOMENTS[0] else _after(v)
    return Happening(line=line, text=v["sentence"], fault=fault, after=after)


def _after(v: dict[str, Any]) -> After:
    nth = 1 if v.get("nth") is None else v["nth"]
    if not nth:
        raise Problem("nobody knows which one is the last", "say: the first, the 2nd, ...")
    return After(
        event=v.get("event", ""),
        name=v.get("name") or v.get("task"),
        nth=nth,
        iterations=v.get("number") or 0,
        after_ms=v.get("time") or 0,
    )
