"""What goes to stdout: whole, plain when piped, coloured for a person, never a traceback."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TextIO

import click

_WIDTH_MIN: Final = 60
_LAST_MIN: Final = 20
#: What makes a terminal show text in another order, or break a line: it comes from no text of ours.
_REORDERING: Final = dict.fromkeys(
    (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0xFEFF), " "
)
#: Ends what click coloured.
_RESET: Final = "\x1b[0m"
#: An empty cell; below its row it would be a line of its own.
_NOTHING: Final = "-"
#: Indent of what stands below its row.
_BELOW: Final = 4


def coloured() -> bool:
    """Does stdout go to a person who wants colours?"""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal that `stream` (stdout) is; None if it is none: then nothing is
    wrapped."""
    if not (stream or sys.stdout).isatty():
        return None
    return max(shutil.get_terminal_size().columns, _WIDTH_MIN)


def emit(text: str) -> bool:
    """Print one answer. A reader that went away (`| head`) is no error, but False; what its
    encoding can't say is escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = text.translate(_REORDERING).encode(encoding, "backslashreplace").decode(encoding)
    try:
        click.echo(text, color=coloured())
    except BrokenPipeError:
        _flush_nowhere()
        return False
    except OSError as error:
        _flush_nowhere()
        sys.stderr.write(f"error: the answer can't be written: {error.strerror}\n")
        raise SystemExit(2) from None
    return True


def _flush_nowhere() -> None:
    """The interpreter flushes stdout once more at its end: let that go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table in a colour of its own."""

    text: str
    colour: str


def table(
    header: SequenceOf[str],
    rows: Iterable[SequenceOf[str | Cell]],
    columns: int | None,
    *,
    last_min: int = _LAST_MIN,
) -> str:
    """Columns two blanks apart; those whose header ends in a blank are numbers and stand right.
    The last column wraps at `columns`, and goes below its row if less than `last_min` is left for
    it; with None no line is ever broken. What the log put into a cell stays on its line and can't
    command the terminal."""
    cells = [[Cell(name.strip(), "") for name in header]]
    cells += [[_clean(cell) for cell in row] for row in rows]
    widths = [max(len(row[i].text) for row in cells) for i in range(len(header) - 1)]
    indent = sum(widths) + 2 * len(widths)
    below = columns is not None and columns - indent < last_min
    lines = []
    for number, row in enumerate(cells):
        fields = [
            _styled(cell, size, right=header[i].endswith(" "))
            for i, (cell, size) in enumerate(zip(row, widths, strict=False))
        ]
        text = row[-1].text
        if below and columns is not None:
            lines.append("  ".join(fields).rstrip())
            if number and text not in ("", _NOTHING):
                lines += [" " * _BELOW + rest for rest in _wrapped(text, columns - _BELOW)]
            continue
        last = _wrapped(text, columns - indent) if columns is not None else [text]
        lines.append("  ".join([*fields, *last[:1]]).rstrip())
        lines += [" " * indent + rest for rest in last[1:]]
    return "\n".join(lines)


def _wrapped(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, room, break_on_hyphens=False)


def _clean(cell: str | Cell) -> Cell:
    from unicron.controlplane.replay.phrases import one_line

    text, colour = (cell.text, cell.colour) if isinstance(cell, Cell) else (cell, "")
    return Cell(one_line(text), colour)


def _styled(cell: Cell, size: int, *, right: bool) -> str:
    blanks = " " * (size - len(cell.text))
    text = click.style(cell.text, fg=cell.colour) if cell.colour else cell.text
    return blanks + text if right else text + blanks


def json_text(document: object) -> str:
    """One JSON document. What is no printable character is escaped: texts of the log stand in it,
    and it may go to a terminal."""
    import msgspec

    return escaped(msgspec.json.format(msgspec.json.encode(document)).decode())


def escaped(text: str) -> str:
    """JSON in which each character that isn't printable is escaped; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    pair = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pair[i]:02x}{pair[i + 1]:02x}" for i in range(0, len(pair), 2))


def hung(text: str, indent: int, columns: int | None) -> str:
    """`text` broken at `columns`, its further lines indented; whole with None. A mark it begins
    with may be coloured: colours take no room."""
    if columns is None:
        return text
    coloured_mark, reset, rest = text.rpartition(_RESET)
    mark = click.unstyle(coloured_mark)
    lines = textwrap.fill(
        mark + rest, columns, subsequent_indent=" " * indent, break_on_hyphens=False
    )
    return f"{coloured_mark}{reset}{lines[len(mark) :]}"


def duration(ms: int | None) -> str:
    """``412 ms``, ``6.20 s``, ``4 min 07``, ``1 h 04``; ``-`` for none."""
    from unicron.controlplane.replay import units

    return units.duration(ms)


def utc(at_ns: int) -> str:
    """``2026-11-30 03:12:07.412``."""
    at = datetime.fromtimestamp(at_ns // 1_000_000_000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at_ns // 1_000_000 % 1000:03}"


def rfc3339(at_ns: int) -> str:
    """``2026-11-30T03:12:07.412Z``, for JSON."""
    return f"{utc(at_ns).replace(' ', 'T')}Z"


def number(count: int) -> str:
    """``48,211``."""
    return f"{count:,}"
