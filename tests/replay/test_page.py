"""Pages say what the views say, run nothing but their own script and ask nobody for anything."""

import base64
import hashlib
import json
import re

import msgspec
import pytest

from tests.replay.pages import FRAME, drawn, every, island, parsed, skeleton, text
from tests.replay.pages import plain as unpacked
from tests.replay.simulated import SEEDS, night_of
from unicron.controlplane.replay.page import document, incident_page, overview_page, postmortem
from unicron.controlplane.replay.page.axis import Axis
from unicron.controlplane.replay.page.entries import written
from unicron.controlplane.replay.page.postmortem import plain, postmortem_of
from unicron.controlplane.replay.page.telling import telling
from unicron.controlplane.replay.page.tree import el, html
from unicron.controlplane.replay.phrases import names
from unicron.controlplane.replay.story import IncidentStory
from unicron.controlplane.replay.units import device_time, duration, flop, gflops

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "\"><svg onload=alert(1)><a href='javascript:alert(1)'>",
    "</title></style></details><!-- ]]> <iframe src=http://127.0.0.1:9/>",
    "{{7*7}} ${alert(1)} &lt;b&gt; \\u003cb\\u003e",
    "\u202egpj.exe \x00\x1b[31m \u2028 \U0001f600 \N{LATIN SMALL LETTER E WITH ACUTE}",
)
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "main", "script", "noscript", "article"),
    *(
        "header",
        "section",
        "div",
        "span",
        "p",
        "h1",
        "h2",
        "h3",
        "h4",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
    ),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "a", "b", "i", "strong"),
    *("small", "code", "svg", "rect", "circle", "text"),
}


def stories_of(book):
    return [book.story(incident) for incident in book.ids]


