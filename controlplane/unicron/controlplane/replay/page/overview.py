"""All incidents of a log on one page: what they cost, the throughput over time, a row each."""

from collections.abc import Container
from collections.abc import Sequence as SequenceOf

from unicron.controlplane.replay.page.axis import Axis
from unicron.controlplane.replay.page.cells import (
    Cell,
    badge,
    folded,
    section,
    severity,
    table,
    utc,
)
from unicron.controlplane.replay.page.charts import chart, lasted, ruler
from unicron.controlplane.replay.page.tree import Element, each, el
from unicron.controlplane.replay.story import ThroughputCurve
from unicron.controlplane.replay.summary import LOG_END, IncidentSummary
from unicron.controlplane.replay.units import device_time, duration, flop

_MS = 1_000_000


def overview(
    verdict: str,
    incidents: SequenceOf[IncidentSummary],
    throughput: SequenceOf[ThroughputCurve],
    told: Container[int],
    command_end: str,
) -> Element:
    """`verdict`: all in a sentence; `told`: places of incidents whose story the page holds."""
    return el(
        "article",
        el("header", el("h1", "Incidents"), el("p", verdict, class_="lead"), _numbers(incidents)),
        section("When", *_when(incidents, throughput, told)),
        section("Which", *_which(incidents, told, command_end)),
        id="overview",
    )


def _numbers(incidents: SequenceOf[IncidentSummary]) -> Element:
    still = sum(i.is_open for i in incidents)
    worst = sum(i.severity == 1 for i in incidents)
    stalls = sum(i.stall_ms or 0 for i in incidents)
    numbers = [
        ("incidents", f"{len(incidents):,}", f"{still:,} open"),
        ("of SEV1", f"{worst:,}", None),
        ("stood still", duration(stalls), "summed over incidents"),
        ("cost", flop(sum(i.lost_flop or 0 for i in incidents)),
         device_time(sum(i.lost_device_ms or 0 for i in incidents))),
    ]  # fmt: skip
    tiles = [
        el(
            "div",
            el("span", name),
            el("strong", value),
            el("small", more) if more else None,
            class_="number",
        )
        for name, value, more in numbers
    ]
    return each("div", tiles, class_="numbers")


# --- When ----------------------------------------------------------------------------------------


def _when(
    incidents: SequenceOf[IncidentSummary],
    throughput: SequenceOf[ThroughputCurve],
    told: Container[int],
) -> tuple[Cell | None, ...]:
    times = [p.at_ns for c in throughput for p in c.points] + [c.to_ns for c in throughput]
    times += [t for i in incidents for t in (i.began_at_ns, i.last_at_ns)]
    if not times:
        return (el("p", "Nothing trained, and nothing went wrong."),)
    axis = Axis(times)
    rows: list[tuple[str, Element, str]] = [(c.task, chart(axis, c), "tall") for c in throughput]
    rows.append(("T+", ruler(axis, axis.start_ns), "ruler"))
    for level in sorted({i.severity for i in incidents}):
        these = [(at, i) for at, i in enumerate(incidents) if i.severity == level]
        rows.append((f"SEV{level}", lasted(axis, these, told), "control"))
    lanes = (
        el("div", el("span", name), drawn, class_=f"lane {kind}", part=True)
        for name, drawn, kind in rows
    )
    return (
        each("div", lanes, class_="lanes"),
        el("p", f"T+ counts from {utc(axis.start_ns)} UTC.", class_="note"),
        folded("The throughput in numbers, by the cost model", _paces(throughput)),
    )


def _paces(throughput: SequenceOf[ThroughputCurve]) -> Element | None:
    rows = [
        (c.task, utc(p.at_ns), f"#{p.seq:,}", f"{p.gflops:,}", str(p.devices), str(p.generation))
        for c in throughput
        for p in c.points
    ]
    return table(("TASK", "FROM (UTC)", "SEQ ", "GFLOP/S ", "DEVICES ", "GEN "), rows)


# --- Which ---------------------------------------------------------------------------------------


def _which(
    incidents: SequenceOf[IncidentSummary], told: Container[int], command_end: str
) -> tuple[Cell | None, ...]:
    header = (
        *("ID", "SEV", "WHEN (UTC)", "TASKS", "DETECT ", "STALL ", "LASTED ", "COST "),
        *("DEVICE TIME ", "WHAT AND OUTCOME"),
    )
    rows = [_row(at, i, told) for at, i in enumerate(incidents)]
    left = sum(at not in told for at in range(len(incidents)))
    parts = ["An id leads to its story."] if len(incidents) > left else []
    if left:
        parts.append(
            f"The stories of the {left:,} oldest are left out, the page would be too large: "
            f"unicron audit ID --html FILE {command_end} writes one."
        )
    return (
        el("p", *[f"{text} " for text in parts], class_="note") if parts else None,
        el(
            "noscript",
            el("p", "Stories are drawn by the page's script, which doesn't run here: "
               f"unicron audit ID --html FILE {command_end} writes one that needs none.",
               class_="note"),
        ) if parts else None,
        table(header, rows),
    )  # fmt: skip


def _row(at: int, incident: IncidentSummary, told: Container[int]) -> tuple[Cell, ...]:
    i = incident
    more = "+" if i.cost_until == LOG_END and i.lost_flop else ""
    return (
        el("a", i.id, href=f"#i{at}") if at in told else i.id,
        severity(i.severity),
        utc(i.first_evidence_at_ns),
        ", ".join(i.tasks) or "-",
        duration(i.detect_ms),
        duration(i.stall_ms),
        duration(i.duration_ms),
        flop(i.lost_flop) + more,
        device_time(i.lost_device_ms),
        el("span", i.what, "; ", badge("still open", "bad") if i.is_open else i.outcome),
    )
