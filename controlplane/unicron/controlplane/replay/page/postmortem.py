"""The skeleton of a postmortem, in Markdown: what the log knows is filled in, the rest is for the
people who write it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from unicron.controlplane.replay.story import IncidentStory, TaskPassage, Trust
from unicron.controlplane.replay.units import count, device_time, duration, flop

#: One line, in the pieces that it is put together from.
Line = tuple[str, ...]

_OPEN: Final = "(to be written)"
#: So many entries of the log at most.
_TOLD_MAX: Final = 80
#: What Markdown, or the HTML in it, would take for its own.
_MARKED: Final = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|~"})


def postmortem_of(story: IncidentStory) -> tuple[Line, ...]:
    """Its lines. Texts of the log are escaped."""
    return tuple(_lines(story))


def plain(text: str) -> str:
    """The text, so that Markdown shows it as it is."""
    return text.translate(_MARKED)


def _lines(story: IncidentStory) -> Iterator[Line]:
    i = story.incident
    yield "# ", plain(i.id), ": ", plain(i.what)
    yield ("",)
    yield "- Date: ", _utc(i.first_evidence_at_ns, "%Y-%m-%d %H:%M:%S"), " UTC"
    yield "- Authors: ", _OPEN
    status = "still open" if i.is_open else f"over after {duration(i.duration_ms)}"
    yield "- Status: ", f"SEV{i.severity}, ", status
    yield from _section("Summary", (tuple(_joined(story.headline)),))
    yield from _section("Impact", _impact(story))
    yield from _section("Root cause and trigger", _cause(story))
    yield from _section("Detection", _detection(story))
    yield from _section("Resolution", _resolution(story))
    yield from _section("What went well, what went wrong, where we were lucky", (("- ", _OPEN),))
    yield from _section("Action items", _actions())
    yield from _section("Timeline (UTC)", _timeline(story))
    yield from _section("The record", _record(story.trust))


def _section(name: str, lines: Iterator[Line] | tuple[Line, ...]) -> Iterator[Line]:
    yield ("",)
    yield "## ", name
    yield ("",)
    yield from lines


def _joined(sentences: tuple[str, ...]) -> Iterator[str]:
    for place, sentence in enumerate(sentences):
        yield plain(sentence) if not place else f" {plain(sentence)}"


def _impact(story: IncidentStory) -> Iterator[Line]:
    for passage in story.tasks:
        yield "- ", plain(passage.task), ": ", _sizes(passage)
    i = story.incident
    yield "- stood still: ", duration(i.stall_ms)
    if i.costs:
        yield "- cost: ", f"{flop(i.lost_flop)} ({device_time(i.lost_device_ms)})"


def _sizes(passage: TaskPassage) -> str:
    words = f"{count(passage.before.devices, 'device')} before, {passage.during.devices} during"
    if passage.after is not None:
        words += f", {passage.after.devices} when it was over"
    if passage.whole is not None:
        words += f", {passage.whole.devices} again after {duration(passage.whole.t_plus_ms)}"
    return words


def _cause(story: IncidentStory) -> Iterator[Line]:
    told = [e for e in story.evidence if e.weight == "cause"] or list(story.evidence)
    for evidence in told:
        yield "- ", _event(evidence.seq), " ", plain(evidence.who), ": ", plain(evidence.what)
    yield "- why that could happen: ", _OPEN


def _detection(story: IncidentStory) -> Iterator[Line]:
    i = story.incident
    yield (
        *("- first sign ", _event(i.first_evidence_seq), "; opened ", duration(i.detect_ms)),
        *(" after it with ", _event(i.opened_seq)),
    )
    for text in story.disagreements:
        yield "- ", plain(text)


def _resolution(story: IncidentStory) -> Iterator[Line]:
    for plan in story.plans:
        if plan.taken and not plan.void:
            source = f" took the {plan.source} plan: "
            yield "- ", _event(plan.seq), source, plain(plan.reason)
    yield "- outcome: ", plain(story.incident.outcome) or "still open"


def _actions() -> tuple[Line, ...]:
    return ("| what | who | until |",), ("|---|---|---|",), (f"| {_OPEN} | | |",)


def _timeline(story: IncidentStory) -> Iterator[Line]:
    """What was seen and what was decided; what was done about it is in the log."""
    told = [e for e in story.events if e.kind != "done" and not e.void]
    for event in told[:_TOLD_MAX]:
        at = _utc(event.at_ns, "%H:%M:%S")
        yield "- ", at, " ", _event(event.seq), " ", plain(event.who), ": ", plain(event.what)
    if len(told) > _TOLD_MAX:
        yield "- and ", f"{len(told) - _TOLD_MAX} more, up to ", _event(told[-1].seq)


def _record(trust: Trust) -> Iterator[Line]:
    if trust.verified is None:
        word = "not verified"
    else:
        word = "verified" if trust.verified else "does not hold"
    yield "- ", word, f": `#{trust.from_seq}` to `#{trust.to_seq}`"
    yield "- chain: `", trust.chain, "`"
    yield "- state: `", trust.state_digest, "`"


def _event(seq: int) -> str:
    """In such a way that no forge takes it for one of its issues."""
    return f"`#{seq}`"


def _utc(at_ns: int, form: str) -> str:
    at = datetime.fromtimestamp(at_ns // 1_000_000_000, UTC)
    return f"{at.strftime(form)}.{at_ns // 1_000_000 % 1000:03}"
