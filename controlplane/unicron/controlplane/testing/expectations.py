"""What a scenario expects, in words, and whether a run bears it out."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from unicron.controlplane.core import tables
from unicron.controlplane.testing.about import is_about
from unicron.controlplane.testing.outcome import Outcome
from unicron.controlplane.testing.words import (
    Count,
    Form,
    Names,
    Problem,
    closest,
    read_first,
    unread,
)
from unicron.events import (
    Envelope,
    IncidentOpened,
    Recorded,
    TaskFailed,
    TransitionOrdered,
    WorkerStartOrdered,
)

_STATUSES: Final = {"node": tables.NODE, "worker": tables.WORKER, "task": tables.TASK}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What expectations are judged by. `at_s`: virtual time of each entry. `faults`: time of each
    that was done, and the last sequence before it. `void`, `repeated`: sequences."""

    outcome: Outcome
    at_s: tuple[float, ...]
    faults: tuple[tuple[float, int], ...]
    void: tuple[int, ...]
    repeated: tuple[int, ...]

    def entries(self) -> Iterator[tuple[Recorded, Envelope]]:
        """What took effect."""
        dropped = {*self.void, *self.repeated}
        for recorded in self.outcome.log:
            if recorded.envelope is not None and recorded.seq not in dropped:
                yield recorded, recorded.envelope


#: None if it is so, else what was found instead.
Judge = Callable[[Run], str | None]
Make = Callable[[dict[str, Any], Names], Judge]


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """One `expect` line."""

    line: int
    text: str
    judge: Judge


# --- Entries of the log ---------------------------------------------------------------------------


def _such(run: Run, event: str, name: str | None, text: str | None = None) -> list[Recorded]:
    return [
        recorded
        for recorded, envelope in run.entries()
        if type(envelope.body).__name__ == event
        and (name is None or is_about(envelope, name))
        and (text is None or text in _json(envelope))
    ]


def _json(envelope: Envelope) -> str:
    """Without quotation marks, which a text has around itself."""
    return msgspec.json.encode(envelope.body).decode().replace('"', "")


def _how_many(count: Count | None) -> Count:
    return count if count is not None else Count(1, None)


def _events(values: dict[str, Any], _: Names) -> Judge:
    """Count of an event, everywhere or on one side of another one or of a fault."""

    def judge(run: Run) -> str | None:
        found = _such(run, values["event"], values["name"], values.get("text"))
        anchor = _anchor(run, values)
        if isinstance(anchor, str):
            return anchor
        after_s, after = anchor
        if values.get("before"):
            kept = [r for r in found if r.seq < after]
        else:
            limit_ms = values.get("time")
            kept = [
                r
                for r in found
                if r.seq > after
                and (limit_ms is None or run.at_s[r.seq - 1] - after_s <= limit_ms / 1000)
            ]
        if _how_many(values["count"]).holds(len(kept)):
            return None
        return f"found {_listed(run, kept)}{_beside(run, found, kept)}"

    return judge


def _anchor(run: Run, values: dict[str, Any]) -> tuple[float, int] | str:
    """Time and sequence that the counting begins or ends at; or that there is none."""
    if values.get("nth") is not None:
        number = values["nth"] or len(run.faults)
        if number > len(run.faults):
            return f"only {len(run.faults)} fault(s) were done"
        return run.faults[number - 1]
    if values.get("event2") is None:
        return 0.0, 0
    found = _such(run, values["event2"], values.get("name2"))
    if not found:
        about = f" of {values['name2']}" if values.get("name2") else ""
        return f"there was no {values['event2']}{about} at all"
    return run.at_s[found[0].seq - 1], found[0].seq


def _listed(run: Run, found: list[Recorded]) -> str:
    where = [f"#{r.seq} at {run.at_s[r.seq - 1]:.3f} s" for r in found[:4]]
    more = ", ..." if len(found) > len(where) else ""
    return f"{len(found)}: {', '.join(where)}{more}" if found else "none"


def _beside(run: Run, found: list[Recorded], kept: list[Recorded]) -> str:
    rest = [r for r in found if r not in kept]
    return f" (elsewhere {_listed(run, rest)})" if rest else ""


