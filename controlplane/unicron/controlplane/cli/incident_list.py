"""All incidents of a log: a row each, what they cost in all, and whether the record holds."""

from collections.abc import Sequence as SequenceOf
from typing import Any, Final

import click
import msgspec

from unicron.controlplane.cli.opened import Opened, document, next_lines
from unicron.controlplane.cli.output import duration, hung, number, rfc3339, table, utc, width
from unicron.controlplane.replay import IncidentSummary, ReplayReport
from unicron.controlplane.replay.phrases import one_line
from unicron.controlplane.replay.story import NextCommand
from unicron.controlplane.replay.summary import LOG_END
from unicron.controlplane.replay.units import count, device_time, flop

_HEADER: Final = ("ID", "SEV ", "WHEN", "TASK", "DETECT ", "STALL ", "LASTED ", "COST ")
#: With less room than this, what happened stands on lines of its own.
_WORDS_MIN: Final = 40
_LEGEND: Final = (
    "DETECT (until the incident was opened), STALL and LASTED count from the first sign in the log "
    "(of a hang from its last progress, of a silent node from its last word); a fault may be older"
)


def as_text(opened: Opened, report: ReplayReport) -> str:
    """The verdict, the rows, how far the record holds, the next command."""
    incidents = opened.book.incidents()
    lines = [hung(one_line(verdict(opened, incidents)), 0, width())]
    if incidents:
        lines += ["", _rows(incidents, width()), "", hung(_LEGEND, 0, width())]
    lines += ["", hung(trust_line(report), 2, width()), *next_lines(opened, _next(incidents))]
    return "\n".join(lines)


def as_json(opened: Opened, report: ReplayReport) -> str:
    """The same incidents, in the same order."""
    incidents = opened.book.incidents()
    return document(
        "unicron.audit.incidents/1",
        opened,
        {"items": [item(i) for i in incidents], "truncated": False},
        throughput=opened.book.throughput(),
        verified_to=report.last_seq,
        divergence=report.divergence,
    )


def item(incident: IncidentSummary) -> dict[str, Any]:
    """An incident's fields, and its times as people write them beside."""
    fields: dict[str, Any] = msgspec.to_builtins(incident)
    return {
        **fields,
        "began_at": rfc3339(incident.began_at_ns),
        "first_evidence_at": rfc3339(incident.first_evidence_at_ns),
    }


def trust_line(report: ReplayReport) -> str:
    """Does the record hold?"""
    if report.divergence is not None:
        mark = click.style("x the record does not hold", fg="red", bold=True)
        return f"{mark} at #{number(report.divergence.seq)}: {one_line(report.divergence.message)}"
    others = ""
    if report.other_versions:
        others = f", {number(report.other_versions)} of other versions could not be"
    return (
        f"the record is verified to #{number(report.last_seq)}: "
        f"{number(report.redecided)} decisions decided again{others}"
    )


def verdict(opened: Opened, incidents: SequenceOf[IncidentSummary]) -> str:
    """Up to where, how many, and what they cost in all."""
    still = sum(i.is_open for i in incidents)
    upto = f"cluster {opened.log.cluster} up to #{number(len(opened.log.events))}"
    head = f"{upto}: {count(len(incidents), 'incident')}, {still} open"
    if not incidents:
        return head
    lost = sum(i.lost_flop or 0 for i in incidents)
    time = sum(i.lost_device_ms or 0 for i in incidents)
    return f"{head}, cost {flop(lost)} ({device_time(time)}); times UTC"


def _rows(incidents: SequenceOf[IncidentSummary], columns: int | None) -> str:
    days = {utc(i.first_evidence_at_ns)[:10] for i in incidents}
    rows = [
        (*_row(i, short=columns is not None, days=len(days)), f"{i.what}; {outcome(i)}")
        for i in incidents
    ]
    header = _HEADER if columns is None or len(days) > 1 else _dated(next(iter(days)))
    return table((*header, "WHAT AND OUTCOME"), rows, columns, last_min=_WORDS_MIN)


def _dated(day: str) -> tuple[str, ...]:
    return tuple(day if name == "WHEN" else name for name in _HEADER)


def _row(incident: IncidentSummary, *, short: bool, days: int) -> tuple[str, ...]:
    when = utc(incident.first_evidence_at_ns)
    if short:  # 80 columns: the day stands in the header, or the clock ends with the minute
        when = when[11:19] if days == 1 else when[5:16]
    more = "+" if incident.cost_until == LOG_END and incident.lost_flop else ""
    return (
        incident.id,
        str(incident.severity),
        when,
        incident.task or "-",
        duration(incident.detect_ms),
        duration(incident.stall_ms),
        duration(incident.duration_ms),
        flop(incident.lost_flop) + more,
    )


def outcome(incident: IncidentSummary) -> str:
    """``+ trains on 2 devices`` or ``! still open``."""
    return "! still open" if incident.is_open else f"+ {incident.outcome}"


def _next(incidents: SequenceOf[IncidentSummary]) -> tuple[NextCommand, ...]:
    if not incidents:
        return (NextCommand(arguments=("replay", "--verify"), about="does the record hold?"),)
    worst = min(reversed(incidents), key=lambda i: (not i.is_open, i.severity))
    return (NextCommand(arguments=("audit", worst.id), about="its story"),)
