"""Sentences of the scenario language: their forms, and how a line is read by one.

A form is a sentence with places in it: ``{node} loses power[ silently][ for {time}]``. What stands
in brackets may be left out; ``device(s)`` is one word in singular or plural. A place is named after
the kind of what stands there, with a digit behind it where one kind comes twice.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar, get_args

import msgspec

from unicron.events import AnyEvent

T = TypeVar("T")

#: Kind of place -> what may stand there. Any other kind: one word.
_WRITTEN: Final = {
    "time": r"\d+(?:\.\d+)? ?(?:ms|s|min)",
    "nth": r"first|last|\d+(?:st|nd|rd|th)",
    "number": r"\d+",
    "count": r"no|an?|\d+|at least \d+|at most \d+",
    "text": r'"[^"]*"',
    "sentence": r".+",
    "events": r".+",
    "workers": r".+",
    "fields": r".+",
}
_WORD: Final = r"[\w./-]+"
_SHOWN: Final = {"new": "NAME", "new2": "NAME"}
_MS: Final = {"ms": 1, "s": 1000, "min": 60_000}
_PLACE: Final = re.compile(r"\{(\w+)\}")
_TOKEN: Final = re.compile(r"\{\w+\}|\(s\)|\[|\]|[^{}\[\]()]+")

_NUMBER: Final = r"\d+(?:\.\d+)?"
#: What people write for a time, and what isn't one.
_NO_TIME: Final = re.compile(
    rf"(?<![\w/.-]){_NUMBER} ?(?:us|m|h|(?:msec|millisecond|sec|second|minute|hour|hr)s?|mins)\b"
    rf"|(?<=\bat ){_NUMBER}(?=,)|(?<=\bfor ){_NUMBER}$"
)
_NEGATIVE: Final = re.compile(rf"(?<![\w/.-])-{_NUMBER}")

EVENTS: Final = {event.__name__: event for event in get_args(AnyEvent)}


class Problem(Exception):
    """A line that can't be read. `what`, and `fix`: what to write instead."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


class Count(msgspec.Struct, frozen=True):
    """How many: from `least` to `most`, without end if None."""

    least: int
    most: int | None

    def holds(self, number: int) -> bool:
        return self.least <= number and (self.most is None or number <= self.most)


class Names(msgspec.Struct):
    """What a scenario has declared so far: nodes with their devices, tasks."""

    nodes: dict[str, int] = {}
    tasks: list[str] = []

    def node(self, word: str) -> str:
        return one_of("node", word, self.nodes)

    def task(self, word: str) -> str:
        return one_of("task", word, self.tasks)

    def worker(self, word: str) -> str:
        node, slash, device = word.partition("/")
        if not slash or not device.isdecimal():
            raise Problem(f"{word!r} is no worker", "a worker is written node/device, as in n1/0")
        devices = self.nodes[self.node(node)]
        if int(device) >= devices:
            raise Problem(
                f"there is no worker {word}: {node} has {devices} device(s)",
                f"use {node}/0 to {node}/{devices - 1}, or declare more devices above",
            )
        return word

    def name(self, word: str) -> str:
        """A node, a worker or a task."""
        if word in self.nodes or word in self.tasks:
            return word
        if "/" in word:
            return self.worker(word)
        raise _unknown("node, worker or task", word, [*self.nodes, *self.tasks])

    def new(self, word: str) -> str:
        if not re.fullmatch(r"[A-Za-z][\w-]*", word):
            raise Problem(f"{word!r} can't be a name", "begin with a letter; then letters, digits")
        if word in self.nodes or word in self.tasks:
            raise Problem(f"{word} is declared twice", "give each node and task a name of its own")
        return word


class Form:
    """One sentence. `about`: what it means, for people."""

    def __init__(self, template: str, about: str) -> None:
        self.template, self.about = template, about
        self.places = _PLACE.findall(template)
        self._pattern = re.compile("".join(map(_written, _TOKEN.findall(template))))

    @property
    def shape(self) -> str:
        """The form as people read it: ``NODE loses power [silently] [for TIME]``."""
        places = _PLACE.sub(lambda m: _SHOWN.get(m[1], _kind(m[1]).upper()), self.template)
        return places.replace("[ ", " [").replace(" ]", "] ")

    def read(self, line: str, names: Names) -> dict[str, Any] | None:
        """Place -> value; absent places hold None. None if the line isn't of this form.

        Raises:
            Problem: it is, but something in it doesn't exist.
        """
        match = self._pattern.fullmatch(line)
        if match is None:
            return None
        found = match.groupdict()
        return {p: None if t is None else _value(_kind(p), t, names) for p, t in found.items()}


