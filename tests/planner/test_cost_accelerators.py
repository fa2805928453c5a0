"""The table of devices: what ships, what a user's file may change, what it may not."""

from __future__ import annotations

import pytest

from tests.planner.cases import change
from unicron.planner import BadProblem
from unicron.planner.cost import accelerator, accelerator_table
from unicron.planner.cost.accelerators import FIGURES
from unicron.planner.cost.constants import check, documented, shipped_constants

OWN = """
[own]
aliases = ["mine"]
peak_gflops = 100
achievable_gflops = 80
memory_bytes = 1_000
hbm_bytes_per_s = 10
intra_bytes_per_s = 9
inter_bytes_per_s = 8
node_devices = 4

[own.sources]
peak_gflops = "a"
achievable_gflops = "b"
memory_bytes = "c"
hbm_bytes_per_s = "d"
intra_bytes_per_s = "e"
inter_bytes_per_s = "f"
node_devices = "g"
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "devices.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_all_kinds_are_there_and_name_their_sources():
    table = accelerator_table()
    for kind in ("a100", "a100-40gb", "a100-80gb", "a800", "h100", "h800", "h200", "b200"):
        assert set(table[kind].sources) == set(FIGURES)
        assert all(table[kind].sources.values())
    assert table["a100"] is table["a100-80gb"]


def test_reduced_kinds_differ_in_their_links():
    a100, a800, h100, h800 = map(accelerator, ("a100", "a800", "h100", "h800"))
    assert a800.intra_bytes_per_s * 3 == a100.intra_bytes_per_s * 2
    assert h800.intra_bytes_per_s * 9 == h100.intra_bytes_per_s * 4
    for own, other in ((a800, a100), (h800, h100)):
        for figure in set(FIGURES) - {"intra_bytes_per_s"}:
            assert getattr(own, figure) == getattr(other, figure)


def test_a_file_adds_a_kind(file):
    table = accelerator_table(file(OWN))
    assert table["mine"] is table["own"] and table["own"].node_devices == 4
    assert "own" not in accelerator_table()
    assert table["h100"] == accelerator("h100")


def test_a_device_may_reach_its_peak(file):
    assert accelerator_table(file(OWN.replace("= 80\n", "= 100\n")))["own"].peak_gflops == 100


def test_a_file_extends_and_replaces_kinds(file):
    path = file(
        '[h100]\nextends = "h100"\ninter_bytes_per_s = 100_000_000_000\n'
        '[h100.sources]\ninter_bytes_per_s = "two cards a device"\n'
        '[half]\nextends = "h100"\nnode_devices = 4\nsources.node_devices = "measured"\n'
    )
    table = accelerator_table(path)
    assert table["h100"].inter_bytes_per_s == 100_000_000_000
    assert table["h100"].sources["inter_bytes_per_s"] == "two cards a device"
    assert table["h100"].memory_bytes == accelerator("h100").memory_bytes
    assert table["half"].node_devices == 4
    assert table["half"].inter_bytes_per_s == 100_000_000_000


@pytest.mark.parametrize(
    "text, field, fix",
    [
        (OWN.replace("= 100\n", "= 0\n"), "own.peak_gflops", "positive"),
        (OWN.replace("= 100\n", "= nan\n"), "own.peak_gflops", "fields"),
        (OWN.replace("= 100\n", "= 1e3\n"), "own.peak_gflops", "fields"),
        (OWN.replace("= 100\n", '= "100"\n'), "own.peak_gflops", "fields"),
        (OWN.replace("peak_gflops = 100", "peak_gflop = 100"), "own.peak_gflop", "peak_gflops"),
        (OWN.replace("node_devices = 4", ""), "own", "fields"),
        (OWN.replace("= 80\n", "= 101\n"), "own.achievable_gflops", "dense"),
        (OWN.replace('hbm_bytes_per_s = "d"', ""), "own.sources", "from"),
        (OWN.replace('"d"', '" "'), "own.sources", "from"),
        (OWN + 'colour = "red"\n', "own.sources.colour", "remove"),
        (OWN.replace('"mine"', '"h100"'), "own.aliases", "rename"),
        ("own = 3\n", "own", "table"),
        ('[x]\nextends = "h101"\n', "x.extends", "h100"),
        ('[x]\nextends = "h100"\nnode_devices = 4\n', "x.sources", "from"),
        ('[x]\nextends = "h100"\nsources = 3\n', "x.sources", "table"),
        ("[own\n", "devices.toml", "correct"),
    ],
)
def test_mistakes_are_named_by_their_place(file, text, field, fix):
    with pytest.raises(BadProblem, match=fix) as caught:
        accelerator_table(file(text))
    assert caught.value.field.endswith(field)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path):
    with pytest.raises(BadProblem, match="can't be read"):
        accelerator_table(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadProblem, match="is not TOML"):
        accelerator_table(tmp_path / "bytes.toml")


def test_an_unknown_kind_is_answered_with_those_there_are():
    with pytest.raises(BadProblem, match="a100-40gb, a100-80gb, a800, b200, h100, h200, h800"):
        accelerator("v100")


def test_every_constant_says_what_it_is_and_where_it_is_from():
    assert set(documented()) == set(shipped_constants().__struct_fields__)
    for constant in documented().values():
        assert constant.meaning and constant.source


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_constants_that_make_no_sense_are_refused(value):
    with pytest.raises(BadProblem, match="gemm_half"):
        check(change(shipped_constants(), gemm_half=value))
