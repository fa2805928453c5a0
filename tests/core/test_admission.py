"""What a task must be like to be planned for: each size has a range, and both its ends are in."""

import msgspec
import pytest

from tests.core.story import SPEC
from unicron import events as ev
from unicron.controlplane.core import admission

#: Field of the spec or of its model -> least and largest value.
RANGES = {
    "iterations": (1, 2**53),
    "seed": (0, 2**53),
    "micro_batches": (1, 65_536),
    "weight_milli": (1, 1_000_000),
    "max_devices": (1, 2**24),
    "min_devices": (0, 12),
    "min_gflops": (0, 2**53),
    "priority": (-1_000_000, 1_000_000),
    "model.num_layers": (1, 2**24),
    "model.hidden_size": (1, 2**24),
    "model.num_attention_heads": (1, 2**24),
    "model.seq_length": (1, 2**24),
    "model.vocab_size": (1, 2**24),
    "model.micro_batch_size": (1, 2**24),
}


def fault_of(spec, planning=ev.Planning()):  # noqa: B008 - it is frozen
    return admission.fault_of(spec, planning)


def spec(name, value):
    """A spec that is good but for this field."""
    good = msgspec.structs.replace(SPEC, max_devices=64, min_devices=0)
    if name.startswith("model."):
        changed = {name.removeprefix("model."): value}
        return msgspec.structs.replace(good, model=msgspec.structs.replace(good.model, **changed))
    return msgspec.structs.replace(good, **{name: value})


@pytest.mark.parametrize("name", RANGES)
def test_a_size_out_of_its_range_is_named_with_the_range(name):
    low, high = RANGES[name]
    for value in (low - 1, high + 1):
        assert fault_of(spec(name, value)) == (
            f"{name} is {value}: it must be from {low} to {high}"
        )


@pytest.mark.parametrize("name", RANGES)
def test_the_ends_of_the_range_are_in_it(name):
    """Whatever else may be wrong with so large a model."""
    for value in RANGES[name]:
        assert "it must be from" not in fault_of(spec(name, value))


def test_a_task_cant_need_more_devices_than_it_may_have_or_has_micro_batches():
    few = msgspec.structs.replace(SPEC, max_devices=3, min_devices=4)
    assert fault_of(few) == "min_devices is 4: it must be from 0 to 3"
    many = msgspec.structs.replace(SPEC, max_devices=64, min_devices=13)
    assert fault_of(many) == "min_devices is 13: it must be from 0 to 12"


def test_a_task_whose_worth_leaves_the_planners_exact_integers_is_refused():
    """Every size is in its range. On the fastest devices known it would be worth too much."""
    model = msgspec.structs.replace(SPEC.model, hidden_size=2**13, seq_length=2**20)
    large = msgspec.structs.replace(
        SPEC,
        model=model,
        weight_milli=1_000_000,
        micro_batches=2**14,
        min_devices=2**14,
        max_devices=2**14,
    )
    assert fault_of(large).startswith("it can't be planned for")
    assert fault_of(msgspec.structs.replace(large, weight_milli=500_000)) == ""


@pytest.mark.parametrize("tensor,pipeline", [(2, 1), (1, 2), (0, 1), (1, 0)])
def test_other_parallelism_is_refused(tensor, pipeline):
    other = msgspec.structs.replace(SPEC, tensor_parallel=tensor, pipeline_parallel=pipeline)
    assert "tensor and pipeline parallel size 1 only" in fault_of(other)
    assert fault_of(SPEC) == ""


@pytest.mark.parametrize(
    "changes,said",
    [
        ({"tenant": "a\nb"}, "tenant is 'a\\nb': give a name of at most 64 printable characters"),
        ({"tenant": "x" * 65}, "at most 64 printable characters"),
        ({"device_kinds": ("a100", "a100")}, "device_kinds has 'a100' twice: name each once"),
        ({"device_kinds": ("",)}, "device_kinds has '' in it: name each once"),
        ({"device_kinds": tuple(map(str, range(33)))}, "device_kinds names 33: give at most 32"),
        ({"avoid": ("n1", "n2", "n1")}, "avoid has 'n1' twice: name each once"),
        ({"avoid": tuple(map(str, range(1001)))}, "avoid names 1001: give at most 1000"),
    ],
)
def test_names_that_make_no_sense(changes, said):
    assert said in fault_of(msgspec.structs.replace(SPEC, **changes))


def test_names_that_do():
    full = {
        "tenant": "x" * 64,
        "device_kinds": tuple(map(str, range(32))),
        "avoid": tuple(map(str, range(1000))),
    }
    assert fault_of(msgspec.structs.replace(SPEC, **full)) == ""


def test_devices_that_were_configured_are_planned_with():
    """What is worth too much on the fastest ones is, on none as fast."""
    fast = ev.Planning(devices=(ev.DeviceSpeed(kind="c900", gflops=10_000_000),))
    model = msgspec.structs.replace(SPEC.model, hidden_size=2**13, seq_length=2**20)
    large = msgspec.structs.replace(
        SPEC,
        model=model,
        weight_milli=500_000,
        micro_batches=2**14,
        min_devices=2**14,
        max_devices=2**14,
    )
    assert fault_of(large) == ""
    assert fault_of(large, fast).startswith("it can't be planned for")