def some_of(book):
    return stories_of(book)[:: max(1, len(book.ids) // 6)]


def overview_of(book):
    newest_first = reversed(stories_of(book))
    return overview_page(FRAME, "a verdict", book.incidents(), newest_first, book.throughput())


def poisoned(view, words):
    """The view with the words in each of its texts that a log can fill."""
    view = msgspec.to_builtins(view)

    def changed(value, key=""):
        if isinstance(value, dict):
            return {k: changed(v, k) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [changed(v, key) for v in value]
        free = {"what", "outcome", "reason", "headline", "explanation", "message", "version"}
        free |= {"disagreements", "instance", "id", "state", "phase"}
        return f"{value} {words}" if isinstance(value, str) and key in free else value

    return changed(view)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_page_tells_every_sentence_and_number_of_the_story(seed):
    for story in some_of(night_of(seed)):
        page = parsed(incident_page(FRAME, story))
        said = text(page)
        i = story.incident
        (heading,) = every(page, "h1")
        assert i.id in text(heading)
        assert f"SEV{i.severity}" in text(heading)
        numbers = [text(n) for n in every(page, "strong")]
        assert numbers == [
            duration(i.detect_ms),
            duration(i.stall_ms),
            flop(i.lost_flop),
            duration(i.duration_ms),
        ]
        assert device_time(i.lost_device_ms) in said
        expected = [*story.headline, *story.disagreements]
        expected += [line for plan in story.plans for line in (plan.reason, *plan.explanation)]
        expected += [line for e in story.evidence for line in (e.what, e.who, e.weight)]
        expected += [o.what for o in story.orders]
        expected += [a.what for o in story.orders for a in o.answers]
        expected += [line for n in story.now for line in (n.name, n.state, n.what)]
        expected += [story.trust.state_digest, story.trust.chain]
        expected += [leader.instance for leader in story.trust.leaders]
        expected += [" ".join(c.arguments) for c in story.commands]
        assert [line for line in expected if line not in said] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_of_a_page_hold_the_values_of_the_view(seed):
    for story in some_of(night_of(seed)):
        page = parsed(incident_page(FRAME, story))
        rows = [[text(c) for c in every(r, "td")] for r in every(page, "tr")]
        moments = [
            (p.task, word, m)
            for p in story.tasks
            for word, m in (
                *(("before", p.before), ("during", p.during), ("after", p.after)),
                ("whole again", p.whole),
            )
            if m is not None
        ]
        for task, word, m in moments:
            sizes = (m.devices, m.tensor_parallel, m.pipeline_parallel, m.data_parallel)
            cells = [task, word, f"#{m.seq:,}", duration(m.t_plus_ms), *map(str, sizes)]
            cells += [str(m.generation), f"{m.iteration:,}", f"{m.gflops:,}", m.phase or "-"]
            assert [*cells, names(m.workers) or "-"] in rows
        for plan in story.plans:
            for a in plan.alternatives:
                less = f"{gflops(abs(a.loss_milli))} {'less' if a.loss_milli >= 0 else 'more'}"
                worth = [gflops(a.value_milli), gflops(a.waf_milli)]
                assert [a.name, a.what, *worth, less] in rows
        for curve in story.throughput:
            for p in curve.points:
                generation = str(p.generation) if p.devices else "-"
                numbers = [f"#{p.seq:,}", f"{p.gflops:,}", str(p.devices), generation]
                assert [curve.task, duration(p.t_plus_ms), *numbers] in rows
        steps = [row for row in rows if len(row) == 7 and row[2] == ""]
        assert [(row[3], row[4]) for row in steps] == [
            (s.name, f"#{s.first_seq:,}") for s in story.steps.steps
        ]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_event_opens_with_its_fields(seed):
    for story in some_of(night_of(seed)):
        page = parsed(incident_page(FRAME, story))
        (events,) = every(page, "div", **{"class": "events"})
        entries = every(events, "details")
        assert [e[1]["id"] for e in entries] == [f"e{e.seq}" for e in story.events]
        for event, entry in zip(story.events, entries, strict=True):
            (line,) = every(entry, "summary")
            void = " void: it no longer applied" if event.void else " "
            cells = [duration(event.t_plus_ms), f"#{event.seq:,}", event.kind, event.who]
            assert [text(c) for c in line[2]] == [*cells, event.what + void]
            said = [text(n) for n in every(entry) if n[0] in ("dt", "dd")]
            pairs = list(zip(said[::2], said[1::2], strict=True))
            assert ("type", event.type) in pairs
            for name, value in json.loads(msgspec.json.encode(event.fields)).items():
                assert (name, written(value)) in pairs


@pytest.mark.parametrize("seed", SEEDS)
def test_all_incidents_on_one_page_and_each_storys_own_page_beneath(seed):
    book = night_of(seed)
    page = overview_of(book)
    rows = [[text(c) for c in every(r, "td")] for r in every(parsed(page), "tr")]
    for place, i in enumerate(book.incidents()):
        row = next(row for row in rows if row and row[0] == i.id)
        assert row[1] == f"SEV{i.severity}"
        assert row[3:9] == [
            *(", ".join(i.tasks) or "-", duration(i.detect_ms), duration(i.stall_ms)),
            duration(i.duration_ms),
            flop(i.lost_flop) + ("+" if i.cost_until == "log_end" and i.lost_flop else ""),
            device_time(i.lost_device_ms),
        ]
        assert row[9] == f"{i.what}; {'still open' if i.is_open else i.outcome}"
        assert every(parsed(page), "a", href=f"#i{place}")
    told = [telling(story, FRAME.command_end) for story in stories_of(book)]
    assert drawn(page) == [_bare(unpacked(element)) for element in told]


def _bare(element):
    """As one that was packed: nobody needs to know which of it is repeated."""
    children = tuple(c if isinstance(c, str) else _bare(c) for c in element.children)
    return msgspec.structs.replace(element, children=children, is_part=False)


def test_the_same_views_give_the_same_bytes():
    book = night_of(SEEDS[0])
    assert overview_of(book) == overview_of(book)


def test_the_oldest_stories_are_left_out_where_there_is_no_room(monkeypatch):
    book = night_of(SEEDS[0])
    room = len(island(overview_of(book))["packed"]) // 2
    monkeypatch.setattr(document, "STORIES_MAX", room)
    page = overview_of(book)
    stories = drawn(page)
    left = stories.count(None)
    assert 0 < left < len(stories)
    assert None not in stories[left:]
    assert len(island(page)["packed"]) <= room
    assert f"The stories of the {left} oldest are left out" in text(parsed(page))
    assert not every(parsed(page), "a", href="#i0")
    assert every(parsed(page), "a", href=f"#i{left}")


@pytest.mark.parametrize("seed", SEEDS)
def test_on_narrow_screens_time_goes_downwards_through_every_event(seed):
    alike = re.compile(r" … and (\d+) alike$")
    for story in some_of(night_of(seed)):
        page = parsed(incident_page(FRAME, story))
        (down,) = every(page, "div", **{"class": "down"})
        links = every(down, "a")
        rows = [text(p) for p in every(down, "p")]
        first = [int(a[1]["href"].removeprefix("#e")) for a in links]
        assert first == sorted(first)
        told = {e.seq: e for e in story.events}
        places = [e.seq for e in story.events]
        said = [row for row in rows if any(row.startswith(told[s].what) for s in first)]
        assert len(said) == len(first)
        counts = [int(found[1]) if (found := alike.search(row)) else 0 for row in said]
        assert sum(counts) + len(first) == len(story.events)
        for seq, row, more in zip(first, said, counts, strict=True):
            at = places.index(seq)
            group = [told[s].type for s in places[at : at + more + 1]]
            assert {*group} == {told[seq].type}
            assert row.startswith(told[seq].what)
        widths = [i[1]["style"] for i in every(down, "i")]
        assert bool(widths) == any(c.task == story.incident.task for c in story.throughput)
        assert {"width:0%", "width:100%"} <= {*widths} or not story.incident.stall_ms


def _markdown(page):
    (shown,) = every(page, "div", **{"class": "markdown"})
    return [text(line) for line in shown[2]]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_postmortem_says_what_the_story_says(seed):
    for story in some_of(night_of(seed)):
        lines = _markdown(parsed(incident_page(FRAME, story)))
        assert lines == ["".join(line) for line in postmortem_of(story)]
        said = "\n".join(lines)
        expected = [plain(sentence) for sentence in story.headline]
        expected += [plain(text) for text in story.disagreements]
        expected += [plain(e.what) for e in story.evidence if e.weight == "cause"]
        expected += [plain(p.reason) for p in story.plans if p.taken and not p.void]
        expected += [duration(story.incident.detect_ms), story.trust.chain]
        assert [line for line in expected if line not in said] == []
        assert said.startswith(f"# {story.incident.id}: ")
        assert "(to be written)" in said


def test_a_long_postmortem_counts_what_it_leaves_out(monkeypatch):
    monkeypatch.setattr(postmortem, "_TOLD_MAX", 3)
    book = night_of(SEEDS[0])
    story = max(stories_of(book), key=lambda story: len(story.events))
    lines = ["".join(line) for line in postmortem_of(story)]
    told = [e for e in story.events if e.kind != "done" and not e.void]
    assert f"- and {len(told) - 3} more, up to `#{told[-1].seq}`" in lines
    assert sum(line.startswith("- and ") or bool(re.match(r"- \d\d:", line)) for line in lines) == 4


@pytest.mark.parametrize("words", HOSTILE)
def test_in_a_postmortem_text_of_a_log_is_no_markdown(words):
    book = night_of(SEEDS[0])
    story = msgspec.convert(poisoned(book.story(book.ids[0]), words), IncidentStory)
    said = "\n".join("".join(line) for line in postmortem_of(story))
    assert plain(words) in said
    assert not re.search(r"(?<!\\)[<>\[\]*_~]", said)


# --- Hostile text --------------------------------------------------------------------------------


@pytest.mark.parametrize("words", HOSTILE)
def test_text_of_a_log_is_never_markup(words):
    """With hostile words in it the page has the same elements as with harmless ones."""
    book = night_of(SEEDS[0])
    planned = [story for story in stories_of(book) if story.plans]
    story = min(planned, key=lambda story: len(story.events))
    pages = [_pages(book, story, each) for each in (words, "harmless")]
    for hostile, harmless in zip(*pages, strict=True):
        assert skeleton(parsed(hostile)) == skeleton(parsed(harmless))
        assert hostile.count("<script") == harmless.count("<script")
    printed = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words)
    assert printed in text(parsed(pages[0][0]))
    assert printed in _text(drawn(pages[0][1])[0])


def _text(element):
    return "".join(c if isinstance(c, str) else _text(c) for c in element.children)


def _pages(book, story, words):
    story = msgspec.convert(poisoned(story, words), type(story))
    events = [
        msgspec.structs.replace(e, fields={**e.fields, "message": words, "more": [words]})
        for e in story.events
    ]
    story = msgspec.structs.replace(story, events=tuple(events))
    frame = msgspec.structs.replace(FRAME, cluster=words, log=words, record=words)
    one = incident_page(frame, story)
    summaries = [story.incident]
    return one, overview_page(frame, words, summaries, [story], book.throughput())


@pytest.mark.parametrize("make", ["one", "all"])
def test_a_page_runs_its_own_script_only_and_asks_for_nothing(make):
    book = night_of(SEEDS[0])
    page = incident_page(FRAME, book.story(book.ids[0])) if make == "one" else overview_of(book)
    root = parsed(page)
    scripts = [s for s in every(root, "script") if s[1].get("type") != "application/json"]
    (script,) = scripts
    digest = base64.b64encode(hashlib.sha256(text(script).encode()).digest()).decode()
    (policy,) = [m for m in every(root, "meta") if m[1].get("http-equiv")]
    assert policy[1]["content"] == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )
    nodes = every(root)
    assert {node[0] for node in nodes} <= ELEMENTS
    for tag, attributes, _ in nodes:
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
        assert attributes.get("href", "#").startswith("#"), tag
    (style,) = every(root, "style")
    assert not re.search(r"url\(|@import|image-set", text(style))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|write\(|eval|Function", text(script))
    assert not re.search(r"fetch|XMLHttp|WebSocket|EventSource|import|Beacon", text(script))


def test_an_element_takes_no_attribute_that_runs_or_leads_away():
    for bad in ({"onclick": "x"}, {"src": "x"}, {"href": "javascript:x"}, {"href": "//x"}):
        with pytest.raises(AssertionError):
            el("a", **bad)
    assert html(el("p", 'a<b>&"', id='"')) == '<p id="&quot;">a&lt;b&gt;&amp;"</p>'


# --- The axis ------------------------------------------------------------------------------------


def test_time_goes_from_left_to_right_and_long_silence_is_cut_short():
    second = 1_000_000_000
    axis = Axis([0, second, 2 * second, 3600 * second, 3601 * second])
    places = [axis.at(t * second) for t in (0, 1, 2, 3600, 3601)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 100.0)
    assert axis.cuts() == ((2 * second, 3600 * second),)
    assert places[1] - places[0] == pytest.approx(places[4] - places[3])
    assert places[3] - places[2] < 10
    ticks = axis.ticks(second)
    assert second in ticks
    assert all(t <= 2 * second or t >= 3600 * second for t in ticks)
    assert all(
        b - a >= 7 for a, b in zip(map(axis.at, ticks), map(axis.at, ticks[1:]), strict=False)
    )


def test_an_axis_of_one_moment():
    axis = Axis([5])
    assert axis.at(5) == 0.0
    assert axis.at(4) == 0.0
    assert axis.at(7) == 100.0