def _before(values: dict[str, Any], names: Names) -> Judge:
    return _events(values | {"before": True}, names)


def _incidents(values: dict[str, Any], _: Names) -> Judge:
    def judge(run: Run) -> str | None:
        found = [
            i
            for i in run.outcome.state.incidents.values()
            if values.get("number") in (None, i.severity)
            and values.get("name") in (None, i.task, i.node, i.worker)
        ]
        if _how_many(values["count"]).holds(len(found)):
            return None
        everything = run.outcome.state.incidents.values()
        said = [f"{i.incident} (severity {i.severity}: {i.what})" for i in everything]
        return f"{len(found)} such; in all: {'; '.join(said) or 'none'}"

    return judge


def _incidents_opened_as(values: dict[str, Any], _: Names) -> Judge:
    def judge(run: Run) -> str | None:
        bodies = [e.body for _, e in run.entries() if isinstance(e.body, IncidentOpened)]
        found = [b.severity for b in bodies]
        wanted = found.count(values["number"])
        if _how_many(values["count"]).holds(wanted):
            return None
        return f"{wanted} such; opened with severities {found}"

    return judge


def _dropped(which: str) -> Make:
    def make(values: dict[str, Any], _: Names) -> Judge:
        def judge(run: Run) -> str | None:
            found: tuple[int, ...] = getattr(run, which)
            if values["count"].holds(len(found)):
                return None
            return f"{len(found)}: {', '.join(f'#{seq}' for seq in found[:8]) or 'none'}"

        return judge

    return make


# --- How things stand at the end ------------------------------------------------------------------


def _stands(values: dict[str, Any], names: Names) -> Judge:
    name, status = values["name"], values["status"]
    kind = "task" if name in names.tasks else "worker" if "/" in name else "node"
    if status not in _STATUSES[kind]:
        fix = f"a {kind} may be: {', '.join(_STATUSES[kind])}"
        raise Problem(f"no {kind} is ever {status!r}", fix)

    def judge(run: Run) -> str | None:
        found = _standing(run.outcome, kind, name)
        if found == status:
            return None
        reasons = _reasons(run, name) if kind == "task" else []
        why = f", because: {reasons[0]}" if reasons else ""
        return f"it is {found or 'unknown to the log'}{why}"

    return judge


def _standing(outcome: Outcome, kind: str, name: str) -> str:
    state = outcome.state
    if kind == "task":
        task = state.tasks.get(name)
        return task.phase if task is not None else ""
    found = state.workers.get(name) if kind == "worker" else state.nodes.get(name)
    return found.status if found is not None else ""


def _reasons(run: Run, task: str) -> list[str]:
    """Why the task failed, if it did."""
    bodies = [e.body for _, e in run.entries() if isinstance(e.body, TaskFailed)]
    return [b.reason for b in bodies if b.task == task]


def _failed_because(values: dict[str, Any], _: Names) -> Judge:
    def judge(run: Run) -> str | None:
        reasons = _reasons(run, values["task"])
        if any(values["text"] in reason for reason in reasons):
            return None
        standing = _standing(run.outcome, "task", values["task"])
        return f"it failed because: {reasons[0]}" if reasons else f"it is {standing}"

    return judge


def _starts(values: dict[str, Any], _: Names) -> Judge:
    def judge(run: Run) -> str | None:
        bodies = [e.body for _, e in run.entries() if isinstance(e.body, WorkerStartOrdered)]
        lives = len({b.incarnation for b in bodies if b.worker == values["worker"]})
        return None if values["count"].holds(lives) else f"it was started {lives} time(s)"

    return judge


def _lives_through(values: dict[str, Any], names: Names) -> Judge:
    return _starts(values | {"count": Count(1, 1)}, names)


def _generation(values: dict[str, Any], _: Names) -> Judge:
    def judge(run: Run) -> str | None:
        task = run.outcome.state.tasks.get(values["task"])
        found = task.generation if task is not None else 0
        return None if found == values["number"] else f"its last generation is {found}"

    return judge


