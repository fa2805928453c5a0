"""Tasks of a problem's file that name their model instead of their options.

    model = {layers = 32, hidden = 4096, heads = 32, sequence = 4096, vocabulary = 32000}
    training = {global_batch = 512}
    layouts = {tp = [1, 2, 4], micro_batches = [1]}      what may be chosen among; all by default
    kinds = ["h100"]                                     all kinds of the nodes by default
    remaining_iterations = 90_000                        with deadline_ms: a floor

become options with what the cost model says of each layout on each kind of device: `model`,
`training` and `layouts` are `Transformer`, `Training` and `Choices` of `unicron.planner.cost`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from unicron.planner.cost import (
    Accelerator,
    Choice,
    Choices,
    Execution,
    Training,
    Transformer,
    accelerator_table,
    best_layout,
    flops_per_sample,
    layout_table,
    options,
    pareto,
)
from unicron.planner.cost.layouts import assess
from unicron.planner.errors import BadProblem
from unicron.planner.problem import LayoutOption
from unicron.planner.validation import DEVICES_MAX

#: Fields that a task has here and not in `unicron.planner.problem`.
MODEL_WORDS = ("model", "training", "layouts", "kinds", "remaining_iterations")

_T = TypeVar("_T", bound=msgspec.Struct)


def modelled(data: Mapping[str, object]) -> dict[str, object]:
    """The same with options in place of models. `accelerators`, if it is there, is a file with more
    kinds of devices; it is taken out. Raises `BadProblem` with the place."""
    full = dict(data)
    extra = full.pop("accelerators", None)
    if extra is not None and not isinstance(extra, str):
        raise BadProblem("accelerators", f"is {extra!r}", "give the name of a TOML file")
    tasks = full.get("tasks")
    if isinstance(tasks, list | tuple):
        supply = _supply(full.get("nodes"))
        full["tasks"] = [
            _task(f"tasks[{i}]", task, supply, extra)
            if isinstance(task, Mapping) and any(word in task for word in MODEL_WORDS)
            else task
            for i, task in enumerate(tasks)
        ]
    return full


def _supply(nodes: object) -> dict[str, int]:
    """Devices of each kind, as far as the nodes are well formed; what isn't is refused later."""
    found: dict[str, int] = {}
    for node in nodes if isinstance(nodes, list | tuple) else ():
        if isinstance(node, Mapping) and isinstance(node.get("devices"), list | tuple):
            kind = str(node.get("kind", ""))
            found[kind] = found.get(kind, 0) + len(node["devices"])
    return found


def _task(
    path: str, task: Mapping[str, object], supply: dict[str, int], extra: str | None
) -> dict[str, object]:
    full = {key: value for key, value in task.items() if key not in MODEL_WORDS}
    if "model" not in task:
        word = next(word for word in MODEL_WORDS if word in task)
        raise BadProblem(f"{path}.{word}", "says how to train a model", "name the model too")
    if "options" in task:
        raise BadProblem(f"{path}.model", "stands beside options", "give one of them")
    model = _read(f"{path}.model", task["model"], Transformer)
    training = _read(f"{path}.training", task.get("training", {}), Training)
    choices = _read(f"{path}.layouts", task.get("layouts", {}), Choices)
    kinds = _kinds(path, task, supply)
    low, high = _sizes(path, task, sum(supply[kind] for kind in kinds))
    found: list[LayoutOption] = []
    state_bytes = 0
    for kind in kinds:
        device = _device(f"{path}.kinds", kind, extra)
        try:
            table = pareto(layout_table(model, training, device, high, choices, min_devices=low))
        except BadProblem as error:
            raise BadProblem(_place(path, error.field), error.reason, error.fix) from None
        try:
            table += _running(task, kind, (model, training, device, choices), table)
        except BadProblem as error:
            where = f"{path}.current.{error.field.partition('[')[0]}"
            raise BadProblem(where, error.reason, error.fix) from None
        found += options(table, kind)
        state_bytes = max([state_bytes, *(choice.state_bytes for choice in table)])
    full["options"] = [msgspec.to_builtins(option) for option in found]
    full.setdefault("min_devices", 0)
    full.setdefault("max_devices", max([low, *(o.layout.devices for o in found)]))
    full.setdefault("state_bytes", state_bytes)
    if task.get("current") is not None and len(kinds) == 1:
        full.setdefault("current_kind", kinds[0])
    if "remaining_iterations" in task:
        work = flops_per_sample(model) * training.global_batch
        full["remaining_gflop"] = _work(path, task["remaining_iterations"], work)
    return full


