"""The story of one incident as text, in the order in which people ask, and as JSON."""

from collections.abc import Iterable
from typing import Final

from unicron.controlplane.cli.incident_list import item, trust_line
from unicron.controlplane.cli.opened import Opened, document, next_lines
from unicron.controlplane.cli.output import Cell, duration, hung, number, table, utc, width
from unicron.controlplane.replay import IncidentStory, ReplayReport, StoryEvent
from unicron.controlplane.replay.phrases import names, one_line
from unicron.controlplane.replay.steps import Step
from unicron.controlplane.replay.story import (
    STRATEGIES,
    GivenDevices,
    GivenOrder,
    PlanChoice,
    TaskMoment,
    TaskPassage,
)
from unicron.controlplane.replay.trades import in_words
from unicron.controlplane.replay.units import gflops

_KIND_COLOURS: Final = {"observed": "yellow", "decided": "cyan", "done": ""}
_MS: Final = 1_000_000
_CAUSES_MAX: Final = 4


def as_json(opened: Opened, story: IncidentStory, report: ReplayReport) -> str:
    """Every field of the story."""
    return document(
        "unicron.audit.incident/1",
        opened,
        story,
        verified_to=report.last_seq,
        divergence=report.divergence,
        first_evidence_at=item(story.incident)["first_evidence_at"],
    )