def _order(run: Run, task: str, generation: int) -> TransitionOrdered | None:
    for _, envelope in run.entries():
        body = envelope.body
        if isinstance(body, TransitionOrdered) and (body.task, body.generation) == (
            task,
            generation,
        ):
            return body
    return None


def _ranks(values: dict[str, Any], names: Names) -> Judge:
    wanted = [names.worker(w.strip()) for w in values["workers"].split(",")]

    def judge(run: Run) -> str | None:
        order = _order(run, values["task"], values["number"])
        if order is None:
            return "there was no such generation"
        found = [str(m.worker) for m in order.members]
        return None if found == wanted else f"they were {', '.join(found)}"

    return judge


def _devices(values: dict[str, Any], _: Names) -> Judge:
    def judge(run: Run) -> str | None:
        order = _order(run, values["task"], values["number2"])
        if order is None:
            return "there was no such generation"
        found = len(order.members)
        return None if found == values["number"] else f"it had {found} device(s)"

    return judge


def _expectation(template: str, about: str, make: Make) -> tuple[Form, Make]:
    return Form(template, about), make


#: All that can be expected.
EXPECTATIONS: Final[tuple[tuple[Form, Make], ...]] = (
    _expectation(
        "{task} failed because {text}",
        "Its end is a failure, and the reason holds the text.",
        _failed_because,
    ),
    _expectation("{task} in generation {number}", "The last one that was ordered.", _generation),
    _expectation(
        "{task} on {number} device(s) in generation {number2}", "As many members.", _devices
    ),
    _expectation(
        "ranks of {task} in generation {number} are {workers}",
        "Its members in the order of their ranks, with commas.",
        _ranks,
    ),
    _expectation("{worker} lives through it", "It was started once.", _lives_through),
    _expectation("{worker} starts {count} time(s)", "So many lives.", _starts),
    _expectation("{count} incident(s)", "So many in all.", _incidents),
    _expectation(
        "{count} incident(s) opened with severity {number}",
        "As it was first judged.",
        _incidents_opened_as,
    ),
    _expectation(
        "{count} incident(s) of severity {number}[ about {name}]",
        "As it was judged in the end.",
        _incidents,
    ),
    _expectation("{count} incident(s) about {name}", "A task, node or worker.", _incidents),
    _expectation(
        "{count} repeated event(s)", "Entries that the log held already.", _dropped("repeated")
    ),
    _expectation("{count} void event(s)", "Entries that came too late to apply.", _dropped("void")),
    _expectation(
        "[{count} ]{event}[ of {name}][ saying {text}]",
        "So many entries that took effect; without a number: at least one. The text is somewhere "
        "in the event's JSON, read without quotation marks.",
        _events,
    ),
    _expectation(
        "[{count} ]{event}[ of {name}][ saying {text}] before {event2}[ of {name2}]",
        "Before the first of the others.",
        _before,
    ),
    _expectation(
        "[{count} ]{event}[ of {name}][ saying {text}] after {event2}[ of {name2}]",
        "After the first of the others.",
        _events,
    ),
    _expectation(
        "[{count} ]{event}[ of {name}][ saying {text}] within {time} after {event2}[ of {name2}]",
        "Not later than that.",
        _events,
    ),
    _expectation(
        "[{count} ]{event}[ of {name}][ saying {text}][ within {time}] after the {nth} fault",
        "Faults are counted in the order in which they were done.",
        _events,
    ),
    _expectation("{name} {status}", "How a task, node or worker stands at the end.", _stands),
)


def expectation_of(line: int, text: str, names: Names) -> Expectation:
    """What an `expect` line expects.

    Raises:
        Problem: no form fits, or something in it doesn't exist.
    """
    found = read_first(EXPECTATIONS, text, names)
    if found is not None:
        make, values = found
        return Expectation(line=line, text=text, judge=make(values, names))
    forms = [form for form, _ in EXPECTATIONS]
    near = closest(text, forms)
    raise unread(
        text,
        f"{text!r} can't be expected: no sentence reads like that",
        " | ".join(f"expect {shape}" for shape in near) or "docs/scenarios.md lists all",
        forms,
        names,
    )