def _written(token: str) -> str:
    place = _PLACE.fullmatch(token)
    if place is not None:
        return f"(?P<{place[1]}>{_WRITTEN.get(_kind(place[1]), _WORD)})"
    return {"(s)": "s?", "[": "(?:", "]": ")?"}.get(token, re.escape(token))


def _kind(place: str) -> str:
    return place.rstrip("0123456789")


def _value(kind: str, text: str, names: Names) -> Any:
    match kind:
        case "time":
            return milliseconds(text)
        case "number":
            return int(text)
        case "nth":
            return {"first": 1, "last": 0}[text] if text in ("first", "last") else int(text[:-2])
        case "count":
            return _count(text)
        case "text":
            return text[1:-1]
        case "event":
            return one_of("event", text, EVENTS)
        case "node" | "task" | "worker" | "name" | "new":
            return getattr(names, kind)(text)
        case _:
            return text


def milliseconds(text: str) -> int:
    """``1.5 s``, ``300 ms``, ``2 min``."""
    match = re.fullmatch(r"([\d.]+) ?(ms|s|min)", text)
    assert match is not None
    found = float(match[1]) * _MS[match[2]]
    if abs(found - round(found)) > 1e-6:
        raise Problem(f"{text} is no whole number of milliseconds", "give at most three decimals")
    return round(found)


def _count(text: str) -> Count:
    words = text.split()
    number = {"no": 0, "a": 1, "an": 1}.get(words[-1])
    number = int(words[-1]) if number is None else number
    least = 0 if words[:2] == ["at", "most"] else number
    return Count(least, None if words[:2] == ["at", "least"] else number)


def one_of(kind: str, word: str, known: Iterable[str]) -> str:
    """The word, if it is one of those. Raises Problem with a near one otherwise."""
    if word in known:
        return word
    raise _unknown(kind, word, list(known))


def _unknown(kind: str, word: str, known: list[str]) -> Problem:
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        fix = f"did you mean {near[0]}?"
    elif not known:
        fix = f"declare it in a line above, as in: {_DECLARED.get(kind, 'node n1 with 2 devices')}"
    else:
        fix = f"there are: {', '.join(known)}"
    return Problem(f"there is no {kind} {word!r}", fix)


_DECLARED: Final = {"task": "task gpt of 40 iterations, 8 micro-batches"}


def read_first(
    forms: Iterable[tuple[Form, T]], line: str, names: Names
) -> tuple[T, dict[str, Any]] | None:
    """What goes with the first form that reads the line, and what it read. None if none does.

    Raises:
        Problem: there is a form for such a line, but something in it doesn't exist.
    """
    problem: Problem | None = None
    for form, what in forms:
        try:
            values = form.read(line, names)
        except Problem as error:
            problem = problem or error  # another form may have another kind of place there
            continue
        if values is not None:
            return what, values
    if problem is not None:
        raise problem
    return None


def closest(line: str, forms: Iterable[Form], most: int = 3) -> list[str]:
    """Shapes of the forms that share the most words with the line."""
    words = set(line.replace(",", " ").split())
    scored = [
        (len(words & set(re.split(r"[\s,\[\]]+", form.shape))), -number, form.shape)
        for number, form in enumerate(forms)
    ]
    best = max(scored, default=(0, 0, ""))[0]
    near = sorted((s for s in scored if s[0] == best and best), reverse=True)
    return [shape for _, _, shape in near[:most]]


def unread(line: str, what: str, fix: str, forms: Iterable[Form], names: Names) -> Problem:
    """What is wrong with a line that none of the forms reads: a common slip in it if there is
    one, `what` and `fix` otherwise."""
    plain = re.sub(r'"[^"]*"', "", line)
    time, negative = _NO_TIME.search(plain), _NEGATIVE.search(plain)
    if time is not None:
        return Problem(f"{time[0]!r} is no time", "write times as 300 ms, 1.5 s or 2 min")
    if negative is not None:
        return Problem(f"{negative[0]} is below 0", "give a number without a sign")
    word, near = _misspelt(plain, forms, names)
    if near:
        shapes = closest(line.replace(word, near), forms)
        meant = f"did you mean {near!r} instead of {word!r}?"
        return Problem(what, " ".join([meant, " | ".join(shapes)]).rstrip())
    return Problem(what, fix)


def _misspelt(line: str, forms: Iterable[Form], names: Names) -> tuple[str, str]:
    """The first word that is nearly one of the forms', and that one; "" if there is none."""
    known = {"expect"}
    for form in forms:
        known |= set(re.findall(r"[a-z'-]+", _PLACE.sub(" ", form.template).replace("(s)", "s")))
    for word in re.findall(r"(?<![\w/])[a-z'-]{3,}(?![\w/])", line):
        if word in known or f"{word}s" in known or word in names.nodes or word in names.tasks:
            continue
        near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.66)
        if near:
            return word, near[0]
    return "", ""
