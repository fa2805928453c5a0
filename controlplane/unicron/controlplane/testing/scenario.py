"""Scenarios: an incident as a text that people write and read; parsed here, run in scripted.py.

Above a line of four dashes stands what happens and what is expected, below it the trace as it was
when somebody last understood it. docs/scenarios.md explains the language.
"""

import difflib
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from unicron.controlplane.core.limits import NODE_DEVICES_MAX
from unicron.controlplane.testing.expectations import Expectation, expectation_of
from unicron.controlplane.testing.moments import MOMENTS, Happening, happening_of
from unicron.controlplane.testing.network import Weather
from unicron.controlplane.testing.options import (
    NodeOptions,
    Options,
    Submission,
    task_spec,
)
from unicron.controlplane.testing.pace import PaceOptions
from unicron.controlplane.testing.sentences import SENTENCES
from unicron.controlplane.testing.words import (
    EVENTS,
    Form,
    Names,
    Problem,
    closest,
    one_of,
    read_first,
    unread,
)
from unicron.events import ConfigError
from unicron.events.base import Decision, Fact

CUT: Final = "----"
_LIMIT_MS: Final = 120_000
#: Most of each that a run gets through in minutes.
_NODES_MAX: Final = 64
_TASKS_MAX: Final = 16
_ITERATIONS_MAX: Final = 10_000
_MICRO_BATCHES_MAX: Final = 1024
_UNTIL_MAX_MS: Final = 3_600_000
#: When tasks are submitted: the first nodes are there by then.
_SUBMIT_MS: Final = 600
_KINDS: Final = {"facts": Fact, "decisions": Decision}


