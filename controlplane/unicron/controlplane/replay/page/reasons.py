"""Why this answer: each plan with what it changed and what else could have been, and the orders."""

from collections.abc import Iterator

from unicron.controlplane.replay.page.cells import Cell, Marks, badge, folded, t_plus, table
from unicron.controlplane.replay.page.tree import Element, each, el
from unicron.controlplane.replay.story import (
    STRATEGIES,
    GivenDevices,
    GivenOrder,
    IncidentStory,
    PlanChoice,
)
from unicron.controlplane.replay.units import count, duration, gflops


def decisions(story: IncidentStory, marks: Marks) -> Iterator[Element]:
    """Each plan that was taken or dropped."""
    if not story.plans:
        yield el("p", "No plan was made: every task kept the devices that it had.")
    for plan in story.plans:
        yield el("div", *_plan(plan, marks), class_="plan")


def _plan(plan: PlanChoice, marks: Marks) -> Iterator[Cell | None]:
    word = badge("taken", "good") if plan.taken else badge("dropped", "warn")
    source = f"the {plan.source} plan" if plan.source else "the answer"
    void = badge("void: it no longer applied", "warn") if plan.void else None
    yield el("h3", word, " ", source, " ", marks.of(plan.seq), f" {t_plus(plan.t_plus_ms)} ", void)
    yield el("p", plan.reason, class_="lead")
    pairs = zip(plan.before, plan.after, strict=True)
    yield table(
        ("TASK", "BEFORE", "AFTER", "GFLOP/S BEFORE ", "GFLOP/S AFTER "),
        [
            (el("b", old.task), _given(old), _given(new), f"{old.gflops:,}", f"{new.gflops:,}")
            for old, new in pairs
        ],
    )
    told = [text for text in plan.explanation if text != plan.reason]
    yield each("ul", (el("li", text) for text in told)) if told else None
    yield _priced(plan)
    yield _traded(plan, marks)
    yield _asked(plan, marks)


def _given(given: GivenDevices) -> Element:
    if not given.devices:
        return el("span", "parked")
    shape = f"tp {given.tensor_parallel}, pp {given.pipeline_parallel}, dp {given.data_parallel}"
    slots = ", ".join(f"{node}/{device}" for node, device in given.slots)
    more = folded(count(given.devices, "device"), el("span", slots))
    return el("span", more, f" {shape}")


def _priced(plan: PlanChoice) -> Cell | None:
    """The plan and what else could have been done, each with what it is worth."""
    if not plan.source:
        return None
    chosen = (el("b", plan.source), el("b", "chosen" if plan.taken else "answered"))
    values = (gflops(plan.value_milli), gflops(plan.waf_milli))
    rows: list[tuple[Cell, ...]] = [(*chosen, *values, "-")]
    named = [(other.name, other) for other in plan.alternatives]
    named += [(STRATEGIES[other.name], other) for other in plan.strategies]
    for name, other in named:
        less = f"{gflops(abs(other.loss_milli))} {'less' if other.loss_milli >= 0 else 'more'}"
        worth = (gflops(other.value_milli), gflops(other.waf_milli))
        rows.append((name, other.what, *worth, less))
    header = ("METHOD", "WHAT", "WORTH LESS THE CHANGE OVER ", "WAF ", "THAN THE PLAN ")
    note = ""
    if plan.taken and not plan.alternatives:
        note = (
            "Instead: nothing else, all methods agree."
            if plan.comparable
            else "Instead: not known, this version would see another problem there."
        )
    return el("div", table(header, rows), el("p", note, class_="note") if note else None)


def _traded(plan: PlanChoice, marks: Marks) -> Cell | None:
    """Devices that passed from one task to another, and what that cost."""
    rows = [
        (
            trade.device,
            trade.donor,
            trade.receiver,
            trade.state,
            marks.of(trade.released_seq) if trade.released_seq is not None else "-",
            duration(trade.wait_ms),
            duration(trade.donor_stall_ms),
            marks.of(trade.trains_seq) if trade.trains_seq is not None else "-",
            duration(trade.idle_ms),
            duration(trade.receiver_stall_ms),
        )
        for trade in plan.trades
    ]
    if not rows:
        return None
    header = (
        *("DEVICE", "FROM", "TO", "STATE", "RELEASED ", "AFTER ", "DONOR STOOD STILL "),
        *("TRAINS AGAIN ", "IDLE FOR ", "RECEIVER STOOD STILL "),
    )
    return el("div", el("h4", "Devices that change hands"), table(header, rows))


def _asked(plan: PlanChoice, marks: Marks) -> Element:
    """On which state, by which question and answer, with what effort."""
    parts: list[Cell] = ["Computed on ", marks.of(plan.computed_at)]
    if plan.request_seq is not None:
        parts += [", asked with ", marks.of(plan.request_seq)]
    if plan.solved_seq is not None:
        parts += [", answered with ", marks.of(plan.solved_seq)]
    effort = ", ".join(f"{name} {value:,}" for name, value in plan.statistics)
    return el("p", *parts, f"; {effort}." if effort else ".", class_="note")


def orders(story: IncidentStory, marks: Marks) -> Element | None:
    """What was ordered, and what was done about it."""
    rows = [row for order in story.orders for row in _order(order, marks)]
    if not rows:
        return None
    header = ("T+ ", "SEQ ", "WHO", "WHAT", "BECAUSE")
    said = f"{count(len(story.orders), 'order')}, and what was done about each"
    return folded(said, table(header, rows))


def _order(order: GivenOrder, marks: Marks) -> Iterator[tuple[Cell, ...]]:
    void = " (void: it no longer applied)" if order.void else ""
    yield (
        duration(order.t_plus_ms),
        marks.of(order.seq),
        el("b", "order"),
        el("b", order.what + void),
        marks.all(order.because),
    )
    for answer in order.answers:
        when = duration(answer.t_plus_ms)
        yield when, marks.of(answer.seq), answer.who, answer.what, "-"
