"""What can happen in a scenario, in words: each sentence gives one fault."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from unicron.controlplane.testing.exact import FOR_GOOD_MS, tag_of
from unicron.controlplane.testing.faults import PHASES
from unicron.controlplane.testing.options import Fault
from unicron.controlplane.testing.words import (
    EVENTS,
    Form,
    Names,
    Problem,
    closest,
    read_first,
    unread,
)
from unicron.events.advisory import ConnectionClosed, ConnectionOpened
from unicron.events.base import Decision

#: What a form's places held -> what is to be done.
Make = Callable[[dict[str, Any]], dict[str, Any]]

_OWN_FIELDS = {
    "task": "t",
    "worker": "n1/0",
    "node": "n1",
    "incarnation": 1,
    "generation": 1,
    "iteration": 1,
    "phase": "forward",
}


def _phase(values: dict[str, Any]) -> str:
    phase = values.get("phase")
    if phase is None:
        return ""
    if phase not in PHASES:
        raise Problem(f"there is no phase {phase!r}", f"the phases are: {', '.join(PHASES)}")
    return f"@{phase}"


def _worker(kind: str, **more: Any) -> Make:
    return lambda v: (
        {
            "kind": kind,
            "target": v["worker"],
            "detail": (v.get("kind") or "") + _phase(v),
            "pick": v.get("number") or 0,
            "for_ms": v.get("time") or 0,
        }
        | more
    )


def _node(kind: str, detail: str = "") -> Make:
    return lambda v: {
        "kind": kind,
        "target": v["node"],
        "pick": v.get("number") or 0,
        "detail": detail,
        "for_ms": v["time"] if v.get("time") is not None else FOR_GOOD_MS,
    }


def _control(kind: str, **more: Any) -> Make:
    return lambda v: (
        {"kind": kind, "for_ms": v.get("time") or 0, "pick": v.get("number") or 0} | more
    )


def _entry(kind: str) -> Make:
    def make(values: dict[str, Any]) -> dict[str, Any]:
        event = values["event"]
        raw = issubclass(EVENTS[event], ConnectionOpened | ConnectionClosed)
        decision = issubclass(EVENTS[event], Decision)
        if kind == "store-again" and decision:
            fix = f"write: the {event} ... is said again"
            raise Problem(f"{event} is a decision, and the fence lets it in once", fix)
        if kind == "say-again" and (raw or not decision):
            fix = f"write: the {event} ... is stored again"
            raise Problem(f"{event} is a fact, and facts are only stored", fix)
        return {
            "kind": kind,
            "detail": event,
            "target": values.get("name") or "",
            "pick": values["nth"],
        }

    return make


def _says(values: dict[str, Any]) -> dict[str, Any]:
    name = values["event"]
    event = EVENTS[name]
    if issubclass(event, Decision | ConnectionOpened | ConnectionClosed):
        raise Problem(f"no agent or worker says {name}", "name a fact, such as WorkerExited")
    types = {f.name: f.type for f in msgspec.structs.fields(event)}
    given = {}
    for part in (values.get("fields") or "").split():
        field, equals, value = part.partition("=")
        if field not in types or not equals:
            fix = f"write field=value; the fields are: {', '.join(types)}"
            raise Problem(f"{part!r} gives no field of {name} its value", fix)
        given[field] = value if types[field] is str else _json(value)
    trial = {f: v for f, v in (_OWN_FIELDS | given).items() if f in types}
    try:
        msgspec.convert(trial | {"type": tag_of(name)}, event)
    except msgspec.ValidationError as error:
        fix = "write: with field=value field=value, what isn't text in JSON"
        raise Problem(f"{name}: {error}", fix) from None
    return {
        "kind": "says",
        "target": values["name"],
        "detail": msgspec.json.encode((name, values.get("number") or 0, given)).decode(),
    }


def _json(value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _sentence(template: str, about: str, make: Make) -> tuple[Form, Make]:
    return Form(template, about), make


def _mood(kind: str) -> Make:
    return lambda _: {"kind": "planner", "detail": kind}


#: All that can happen.
SENTENCES: Final[tuple[tuple[Form, Make], ...]] = (
    # Workers
    _sentence(
        "{worker} is killed by signal {number}[ in {phase}]",
        "Its process ends by the signal, as its agent sees.",
        _worker("signal"),
    ),
    _sentence(
        "{worker} exits with code {number}[ in {phase}]",
        "Its process ends by itself.",
        _worker("exit"),
    ),
    _sentence(
        "{worker} raises {kind}[ in {phase}]",
        "Its training step raises; it says so and ends. A key of the severity table, or a new one.",
        _worker("exception"),
    ),
    _sentence(
        "{worker} hangs[ in {phase}]", "It does nothing any more; SIGKILL ends it.", _worker("hang")
    ),
    _sentence(
        "{worker} hangs in the kernel[ in {phase}]",
        "It does nothing any more, and SIGKILL doesn't end it.",
        _worker("unkillable"),
    ),
    _sentence(
        "{worker} stands still for {time}[ in {phase}]",
        "It does nothing for a while, then goes on; nobody was told.",
        _worker("standstill"),
    ),
    _sentence(
        "{worker} is in a declared section for {time}",
        "It does something long that it has declared.",
        lambda v: _worker("section")(v) | {"detail": "@forward", "for_ms": 2 * v["time"]},
    ),
    _sentence(
        "{worker} is slow for {time}",
        "It takes three times as long for everything.",
        _worker("slow"),
    ),
    _sentence(
        "{worker} loses its connections in {phase}",
        "A connection to its peers is reset while it waits for them.",
        _worker("reset"),
    ),
    _sentence(
        "{worker} can't reach the log for {time}",
        "It alone; its agent and its peers go on as before.",
        _worker("cut-worker"),
    ),
    _sentence(
        "every worker of {task} raises {kind} in {phase}",
        "Bad code: each life of each of its workers, from now on.",
        lambda v: {"kind": "bad-code", "target": v["task"], "detail": f"{v['kind']}{_phase(v)}"},
    ),
    # Nodes
    _sentence(
        "{node} loses power[ for {time}]",
        "All of it is gone; its connections close at once. Its agent starts when power is back.",
        _node("power", "seen"),
    ),
    _sentence(
        "{node} loses power silently[ for {time}]",
        "All of it is gone; no connection closes, the log's server notices after 4 s.",
        _node("power", "silent"),
    ),
    _sentence(
        "{node} can't reach the log[ for {time}]",
        "Agent and workers; workers still reach each other. The server notices at once.",
        _node("cut", "seen"),
    ),
    _sentence(
        "{node} can't reach the log silently[ for {time}]",
        "The same, but the server notices after 4 s.",
        _node("cut", "silent"),
    ),
    _sentence(
        "beats of {node} get lost for {time}",
        "Its heartbeats only; what else it says arrives.",
        _node("mute"),
    ),
    _sentence(
        "the first beat of {node} in its life {number} arrives once more",
        "A heartbeat that was under way for very long.",
        _node("old-beat"),
    ),
    _sentence(
        "the agent of {node} is killed[ for {time}]",
        "Its workers train on until the next agent starts, which ends them.",
        _node("agent"),
    ),
    _sentence(
        "the agent of {node} is told to stop[ for {time}]",
        "As an operator does: it ends its workers and says that it leaves.",
        _node("stop-agent"),
    ),
    _sentence(
        "the agent of {node} is started",
        "A new life of it, as by a service manager.",
        _node("start-agent"),
    ),
    _sentence(
        "nothing starts on device {number} of {node}[ for {time}]",
        "Forks for that device fail.",
        _node("device"),
    ),
    _sentence(
        "what starts on {node} runs other software[ for {time}]",
        "Another version is installed there; then the old one again, and whoever runs the other "
        "one is killed.",
        _node("software"),
    ),
    _sentence(
        "the store of {node} is killed",
        "The process that hosts its rendezvous; the agent starts another.",
        _node("store"),
    ),
    _sentence(
        "an operator gives {node} back",
        "What kept it apart has been mended.",
        _node("give-back"),
    ),
    # The log
    _sentence(
        "the log is away for {time}",
        "The server is away for everybody.",
        lambda v: {"kind": "outage", "for_ms": v["time"]},
    ),
    _sentence(
        "the {nth} {event}[ of {name}] is stored again",
        "A fact stands in the log twice, as after a retry that came too late to be known again.",
        _entry("store-again"),
    ),
    _sentence(
        "the {nth} {event}[ of {name}] is said again",
        "A decision arrives at whoever hears it once more, however old it is.",
        _entry("say-again"),
    ),
    _sentence(
        "{name}[ in its life {number}] says {event}[ with {fields}]",
        "That source writes a fact it wouldn't write by itself: a node's agent or a worker, in its "
        "present life or an earlier one. Fields as name=value; those about itself are filled in.",
        _says,
    ),
    _sentence(
        "a newer agent on {node} writes an event that isn't known",
        "As in the middle of an upgrade.",
        lambda v: {"kind": "unknown-of", "target": v["node"]},
    ),
    # The control plane
    _sentence(
        "the control plane is killed[ at its {nth} effect][ for {time}]",
        "SIGKILL: now, or when it has gone through the doors of its ports so many times more. It "
        "begins again after that time, or after 0.5 s.",
        lambda v: {"kind": "kill-control", "pick": v["nth"] or 0, "for_ms": v["time"] or 500},
    ),
    _sentence(
        "the control plane is stopped for {time}", "SIGSTOP, then SIGCONT.", _control("stop")
    ),
    _sentence(
        "the control plane can't reach the log for {time}", "It alone.", _control("cut-control")
    ),
    _sentence(
        "a second control plane begins",
        "It takes over; the first one has to notice.",
        _control("second"),
    ),
    _sentence("the planner's next answer is late", "By 12 s.", _mood("late")),
    _sentence("the planner's next answer is lost", "It never comes.", _mood("lost")),
    _sentence("the planner's next answer is wrong", "No check may let it pass.", _mood("wrong")),
    _sentence("the planner dies at its next answer", "Its process is killed.", _mood("dead")),
    _sentence(
        "tenant {tenant} may hold {number} device(s)",
        "An operator configures that; until then it may hold all.",
        lambda v: {"kind": "quota", "target": v["tenant"], "pick": v["number"]},
    ),
    _sentence(
        "{task} is submitted once more",
        "Under the name that is taken.",
        lambda v: {"kind": "submit-again", "target": v["task"]},
    ),
)


def fault_of(text: str, at_ms: int, names: Names) -> Fault:
    """The fault that a sentence tells of.

    Raises:
        Problem: no form fits, or something in it doesn't exist.
    """
    found = read_first(SENTENCES, text, names)
    if found is not None:
        make, values = found
        fields: dict[str, Any] = {"at_ms": at_ms} | make(values)
        return Fault(**fields)
    forms = [form for form, _ in SENTENCES]
    raise unread(
        text,
        f"{text!r} can't happen here: no sentence reads like that",
        " | ".join(closest(text, forms)) or "docs/scenarios.md lists all that can happen",
        forms,
        names,
    )