def _place(path: str, field: str) -> str:
    """Where in the task the cost model's field was written."""
    name = field.partition("[")[0].partition(".")[0]
    for word, kind in (("model", Transformer), ("training", Training), ("layouts", Choices)):
        if name in kind.__struct_fields__:
            return f"{path}.{word}.{field}"
    return f"{path}.{field}"


def _read(path: str, value: object, kind: type[_T]) -> _T:
    try:
        if isinstance(value, Mapping):
            unknown = sorted(set(map(str, value)) - set(kind.__struct_fields__))
            if unknown:
                known = ", ".join(kind.__struct_fields__)
                raise BadProblem(f"{path}.{unknown[0]}", "is no field here", f"known: {known}")
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        raise BadProblem(f"{path}{place.rstrip('`')}", reason, "see docs/cost-model.md") from None


def _kinds(path: str, task: Mapping[str, object], supply: dict[str, int]) -> list[str]:
    asked = task.get("kinds")
    if asked is None:
        return sorted(supply)
    if not isinstance(asked, list | tuple) or not all(isinstance(kind, str) for kind in asked):
        raise BadProblem(f"{path}.kinds", f"is {asked!r}", "give a list of kinds of devices")
    for kind in asked:
        if kind not in supply:
            known = ", ".join(sorted(supply)) or "none"
            raise BadProblem(f"{path}.kinds", f"no node is of kind {kind!r}", f"known: {known}")
    return sorted(set(asked))


def _sizes(path: str, task: Mapping[str, object], supply: int) -> tuple[int, int]:
    # Without a limit it may use what there is, and as much again that joins.
    low, high = task.get("min_devices", 0), task.get("max_devices", max(1, 2 * supply))
    for name, value, least in (("min_devices", low, 0), ("max_devices", high, 1)):
        if type(value) is not int or not least <= value <= DEVICES_MAX:
            fix = f"give an integer from {least} to {DEVICES_MAX}"
            raise BadProblem(f"{path}.{name}", f"is {value!r}", fix)
    assert isinstance(low, int)
    assert isinstance(high, int)
    return max(1, low), high


def _device(path: str, kind: str, extra: str | None) -> Accelerator:
    known = accelerator_table(None if extra is None else Path(extra))
    if kind not in known:
        raise BadProblem(
            path,
            f"nothing is known of devices of kind {kind!r}",
            f"name them as one of {', '.join(sorted(known))}; or give a file of `accelerators` "
            "that has them, or options",
        )
    return known[kind]


def _running(
    task: Mapping[str, object],
    kind: str,
    described: tuple[Transformer, Training, Accelerator, Choices],
    table: tuple[Choice, ...],
) -> tuple[Choice, ...]:
    """What the task runs now, if it isn't among the best: it may go on with it."""
    current = task.get("current")
    if not isinstance(current, Mapping) or task.get("current_kind", kind) != kind:
        return ()
    tp, pp, dp = (current.get(name) for name in ("tp", "pp", "dp"))
    if type(tp) is not int or type(pp) is not int or type(dp) is not int or min(tp, pp, dp) < 1:
        return ()  # refused later, with its place
    if any((c.execution.tp, c.execution.pp, c.execution.dp) == (tp, pp, dp) for c in table):
        return ()
    model, training, device, choices = described
    narrow = msgspec.structs.replace(choices, tp=(tp,), pp=(pp,))
    best = best_layout(model, training, device, tp * pp * dp, narrow)
    if best is None:  # it runs all the same: the model is wrong about the memory
        best = assess(model, training, device, Execution(tp=tp, pp=pp, dp=dp, recompute="full"))
    return (best,)


def _work(path: str, iterations: object, flops: int) -> int:
    """GFLOP of so many iterations of `flops` operations each."""
    if type(iterations) is not int or iterations < 1:
        raise BadProblem(
            f"{path}.remaining_iterations", f"is {iterations!r}", "give a positive integer"
        )
    return -(-iterations * flops // 1_000_000_000)