class ScenarioError(ConfigError):
    """A scenario file that can't be read: which line, what was expected there, what to write."""

    default_code = "E-SCENARIO"


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`path`: as errors name it. `ahead_ms`: by how much nodes' clocks are ahead. `limit_ms`: when
    it ends; `to_the_end`: by then everything has to have ended. `only`: events that the trace
    shows, all if empty; `without`: those that it leaves out. `script` and `golden`: the text above
    and below the cut."""

    path: str
    title: str
    options: Options
    ahead_ms: dict[str, int]
    happenings: tuple[Happening, ...]
    expectations: tuple[Expectation, ...]
    limit_ms: int
    to_the_end: bool
    only: frozenset[str]
    without: frozenset[str]
    script: str
    golden: str


class _Draft(msgspec.Struct):
    """What was read so far."""

    names: Names
    nodes: list[NodeOptions] = []
    tasks: list[Submission] = []
    happenings: list[Happening] = []
    #: Lines of what comes at a time, with that time.
    times: list[tuple[int, str, int]] = []
    expectations: list[Expectation] = []
    ahead_ms: dict[str, int] = {}
    seed: int = 1
    weather: dict[str, int] = {}
    pace: dict[str, int] = {}
    window_ms: int = 120_000
    until: tuple[int, bool] | None = None
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()


# --- Declarations and settings --------------------------------------------------------------------

_Put = Callable[[_Draft, dict[str, Any]], None]


def _within(number: int, most: int, whose: str, what: str) -> None:
    if not 1 <= number <= most:
        raise Problem(f"{whose} can't have {number} {what}", f"give it 1 to {most}")


def _node(draft: _Draft, v: dict[str, Any]) -> None:
    _within(v["number"], NODE_DEVICES_MAX, "a node", "devices")
    _within(len(draft.nodes) + 1, _NODES_MAX, "a scenario", "nodes")
    draft.names.nodes[v["new"]] = v["number"]
    draft.nodes.append(
        NodeOptions(
            name=v["new"], devices=v["number"], at_ms=v["time"] or 0, kind=v["kind"] or "cpu"
        )
    )


def _nodes(draft: _Draft, v: dict[str, Any]) -> None:
    first, last = (re.fullmatch(r"(\D+)(\d+)", v[place]) for place in ("new", "new2"))
    if first is None or last is None or first[1] != last[1]:
        fix = "end both in a number, the rest alike, as in: nodes n1 to n4"
        raise Problem(f"nobody can count from {v['new']} to {v['new2']}", fix)
    if int(first[2]) > int(last[2]):
        raise Problem(f"from {v['new']} to {v['new2']} leads nowhere", "as in: nodes n1 to n4")
    many = int(last[2]) - int(first[2]) + 1
    _within(len(draft.nodes) + many, _NODES_MAX, "a scenario", "nodes")
    for number in range(int(first[2]), int(last[2]) + 1):
        name = draft.names.new(f"{first[1]}{number}")
        _node(draft, {"new": name, "number": v["number"], "time": 0, "kind": v["kind"]})


def _task(draft: _Draft, v: dict[str, Any]) -> None:
    _within(len(draft.tasks) + 1, _TASKS_MAX, "a scenario", "tasks")
    _within(v["number"], _ITERATIONS_MAX, "a task", "iterations")
    _within(v["number2"], _MICRO_BATCHES_MAX, "a task", "micro-batches")
    spec = task_spec(
        v["new"],
        iterations=v["number"],
        micro_batches=v["number2"],
        min_devices=1 if v["number3"] is None else v["number3"],
        max_devices=8 if v["number4"] is None else v["number4"],
        weight_milli=10 * (100 if v["number5"] is None else v["number5"]),
        tenant=v["tenant"] or "",
        device_kinds=() if v["kind"] is None else (v["kind"],),
    )
    draft.names.tasks.append(v["new"])
    draft.tasks.append(Submission(spec=spec, at_ms=v["time"] or _SUBMIT_MS))


def _pace(field: str, place: str = "time") -> _Put:
    return lambda draft, v: draft.pace.update({field: v[place]})


def _weather(**fields: str) -> _Put:
    return lambda draft, v: draft.weather.update({f: v[place] for f, place in fields.items()})


def _set(field: str, value: Callable[[dict[str, Any]], Any]) -> _Put:
    return lambda draft, v: setattr(draft, field, value(v))


def _until(*, to_the_end: bool) -> _Put:
    def put(draft: _Draft, v: dict[str, Any]) -> None:
        if v["time"] > _UNTIL_MAX_MS:
            raise Problem(
                "a run can't take so long", f"give it up to {_UNTIL_MAX_MS // 60_000} min"
            )
        draft.until = v["time"], to_the_end

    return put


def _clock(sign: int) -> _Put:
    return lambda draft, v: draft.ahead_ms.update({v["node"]: sign * v["time"]})


def _events(v: dict[str, Any]) -> frozenset[str]:
    """Names of events, with `facts` and `decisions` for all of either."""
    found: set[str] = set()
    for word in re.split(r",? ?\band\b ?|, ?", v["events"]):
        if word in _KINDS:
            found |= {name for name, event in EVENTS.items() if issubclass(event, _KINDS[word])}
        else:
            found.add(one_of("event", word, EVENTS))
    return frozenset(found)


def _setting(template: str, about: str, put: _Put) -> tuple[Form, _Put]:
    return Form(template, about), put


#: All that is declared or set.
SETTINGS: Final[tuple[tuple[Form, _Put], ...]] = (
    _setting(
        "node {new} with {number} device(s)[ of kind {kind}][ from {time}]",
        "A node; its agent starts at that time, at 0 if none is given. Its devices are of kind "
        "`cpu`.",
        _node,
    ),
    _setting(
        "nodes {new} to {new2} with {number} device(s) each[ of kind {kind}]",
        "Several, as in n1 to n4.",
        _nodes,
    ),
    _setting(
        "task {new} of {number} iterations, {number2} micro-batches"
        "[, at least {number3} device(s)][, at most {number4} device(s)]"
        "[, weight {number5} percent][, of tenant {tenant}][, of kind {kind}][, from {time}]",
        "A task that is submitted at that time, or at 0.6 s. Without more it wants 1 to "
        "8 devices of any one kind and weighs 100 percent.",
        _task,
    ),
    _setting(
        "seed {number}", "Where something is left to chance.", _set("seed", lambda v: v["number"])
    ),
    _setting("micro-batches take {time}", "60 ms.", _pace("micro_batch_ms")),
    _setting("forks take {time}", "60 ms.", _pace("fork_ms")),
    _setting("models take {time} to build", "600 ms.", _pace("build_ms")),
    _setting("agents take {time} to start", "500 ms.", _pace("agent_start_ms")),
    _setting("regrouping takes {time}", "40 ms.", _pace("regroup_ms")),
    _setting("copying state takes {time}", "80 ms.", _pace("transfer_ms")),
    _setting(
        "durations vary by {number} percent", "Not at all.", _pace("spread_percent", "number")
    ),
    _setting(
        "messages take {time}",
        "0.4 ms.",
        lambda draft, v: draft.weather.update(latency_us=1000 * v["time"]),
    ),
    _setting(
        "of 1000 messages {number} get lost",
        "None. Orders, beats and questions; a tenth as many of those that are tried again.",
        _weather(loss_permille="number"),
    ),
    _setting(
        "of 1000 messages {number} are late by up to {time}",
        "None.",
        _weather(late_permille="number", late_ms="time"),
    ),
    _setting(
        "the log knows an id again for {time}",
        "120 s.",
        _set("window_ms", lambda v: v["time"]),
    ),
    _setting("the clock of {node} is {time} ahead", "It is right.", _clock(1)),
    _setting("the clock of {node} is {time} behind", "It is right.", _clock(-1)),
    _setting(
        "until everything has ended within {time}",
        "The run ends when every task and incident has an end; otherwise it is stuck. 120 s.",
        _until(to_the_end=True),
    ),
    _setting(
        "until {time}",
        "The run ends then, whatever is going on.",
        _until(to_the_end=False),
    ),
    _setting(
        "trace only {events}",
        "The trace shows these events, and what is done to the cluster; `facts` and `decisions` "
        "stand for all of either.",
        _set("only", _events),
    ),
    _setting(
        "trace without {events}", "The trace leaves these events out.", _set("without", _events)
    ),
)

# --- Reading --------------------------------------------------------------------------------------


def parse(text: str, path: str) -> Scenario:
    """The scenario in `text`; `path` is named in errors.

    Raises:
        ScenarioError: a line can't be read, or something is missing.
    """
    script, _, golden = text.partition(f"\n{CUT}\n")
    script = script.rstrip()
    draft = _Draft(names=Names())
    title = ""
    for number, raw in enumerate(script.splitlines(), 1):
        line = " ".join(raw.split())
        if line.startswith("#"):
            title = title or line.lstrip("# ")
        elif line:
            try:
                _read(draft, number, line)
            except Problem as problem:
                raise ScenarioError(
                    f"{path}:{number}: {problem.what}", why=f"the line is: {line}", fix=problem.fix
                ) from None
    return _whole(draft, path, title, script, golden)


def _read(draft: _Draft, number: int, line: str) -> None:
    first = line.partition(" ")[0]
    if first == "expect":
        text = line.removeprefix("expect").strip()
        draft.expectations.append(expectation_of(number, text, draft.names))
        return
    happening = happening_of(number, line, draft.names)
    if happening is not None:
        draft.happenings.append(happening)
        if happening.after is None:
            draft.times.append((number, line, happening.fault.at_ms))
        return
    found = read_first(SETTINGS, line, draft.names)
    if found is None:
        raise _unread(line, first, draft.names)
    put, values = found
    put(draft, values)
    if put in (_node, _task):
        draft.times.append((number, line, values["time"] or 0))


def _unread(line: str, first: str, names: Names) -> Problem:
    if read_first(SENTENCES, line, names) is not None:
        return Problem("it isn't said when that happens", f"say when: at TIME, {line}")
    if difflib.get_close_matches("before", line.split(), cutoff=0.8):
        fix = "say: at TIME, SENTENCE, or: TIME after EVENT, SENTENCE"
        return Problem("a run can't know what is still to come", fix)
    forms = [*MOMENTS, *(form for form, _ in SETTINGS)]
    if first == "at" or " after " in f" {line}":
        near = [form.shape for form in MOMENTS]
    else:
        near = closest(line, forms)
    expected = " | ".join(near) or "a node, a task, at TIME ..., expect ..., until ..."
    return unread(line, "this line isn't understood", expected, forms, names)


def _whole(draft: _Draft, path: str, title: str, script: str, golden: str) -> Scenario:
    for missing, is_there, fix in (
        ("no node", draft.nodes, "node n1 with 2 devices"),
        ("no task", draft.tasks, "task gpt of 40 iterations, 8 micro-batches"),
        ("nothing expected", draft.expectations, "expect gpt completed"),
    ):
        if not is_there:
            raise ScenarioError(
                f"{path}: there is {missing} in it", fix=f"add a line such as: {fix}"
            )
    limit_ms, to_the_end = draft.until or (_LIMIT_MS, True)
    for number, line, at_ms in draft.times:
        if at_ms >= limit_ms:
            raise ScenarioError(
                f"{path}:{number}: that comes too late: the run is over at {limit_ms / 1000:g} s",
                why=f"the line is: {line}",
                fix=f"give an earlier time, or a limit above {at_ms / 1000:g} s after until",
            )
    return Scenario(
        path=path,
        title=title,
        options=Options(
            seed=draft.seed,
            nodes=tuple(draft.nodes),
            tasks=tuple(draft.tasks),
            weather=Weather(**({"spread_percent": 0} | draft.weather)),
            pace=PaceOptions(**draft.pace),
            window_ms=draft.window_ms,
        ),
        ahead_ms=draft.ahead_ms,
        happenings=tuple(draft.happenings),
        expectations=tuple(draft.expectations),
        limit_ms=limit_ms,
        to_the_end=to_the_end,
        only=draft.only,
        without=draft.without,
        script=script,
        golden=golden,
    )
