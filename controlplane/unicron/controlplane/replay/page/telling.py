"""An incident's page, part by part, in the order in which people ask."""

from collections.abc import Iterator

from unicron.controlplane.replay.page.cells import (
    Cell,
    Marks,
    badge,
    section,
    severity,
    table,
    utc,
)
from unicron.controlplane.replay.page.entries import entries
from unicron.controlplane.replay.page.reasons import decisions, orders
from unicron.controlplane.replay.page.seconds import seconds
from unicron.controlplane.replay.page.timeline import timeline
from unicron.controlplane.replay.page.tree import Element, each, el
from unicron.controlplane.replay.page.writing import postmortem
from unicron.controlplane.replay.phrases import names
from unicron.controlplane.replay.story import IncidentStory, TaskMoment, TaskPassage, Trust
from unicron.controlplane.replay.summary import IncidentSummary
from unicron.controlplane.replay.units import device_time, duration, flop

_TO_WRITE = "What the log knows is filled in; causes, lessons and action items are for people."


def telling(story: IncidentStory, command_end: str) -> Element:
    """All of it. `command_end`: what commands need to read the same log."""
    marks = Marks(e.seq for e in story.events)
    return el(
        "article",
        _head(story),
        section("Who was hit", _tasks(story, marks)),
        section("What happened when", *timeline(story)),
        section("What was the cause", *_cause(story, marks)),
        section("Why this answer", *decisions(story, marks), orders(story, marks)),
        section("Where the seconds went", *seconds(story, marks)),
        section("Can the record be trusted", *_trust(story.trust, marks)),
        section("What now", *_now(story, marks, command_end)),
        section("The postmortem", postmortem(story), note=_TO_WRITE),
        section("Everything", *entries(story, marks)),
    )


# --- Is it over, how bad -------------------------------------------------------------------------


def _head(story: IncidentStory) -> Element:
    i = story.incident
    first, *others = story.headline
    return el(
        "header",
        el("h1", i.id, " ", severity(i.severity), " ", over(i)),
        el("p", first, class_="lead"),
        *(el("p", sentence) for sentence in others),
        el(
            "div",
            _number("detected after", duration(i.detect_ms)),
            _number("stood still", duration(i.stall_ms)),
            _number("cost", flop(i.lost_flop), device_time(i.lost_device_ms)),
            _number("over after", duration(i.duration_ms), "still open" if i.is_open else None),
            class_="numbers",
        ),
        el(
            "p",
            f"T+ counts from the first evidence, #{i.first_evidence_seq:,} at "
            f"{utc(i.first_evidence_at_ns)} UTC. Detection and standstill count from the first "
            "sign in the log; the fault itself may be older. The cost is what the task would have "
            "computed at its throughput of before, by the planner's cost model, less what it did.",
            class_="note",
        ),
    )


def over(incident: IncidentSummary) -> Element:
    """Open or over, in a word."""
    return badge("still open", "bad") if incident.is_open else badge("over", "good")


def _number(name: str, value: str, more: str | None = None) -> Element:
    return el(
        "div",
        el("span", name),
        el("strong", value),
        el("small", more) if more is not None and more != "-" else None,
        class_="number",
    )


# --- Who was hit ---------------------------------------------------------------------------------


def _tasks(story: IncidentStory, marks: Marks) -> Element:
    header = (
        *("TASK", "", "AT ", "T+ ", "DEVICES ", "TP ", "PP ", "DP ", "GENERATION "),
        *("ITERATION ", "GFLOP/S ", "PHASE", "WHAT TRAINED"),
    )
    rows = [row for passage in story.tasks for row in _passage(passage, marks)]
    return table(header, rows) or el("p", "No task was hit.")


def _passage(passage: TaskPassage, marks: Marks) -> Iterator[tuple[Cell, ...]]:
    moments = [("before", passage.before), ("during", passage.during), ("after", passage.after)]
    moments.append(("whole again", passage.whole))
    for word, moment in moments:
        if moment is not None:
            yield (el("b", passage.task), word, *_moment(moment, marks))


def _moment(moment: TaskMoment, marks: Marks) -> tuple[Cell, ...]:
    return (
        marks.of(moment.seq),
        duration(moment.t_plus_ms),
        str(moment.devices),
        str(moment.tensor_parallel),
        str(moment.pipeline_parallel),
        str(moment.data_parallel),
        str(moment.generation),
        f"{moment.iteration:,}",
        f"{moment.gflops:,}",
        moment.phase or "-",
        names(moment.workers) or "-",
    )


# --- The cause -----------------------------------------------------------------------------------


def _cause(story: IncidentStory, marks: Marks) -> Iterator[Cell | None]:
    colours = {"cause": "bad", "suspicion": "warn", "symptom": "plain"}
    rows = [
        (duration(e.t_plus_ms), marks.of(e.seq), badge(e.weight, colours[e.weight]), e.who, e.what)
        for e in story.evidence
    ]
    yield table(("T+ ", "SEQ ", "WEIGHT", "WHO", "WHAT"), rows)
    if story.disagreements:
        yield el("h3", "Where it did not fit together")
        yield each("ul", (el("li", text) for text in story.disagreements))


# --- The record, what now ------------------------------------------------------------------------


def _trust(trust: Trust, marks: Marks) -> Iterator[Cell | None]:
    yield el("p", badge(*_verdict(trust)), " ", _words(trust))
    rows = [
        (
            marks.of(leader.term),
            leader.instance,
            leader.version or "?",
            str(leader.logic_version),
            str(leader.fold_version),
        )
        for leader in trust.leaders
    ]
    yield table(("FROM ", "WHO LED", "VERSION", "LOGIC ", "FOLD "), rows)
    yield el(
        "dl",
        el("dt", f"state after #{trust.to_seq:,}"),
        el("dd", el("code", trust.state_digest)),
        el("dt", "chain of its entries"),
        el("dd", el("code", trust.chain)),
    )


def _verdict(trust: Trust) -> tuple[str, str]:
    if trust.verified is None:
        return "not verified", "plain"
    return ("verified", "good") if trust.verified else ("does not hold", "bad")


def _words(trust: Trust) -> str:
    if trust.first_wrong_seq is not None:
        return f"at #{trust.first_wrong_seq:,}: {trust.message}"
    others = ""
    if trust.other_versions:
        others = f", {trust.other_versions:,} of other versions could not be"
    return (
        f"#{trust.from_seq:,} to #{trust.to_seq:,} were folded, "
        f"{trust.redecided:,} decisions decided again{others}."
    )


def _now(story: IncidentStory, marks: Marks, command_end: str) -> Iterator[Cell | None]:
    rows = [(n.kind, el("b", n.name), n.state, marks.of(n.since_seq), n.what) for n in story.now]
    yield table(("", "", "STATE", "SINCE ", "WHAT"), rows)
    yield from commands(story, command_end)


def commands(story: IncidentStory, command_end: str) -> Iterator[Element]:
    """To type next, each with what it tells."""
    for command in story.commands:
        words = " ".join(["unicron", *command.arguments, *([command_end] if command_end else [])])
        yield el("p", el("code", words), f" {command.about}", class_="command")
