"""docs/cost-model.md: its examples run, and its figures are those that come out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.planner.cases import change
from tests.planner.costcases import GPT3
from unicron.planner.cost import Choices, Training, accelerator, best_layout, layout_table
from unicron.planner.cost.accelerators import accelerator_table
from unicron.planner.cost.constants import shipped_constants
from unicron.planner.cost.fit import held_out
from unicron.planner.cost.published import error, rows

PAGE = (Path(__file__).parents[2] / "docs" / "cost-model.md").read_text(encoding="utf-8")


def test_the_examples_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 2
    assert "kind='h100'" in capsys.readouterr().out


def test_the_file_of_devices_is_read(tmp_path):
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "devices.toml"
    path.write_text(block)
    assert accelerator_table(path)["h100"].inter_bytes_per_s == 100_000_000_000


@pytest.mark.parametrize("paper", ["korthikanti", "narayanan"])
def test_the_held_out_errors_are_as_printed(paper):
    found = held_out(paper)
    row = rf"\| {paper.capitalize()}, \d+ rows \| (\S+) % \| (\S+) % \|"
    ((mean, largest),) = re.findall(row, PAGE)
    assert 100 * found.mean == pytest.approx(float(mean), abs=0.06)
    assert 100 * found.largest == pytest.approx(float(largest), abs=0.06)


def test_the_shipped_error_is_as_printed():
    ((mean, largest),) = re.findall(r"\(shipped\) \| none \| (\S+) % .*\| (\S+) % \|", PAGE)
    errors = [abs(error(row, shipped_constants())) for row in rows()]
    assert 100 * sum(errors) / len(errors) == pytest.approx(float(mean), abs=0.06)
    assert 100 * max(errors) == pytest.approx(float(largest), abs=0.06)


def test_the_shares_of_an_h100s_peak_are_as_printed():
    printed = re.findall(r"best layouts here come to (\d+) % and (\d+) %", PAGE)[0]
    model = change(GPT3, vocabulary=131_072)
    training = Training(global_batch=1152, exact=False, overlap=True)
    h100 = accelerator("h100")
    for devices, percent in zip((96, 4608), printed, strict=True):
        found = best_layout(model, training, h100, devices, Choices(micro_batches=(1, 2)))
        share = found.throughput_gflops / devices / h100.peak_gflops
        assert 100 * share == pytest.approx(float(percent), abs=0.6)


def test_the_price_of_the_exact_sum_is_as_printed():
    ((stock, exact),) = re.findall(r"from (\d+)\s+A100 on .*?needs (\d+) with", PAGE, re.DOTALL)
    for text, kept in ((stock, False), (exact, True)):
        training = Training(global_batch=1024, exact=kept)
        table = layout_table(GPT3, training, accelerator("a100"), int(text))
        assert [each.devices for each in table] == [int(text)]
