"""Pieces that every part of a page is put together from."""

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from datetime import UTC, datetime

from unicron.controlplane.replay.page.tree import Element, each, el
from unicron.controlplane.replay.units import duration

Cell = Element | str

#: So many sequences are shown of those that led to something.
_CAUSES_MAX = 6


class Marks:
    """Sequences as links to those events that are on the page. `shown`: these."""

    def __init__(self, shown: Iterable[int]) -> None:
        self._shown = frozenset(shown)

    def of(self, seq: int | None) -> Cell:
        """``#48,211``; ``-`` for none."""
        if seq is None:
            return "-"
        text = f"#{seq:,}"
        return el("a", text, href=anchor(seq)) if seq in self._shown else text

    def all(self, sequences: SequenceOf[int]) -> Element:
        """``#3 #7``; many are cut short and counted."""
        cells: list[Cell] = []
        for seq in sequences[:_CAUSES_MAX]:
            cells += [self.of(seq), " "]
        more = len(sequences) - _CAUSES_MAX
        if more > 0:
            cells.append(f"and {more} more")
        return el("span", *(cells or ["-"]), class_="q")


def anchor(seq: int) -> str:
    """Where the event is on its page."""
    return f"#e{seq}"


def section(question: str, *content: Cell | None, note: str | None = None) -> Element:
    """A part of the page under the question that it answers."""
    said = el("p", note, class_="note") if note else None
    return el("section", el("h2", question), said, *content, part=True)


def folded(summary: Cell, *content: Cell | None, is_open: bool = False) -> Element:
    """What is shown on demand."""
    return el("details", el("summary", summary), *content, open="" if is_open else None)


def table(header: SequenceOf[str], rows: Iterable[SequenceOf[Cell]]) -> Element | None:
    """Columns whose header ends in a blank are numbers and stand right. None without rows."""
    cells = [row for row in rows if row]
    if not cells:
        return None
    right = [name.endswith(" ") for name in header]
    names = (
        el("th", name.strip(), scope="col", class_="n" if number else None)
        for name, number in zip(header, right, strict=True)
    )
    body = (
        el("tr", *(_cell(c, name, r) for c, name, r in zip(row, header, right, strict=True)),
           part=True)
        for row in cells
    )  # fmt: skip
    return el(
        "div",
        el("table", el("thead", each("tr", names)), each("tbody", body)),
        class_="wide",
        tabindex="0",
        part=True,
    )


def _cell(cell: Cell, name: str, right: bool) -> Element:
    kind = "n" if right else "w" if "WHAT" in name else None
    return el("td", cell, class_=kind, data_name=name.strip() or None)


def t_plus(ms: int) -> str:
    """``T+325 ms``."""
    return f"T+{duration(ms)}" if ms >= 0 else f"T{duration(ms)}"


def badge(word: str, kind: str) -> Element:
    """A word in a box, coloured by its kind: ``bad``, ``warn``, ``good`` or ``plain``."""
    return el("span", word, class_=f"badge {kind}")


def severity(level: int) -> Element:
    """``SEV1``."""
    return badge(f"SEV{level}", "bad" if level == 1 else "warn" if level == 2 else "plain")


def utc(at_ns: int) -> str:
    """``2026-11-30 03:12:07.412``."""
    at = datetime.fromtimestamp(at_ns // 1_000_000_000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at_ns // 1_000_000 % 1000:03}"
