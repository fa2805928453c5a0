"""The model against published step times, one paper held out of the fit; the rows themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planner.cases import change
from unicron.planner import BadProblem
from unicron.planner.cost import flops_per_sample, parameter_count
from unicron.planner.cost.constants import shipped_constants
from unicron.planner.cost.fit import BOUNDS, fitted, fitted_names, held_out
from unicron.planner.cost.published import check_row, error, papers, predicted, rows

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cost.py"


@pytest.mark.parametrize("paper", ["korthikanti", "narayanan"])
def test_the_mean_error_on_a_held_out_paper_is_at_most_a_tenth(paper):
    outside = held_out(paper)
    assert len(outside.errors) == len([row for row in rows() if row.paper == paper])
    assert outside.mean <= 0.10
    assert outside.largest <= 0.15
    inside = [row for row in rows() if row.paper != paper]
    assert sum(abs(error(row, outside.constants)) for row in inside) / len(inside) <= 0.05


def test_the_shipped_constants_are_what_the_fit_gives():
    found = fitted(rows())
    for name in BOUNDS:
        assert getattr(shipped_constants(), name) == pytest.approx(getattr(found, name), rel=1e-3)
    assert found == fitted(rows())


def test_the_constants_that_are_called_fitted_are_those_that_are():
    assert set(fitted_names()) == set(BOUNDS)
    unfitted = set(shipped_constants().__struct_fields__) - set(BOUNDS)
    found = fitted(rows())
    assert all(getattr(found, name) == getattr(shipped_constants(), name) for name in unfitted)


def test_the_shipped_constants_are_within_a_tenth_of_every_row():
    errors = [error(row, shipped_constants()) for row in rows()]
    assert max(map(abs, errors)) <= 0.10
    assert sum(map(abs, errors)) / len(errors) <= 0.04


def test_all_rows_are_there_and_say_who_confirms_them():
    counts = {
        (name, table): len([r for r in rows() if (r.paper, r.table) == (name, table)])
        for name in papers()
        for table in (1, 2, 5)
    }
    assert counts["narayanan", 1] == 10
    assert counts["narayanan", 2] == 6
    assert counts["korthikanti", 5] == 8
    assert all(row.confirmed for row in rows())


@pytest.mark.parametrize("row", [r for r in rows() if r.aggregate_pflops], ids=lambda r: r.name)
def test_table_1_agrees_with_its_own_last_column(row):
    """Devices times what one achieves, each printed rounded."""
    low = row.devices * (row.teraflops - 0.5) / 1000
    high = row.devices * (row.teraflops + 0.5) / 1000
    assert low - 0.05 <= row.aggregate_pflops <= high + 0.05


@pytest.mark.parametrize("row", [r for r in rows() if r.days], ids=lambda r: f"{r.devices}")
def test_table_2_agrees_with_its_own_training_times(row):
    """Days for 300 billion tokens follow from the step time, within the rounding of both."""
    steps = 300e9 / (row.global_batch * 2048)
    days = steps * row.measured / 86400
    assert days == pytest.approx(row.days, rel=0.5 / row.days + 0.02)


@pytest.mark.parametrize(
    "name, utilization", [("22B", 0.415), ("175B", 0.514), ("530B", 0.560), ("1T", 0.563)]
)
def test_table_5_agrees_with_the_utilization_in_megatrons_readme(name, utilization):
    (row,) = (r for r in rows() if r.name == name and r.recompute == "selective")
    work = row.global_batch * flops_per_sample(row.model)
    found = work / row.seconds / row.devices / 312e12
    assert found == pytest.approx(utilization, abs=0.003)


def test_recomputation_costs_what_table_5_says():
    """Its way is 29 % to 32 % faster than recomputing everything; the model says about as much."""
    for name in ("22B", "175B", "530B", "1T"):
        full, ours = (r for r in rows() if r.paper == "korthikanti" and r.name == name)
        modelled = predicted(full, shipped_constants()) / predicted(ours, shipped_constants())
        assert modelled == pytest.approx(full.seconds / ours.seconds, rel=0.08)


def test_parameters_of_the_second_paper_are_as_its_names_say():
    for name, billions in (("22B", 22), ("175B", 174.6), ("530B", 529.6), ("1T", 1008)):
        row = next(r for r in rows() if r.paper == "korthikanti" and r.name == name)
        assert parameter_count(row.model) / 1e9 == pytest.approx(billions, rel=0.005)


def test_a_fit_wants_rows():
    with pytest.raises(BadProblem, match="at least 4"):
        fitted(rows()[:3])
    with pytest.raises(BadProblem, match="name a paper"):
        held_out("shoeybi")


def run(*arguments):
    return subprocess.run(
        [sys.executable, str(BENCHMARK), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_the_benchmark_prints_rows_and_the_held_out_error():
    data = json.loads(run("--json"))
    assert {each["paper"] for each in data["held_out"]} == {"korthikanti", "narayanan"}
    assert all(each["mean_error"] <= 0.10 for each in data["held_out"])
    assert len(data["rows"]) == len(rows())
    assert all(each["confirmed"] for each in data["rows"])
    assert {each["model"] for each in data["tables"]} >= {"GPT-3 175B"}
    text = run("--rows")
    assert "held out" in text and "529.6B" in text and "unconfirmed" not in text


def test_the_benchmark_marks_rows_nobody_confirmed():
    code = (
        "import runpy, sys; from unicron.planner.cost import published\n"
        "import msgspec\n"
        "first, *others = published.rows()\n"
        "doubtful = (msgspec.structs.replace(first, confirmed=''), *others)\n"
        "published.rows = lambda: doubtful\n"
        "sys.argv = ['cost.py', '--rows']\n"
        f"runpy.run_path({str(BENCHMARK)!r}, run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.count("unconfirmed") == 2
    assert "source: 1 of the rows" in done.stdout


def test_the_benchmark_prints_what_a_new_fit_gives():
    lines = run("--fit").splitlines()
    assert [line.split(" = ")[0] for line in lines] == list(BOUNDS)
    for line in lines:
        name, _, value = line.partition(" = ")
        assert float(value) == pytest.approx(getattr(shipped_constants(), name), rel=1e-3)


def test_a_row_needs_one_measurement_and_a_layout_that_fits():
    row = rows()[0]
    for wrong in (
        change(row, seconds=1.0),
        change(row, teraflops=0.0),
        change(row, tp=5),
        change(row, paper="nobody"),
    ):
        with pytest.raises(BadProblem):
            check_row(wrong, 0)
