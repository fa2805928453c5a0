import click
import pytest

from unicron.controlplane.cli import output
from unicron.controlplane.cli.output import Cell, duration, number, rfc3339, table, utc


@pytest.mark.parametrize(
    "ms,text",
    [
        (None, "-"),
        (0, "0 ms"),
        (412, "412 ms"),
        (-3, "-3 ms"),
        (1234, "1.23 s"),
        (6200, "6.20 s"),
        (21_040, "21.0 s"),
        (247_000, "4 min 07"),
        (3_840_000, "1 h 04"),
    ],
)
def test_durations(ms, text):
    assert duration(ms) == text


def test_times_and_numbers():
    at_ns = 1_790_000_000_052_999_999
    assert utc(at_ns) == "2026-09-21 14:13:20.052"
    assert rfc3339(at_ns) == "2026-09-21T14:13:20.052Z"
    assert number(48211) == "48,211"


def test_a_table_is_never_cut_or_wrapped_without_a_terminal():
    long = "word " * 60 + "end"
    assert table(("SEQ ", "WHAT"), [("#7", long), ("#1234", "x")], None) == (
        f"  SEQ  WHAT\n   #7  {long}\n#1234  x"
    )


def test_the_last_column_wraps_at_the_terminal():
    text = table(("ID", "WHAT"), [("inc-1", "one two three four five six seven")], 30)
    assert text == "ID     WHAT\ninc-1  one two three four five\n       six seven"


def test_what_has_too_little_room_beside_its_row_stands_below_it():
    rows = [("x" * 50, "one two three"), ("y", ""), ("z", "-")]
    narrow = table(("ID", "WHAT"), rows, 60)
    assert narrow == f"ID\n{'x' * 50}\n    one two three\ny\nz"
    assert table(("ID", "WHAT"), rows, 65, last_min=10).splitlines()[1].endswith("x  one two three")


def test_a_coloured_cell_takes_the_room_of_its_text():
    plain = table(("KIND", "WHAT"), [("done", "x"), ("observed", "y")], None)
    coloured = table(("KIND", "WHAT"), [("done", "x"), (Cell("observed", "red"), "y")], None)
    assert coloured == plain.replace("observed", "\x1b[31mobserved\x1b[0m")


class Terminal:
    def __init__(self, tty):
        self.tty = tty

    def isatty(self):
        return self.tty


@pytest.mark.parametrize(
    "tty,environment,coloured",
    [
        (True, {"TERM": "xterm"}, True),
        (False, {"TERM": "xterm"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_who_gets_colours(monkeypatch, tty, environment, coloured):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Terminal(tty))
    assert output.coloured() is coloured


def test_no_terminal_has_no_width(monkeypatch):
    monkeypatch.setattr("sys.stdout", Terminal(False))
    assert output.width() is None


def test_no_text_of_the_log_turns_the_order_of_a_line_round(capsys):
    output.emit("node \u202egpj.exe\u2028 is lost")
    assert capsys.readouterr().out == "node  gpj.exe  is lost\n"


def test_a_coloured_mark_takes_the_room_of_its_text():
    mark = click.style("+ holds ", fg="green", bold=True)
    text = "for cluster c up to #41: all as the log has them"
    coloured = output.hung(mark + text, 2, 40)
    assert coloured.startswith(mark)
    assert click.unstyle(coloured) == output.hung("+ holds " + text, 2, 40)
    assert len(coloured.splitlines()[0]) > 40
