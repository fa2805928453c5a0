"""Whole pages: one file each that asks for nothing else, runs nothing but its own script, and can
be read without it."""

import base64
import hashlib
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from unicron.controlplane.replay.page.cells import badge
from unicron.controlplane.replay.page.overview import overview
from unicron.controlplane.replay.page.packing import Packer
from unicron.controlplane.replay.page.telling import telling
from unicron.controlplane.replay.page.tree import Element, el, html
from unicron.controlplane.replay.story import IncidentStory, ThroughputCurve
from unicron.controlplane.replay.summary import IncidentSummary

#: A page of all incidents holds their stories up to so many bytes, the newest ones.
STORIES_MAX: Final = 4_500_000


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around it. `log`: as messages name it; `upto`: its last entry that was read;
    `record`: does the record hold, a sentence; `command_end`: what commands need to read the same
    log."""

    cluster: str
    log: str
    upto: int
    holds: bool
    record: str
    command_end: str


def incident_page(frame: Frame, story: IncidentStory) -> str:
    """The page of one incident."""
    return _document(
        f"{story.incident.id} · {frame.cluster}", frame, [telling(story, frame.command_end)]
    )


def overview_page(
    frame: Frame,
    verdict: str,
    incidents: SequenceOf[IncidentSummary],
    stories: Iterable[IncidentStory],
    throughput: SequenceOf[ThroughputCurve],
) -> str:
    """All incidents; each story is drawn when it is asked for. `stories`: of the incidents, newest
    first; the oldest are left out where there is no room for all."""
    told, packed = _that_fit(stories, frame.command_end)
    shown = range(len(incidents) - told, len(incidents))
    content = [
        overview(verdict, incidents, throughput, shown, frame.command_end),
        el("div", id="story"),
    ]
    # JSON with no `<` in it, so that it may stand in a script element.
    island = msgspec.json.encode({"last": len(incidents) - 1, "told": told, "packed": packed})
    return _document(
        f"Incidents · {frame.cluster}", frame, content, island.decode().replace("<", "\\u003c")
    )


def _that_fit(stories: Iterable[IncidentStory], command_end: str) -> tuple[int, str]:
    """How many stories there is room for, and these, packed."""
    packer, count = Packer(), 0
    for story in stories:
        packer.add(telling(story, command_end))
        count += 1
    while True:
        packed = packer.packed(count)
        if len(packed) <= STORIES_MAX or not count:
            return count, packed
        count = min(count - 1, int(0.95 * count * STORIES_MAX / len(packed)))


def _document(title: str, frame: Frame, content: SequenceOf[Element], stories: str = "") -> str:
    script, style = _asset("page.js"), _asset("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    top = el(
        "div",
        el("span", f"Unicron · cluster {frame.cluster} · {frame.log} up to #{frame.upto:,}"),
        badge(frame.record, "good" if frame.holds else "bad"),
        class_="top",
    )
    data = f'<script type="application/json" id="stories">{stories}</script>\n' if stories else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"{html(el('title', title))}\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{html(top)}\n{html(el('main', *content))}\n"
        f"{data}<script>{script}</script>\n</body>\n</html>\n"
    )


@cache
def _asset(name: str) -> str:
    """A file of this package: the page's style or its script."""
    return files("unicron.controlplane.replay.page").joinpath(name).read_text(encoding="utf-8")
