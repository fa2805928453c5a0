"""Task files are read strictly: what isn't understood is refused by name, with the fix."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.core.story import SPEC
from unicron.controlplane.local.spec import MODEL
from unicron.controlplane.runtime.taskfile import read_tasks
from unicron.events import ConfigError

TOML = """
task = "gpt"
iterations = 10
micro_batches = 12
[model]
num_layers = 2
hidden_size = 64
num_attention_heads = 4
seq_length = 32
vocab_size = 256
micro_batch_size = 1
[optimizer]
lr_ppb = 1000000
min_lr_ppb = 10000
"""


def _write(tmp_path, text, name="t.toml"):
    path = tmp_path / name
    path.write_text(text)
    return [str(path)]


def test_toml_and_json_say_the_same(tmp_path):
    (spec,) = read_tasks(_write(tmp_path, TOML))
    as_json = json.dumps(msgspec.to_builtins(spec))
    assert read_tasks(_write(tmp_path, as_json, "t.json")) == (spec,)
    assert spec.model.hidden_size == 64


def test_the_example_is_the_demos_larger_model():
    (spec,) = read_tasks([str(Path(__file__).parents[2] / "examples/task.toml")])
    assert (spec.task, spec.model, spec.max_devices) == ("gpt", MODEL, 4)


def test_what_a_task_may_ask_for_besides_sizes(tmp_path):
    asked = """priority = 5
tenant = "lab"
device_kinds = ["h100", "h200"]
min_gflops = 40_000
avoid = ["n7"]
[model]"""
    (spec,) = read_tasks(_write(tmp_path, TOML.replace("[model]", asked)))
    assert (spec.priority, spec.tenant, spec.min_gflops) == (5, "lab", 40_000)
    assert (spec.device_kinds, spec.avoid) == (("h100", "h200"), ("n7",))


def test_what_we_write_ourselves_is_read_back(tmp_path):
    text = msgspec.json.encode(SPEC).decode()
    assert read_tasks(_write(tmp_path, text, "t.json")) == (SPEC,)


@pytest.mark.parametrize(
    "change,code,says",
    [
        (("iterations", "iteration"), "E-TASK-FILE", "iterations"),
        (("seq_length = 32", "seq_length = 32\ndropout = 1"), "E-UNKNOWN-KEY", "model.dropout"),
        (("[model]", "wieght_milli = 5\n[model]"), "E-UNKNOWN-KEY", "weight_milli"),
        (("iterations = 10", "iterations = 0"), "E-TASK-FILE", "iterations"),
        (("iterations = 10", "iterations = 1.5"), "E-TASK-FILE", "iterations"),
        (("hidden_size = 64", "hidden_size = 66"), "E-TASK-FILE", "num_attention_heads"),
        (('task = "gpt"', 'task = "a.b"'), "E-TASK-FILE", "letters"),
        (("vocab_size = 256", "vocab_size = 128"), "E-TASK-FILE", "256"),
        (("[model]", "min_devices = 9\n[model]"), "E-TASK-FILE", "max_devices"),
        (("iterations = 10", "iterations = "), "E-TASK-FILE", "not TOML"),
        (("[model]", "priorty = 5\n[model]"), "E-UNKNOWN-KEY", "did you mean priority?"),
        (("[model]", "device_kind = 'h100'\n[model]"), "E-UNKNOWN-KEY", "mean device_kinds?"),
        (("[model]", "min_gflops = -5\n[model]"), "E-TASK-FILE", "min_gflops is -5"),
        (("[model]", "avoid = ['n1', 'n1']\n[model]"), "E-TASK-FILE", "name each once"),
    ],
)
def test_a_slip_is_named(tmp_path, change, code, says):
    with pytest.raises(ConfigError) as caught:
        read_tasks(_write(tmp_path, TOML.replace(*change)))
    assert caught.value.code == code
    assert says in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="can't read"):
        read_tasks([str(tmp_path / "none.toml")])