def as_text(opened: Opened, story: IncidentStory, report: ReplayReport) -> str:
    """Is it over and what did it cost; who; what, when; why; can I trust it; what now."""
    sections = [
        _head(story),
        _tasks(story),
        _steps(story),
        _evidence(story),
        _plans(story),
        _orders(story),
        _events(story),
        _throughput(story),
        _trust(story, report),
        _now(story),
        next_lines(opened, story.commands),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _line(text: str, indent: int = 2) -> str:
    return hung(one_line(text), indent, width())


def _head(story: IncidentStory) -> list[str]:
    i = story.incident
    over = "still open" if i.is_open else f"over after {duration(i.duration_ms)}"
    who = {"task": i.task, "node": i.node, "worker": i.worker}
    hit = ", ".join(f"{name} {value}" for name, value in who.items() if value)
    return [
        _line(f"{i.id} SEV{i.severity}, {over}: {i.what}"),
        *(_line(sentence) for sentence in story.headline[1:]),
        _line(
            f"T+ counts from the first evidence, #{number(i.first_evidence_seq)} at "
            f"{utc(i.first_evidence_at_ns)} UTC; the incident was opened "
            f"{duration(i.detect_ms)} after the first sign of it" + (f" ({hit})" if hit else "")
        ),
    ]


def _section(name: str, text: str) -> list[str]:
    return [name, text] if text else []


# --- Whom it hit ---------------------------------------------------------------------------------


def _tasks(story: IncidentStory) -> list[str]:
    header = ("TASK", "", "AT ", "DEVICES ", "DP ", "GEN ", "ITER ", "GFLOP/s ", "WORKERS")
    rows = [row for passage in story.tasks for row in _passage(passage)]
    return _section("TASKS HIT", table(header, rows, width())) if rows else []


def _passage(passage: TaskPassage) -> Iterable[tuple[str, ...]]:
    moments = [("before", passage.before), ("during", passage.during), ("after", passage.after)]
    moments.append(("whole again", passage.whole))
    name: str = passage.task
    for word, moment in moments:
        if moment is not None:
            yield (name, word, *_moment(moment))
            name = ""


def _moment(moment: TaskMoment) -> tuple[str, ...]:
    return (
        f"#{moment.seq}",
        str(moment.devices),
        str(moment.data_parallel),
        str(moment.generation),
        str(moment.iteration),
        f"{moment.gflops:,}",
        names(moment.workers) or moment.phase or "-",
    )


# --- What happened when --------------------------------------------------------------------------


def _steps(story: IncidentStory) -> list[str]:
    start = story.incident.first_evidence_at_ns
    rows = [_step(step, start) for step in story.steps.steps]
    header = ("T+ ", "TOOK ", "STEP", "FROM ", "TO ", "WHO AND WHAT")
    return _section("STEPS", table(header, rows, width())) if rows else []


def _step(step: Step, start: int) -> tuple[str, ...]:
    took = None if step.duration_ns is None else step.duration_ns // _MS
    workers = names(tuple(dict.fromkeys(rank.worker for rank in step.ranks)))
    generation = f"generation {step.generation}" if step.generation is not None else ""
    state = "" if step.state == "done" else f"({step.state})"
    return (
        duration((step.start_ns - start) // _MS),
        duration(took),
        step.name,
        f"#{step.first_seq}",
        f"#{step.last_seq}" if step.last_seq is not None else "-",
        ", ".join(filter(None, (generation, workers))) + (f" {state}" if state else ""),
    )


def _throughput(story: IncidentStory) -> list[str]:
    rows = [
        (
            curve.task,
            duration(point.t_plus_ms),
            f"#{point.seq}",
            f"{point.gflops:,}",
            str(point.devices),
            str(point.generation) if point.devices else "-",
            "",
        )
        for curve in story.throughput
        for point in curve.points
    ]
    header = ("TASK", "FROM T+ ", "SEQ ", "GFLOP/s ", "DEVICES ", "GEN ", "")
    if not rows:
        return []
    return _section("THROUGHPUT, BY THE COST MODEL", table(header, rows, width()))


def _events(story: IncidentStory) -> list[str]:
    return _section("ALL EVENTS", events_table(story.events))


def events_table(events: Iterable[StoryEvent]) -> str:
    """A line each: when, which, what kind, who, because of what, what."""
    rows = [
        (
            duration(event.t_plus_ms),
            f"#{event.seq}",
            Cell(event.kind, _KIND_COLOURS[event.kind]),
            event.who,
            causes(event.because),
            f"{event.what}{' (void: it no longer applied)' if event.void else ''}",
        )
        for event in events
    ]
    return table(("T+ ", "SEQ ", "KIND", "WHO", "BECAUSE", "WHAT"), rows, width())


def causes(sequences: tuple[int, ...]) -> str:
    """``#3,#7``; many are cut short."""
    more = ",..." if len(sequences) > _CAUSES_MAX else ""
    return (",".join(f"#{seq}" for seq in sequences[:_CAUSES_MAX]) + more) or "-"


# --- Why -----------------------------------------------------------------------------------------


def _evidence(story: IncidentStory) -> list[str]:
    rows = [(duration(e.t_plus_ms), f"#{e.seq}", e.weight, e.who, e.what) for e in story.evidence]
    lines = _section("EVIDENCE", table(("T+ ", "SEQ ", "WEIGHT", "WHO", "WHAT"), rows, width()))
    return [*lines, *(_line(f"! {text}") for text in story.disagreements)]


def _plans(story: IncidentStory) -> list[str]:
    lines = [line for plan in story.plans for line in _plan(plan)]
    return ["DECISIONS", *lines] if lines else []


def _plan(plan: PlanChoice) -> list[str]:
    word = "took" if plan.taken else "dropped"
    void = " (void: it no longer applied)" if plan.void else ""
    source = f"the {plan.source} plan" if plan.source else "the answer"
    head = f"#{plan.seq} at {duration(plan.t_plus_ms)}: {word} {source}"
    lines = [f"{head}, computed on #{plan.computed_at}{void}: {plan.reason}"]
    pairs = zip(plan.before, plan.after, strict=True)
    lines += [f"  {_given(old)} -> {_given(new)}" for old, new in pairs]
    lines += [f"  {text}" for text in plan.explanation if text != plan.reason]
    if plan.source:
        lines.append(f"  worth {gflops(plan.value_milli)}, weighted and less the change over")
    for other in plan.alternatives:
        less = gflops(abs(other.loss_milli))
        how = "less" if other.loss_milli >= 0 else "more"
        lines.append(f"  instead ({other.name}): {other.what}; worth {less} {how}")
    lines += [f"  {line}" for line in _compared(plan)]
    lines += [f"  {in_words(trade)}" for trade in plan.trades]
    if plan.taken and not plan.alternatives:
        lines.append(
            "  instead: nothing else, all methods agree"
            if plan.comparable
            else "  instead: not known, this version would see another problem there"
        )
    return [
        hung(line[: len(line) - len(line.lstrip())] + one_line(line), 4, width()) for line in lines
    ]


def _compared(plan: PlanChoice) -> list[str]:
    """What each strategy would have been worth, a line for those that come to the same."""
    same: dict[tuple[str, int], list[str]] = {}
    for other in plan.strategies:
        same.setdefault((other.what, other.loss_milli), []).append(STRATEGIES[other.name])
    return [
        f"{', '.join(names_)}: {what}; {_than_the_plan(loss)}"
        for (what, loss), names_ in same.items()
    ]


def _than_the_plan(loss_milli: int) -> str:
    if not loss_milli:
        return "worth as much"
    return f"worth {gflops(abs(loss_milli))} {'less' if loss_milli > 0 else 'more'}"


def _given(given: GivenDevices) -> str:
    if not given.devices:
        return f"{given.task} parked"
    slots = names(tuple(f"{node}/{device}" for node, device in given.slots))
    return f"{given.task} on {slots} (dp {given.data_parallel}, {given.gflops:,} GFLOP/s)"


def _orders(story: IncidentStory) -> list[str]:
    rows = [row for order in story.orders for row in _order(order)]
    header = ("T+ ", "SEQ ", "BECAUSE", "ORDER AND WHAT WAS DONE")
    return _section("ORDERS", table(header, rows, width())) if rows else []


def _order(order: GivenOrder) -> Iterable[tuple[str, ...]]:
    void = " (void: it no longer applied)" if order.void else ""
    yield duration(order.t_plus_ms), f"#{order.seq}", causes(order.because), f"{order.what}{void}"
    for answer in order.answers:
        yield duration(answer.t_plus_ms), f"#{answer.seq}", "", f"= {answer.what}"


# --- Can I trust it, what now --------------------------------------------------------------------


def _trust(story: IncidentStory, report: ReplayReport) -> list[str]:
    trust = story.trust
    leaders = [
        f"{leader.instance} led from #{number(leader.term)}: version {leader.version or '?'}, "
        f"logic {leader.logic_version}, fold {leader.fold_version}"
        for leader in trust.leaders
    ]
    return [
        "RECORD",
        hung(trust_line(report), 2, width()),
        *(_line(text) for text in leaders),
        f"state  {trust.state_digest}",
        f"chain  {trust.chain}",
    ]


def _now(story: IncidentStory) -> list[str]:
    rows = [(n.kind, n.name, n.state, f"#{n.since_seq}", n.what) for n in story.now]
    return (
        _section("NOW", table(("", "", "STATE", "SINCE ", "WHAT"), rows, width())) if rows else []
    )
