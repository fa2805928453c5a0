"""What a person may write shorter in a problem's file, and what it stands for.

    node = "a[001-016]"          one entry for each of a001 to a016
    devices = 8                  devices 0 to 7
    weight = 1.5                 weight_milli = 1500
    placement = ["a001/0-7"]     a slot for each device, in this order
    remaining_gflop, deadline_ms what is left to compute and in which time: min_gflops

A task without `weight` weighs 1, one without `min_devices` may be parked.

Pure: from mappings to mappings with the fields of `unicron.planner.problem`. Complaints name the
place in what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from unicron.planner.errors import BadProblem

#: Shorthands of a task that are no fields of it; for suggestions.
TASK_WORDS = ("weight", "remaining_gflop", "deadline_ms")

_RANGED = re.compile(r"^(?P<head>[^\[\]]*)\[(?P<ranges>[^\[\]]*)\](?P<tail>[^\[\]]*)$")
_RANGE = re.compile(r"^(\d+)(?:-(\d+))?$")
_NAMES_MAX = 200_000


def expanded_nodes(data: Mapping[str, object]) -> dict[str, object]:
    """The same without shorthands of nodes; what has another shape is left as it is."""
    full, nodes = dict(data), data.get("nodes")
    if isinstance(nodes, list | tuple):
        full["nodes"] = [one for i, node in enumerate(nodes) for one in _nodes(f"nodes[{i}]", node)]
    return full


def expanded_tasks(data: Mapping[str, object]) -> dict[str, object]:
    """The same without shorthands of tasks; what has another shape is left as it is."""
    full, tasks = dict(data), data.get("tasks")
    if isinstance(tasks, list | tuple):
        full["tasks"] = [_task(f"tasks[{i}]", task) for i, task in enumerate(tasks)]
    return full


def names(path: str, text: str) -> Iterator[str]:
    """`a[01-03,7]` is a01, a02, a03, a7; a text without brackets is itself."""
    if "[" not in text and "]" not in text:
        yield text
        return
    found = _RANGED.match(text)
    if found is None:
        raise BadProblem(path, f"is {text!r}", "write one range in brackets, such as a[01-16]")
    for part in found["ranges"].split(","):
        low, high = _range(path, part.strip())
        first, last = int(low), int(high)
        if last < first or last - first >= _NAMES_MAX:
            raise BadProblem(path, f"has the range {part!r}", "count upwards, such as a[01-16]")
        for number in range(first, last + 1):
            yield f"{found['head']}{number:0{len(low)}d}{found['tail']}"


def _range(path: str, text: str) -> tuple[str, str]:
    found = _RANGE.match(text)
    if found is None:
        raise BadProblem(path, f"has the range {text!r}", "write numbers, such as 1-16 or 3")
    return found[1], found[2] or found[1]


def _nodes(path: str, node: object) -> Iterator[object]:
    if not isinstance(node, Mapping):
        yield node
        return
    full = dict(node)
    if type(node.get("devices")) is int:
        full["devices"] = list(range(node["devices"]))
    if not isinstance(node.get("node"), str):
        yield full
        return
    for name in names(f"{path}.node", node["node"]):
        yield {**full, "node": name}


def _task(path: str, task: object) -> object:
    if not isinstance(task, Mapping):
        return task
    full = dict(task)
    if "weight" in full:
        _only_one(path, full, "weight", "weight_milli")
        full["weight_milli"] = _milli(f"{path}.weight", full.pop("weight"))
    if "remaining_gflop" in full or "deadline_ms" in full:
        _only_one(path, full, "deadline_ms", "min_gflops")
        full["min_gflops"] = _rate(path, full.pop("remaining_gflop", 0), full.pop("deadline_ms", 0))
    full.setdefault("weight_milli", 1000)
    full.setdefault("min_devices", 0)
    placement = full.get("placement")
    if isinstance(placement, list | tuple):
        full["placement"] = _slots(f"{path}.placement", placement)
    return full


def _only_one(path: str, task: Mapping[str, object], one: str, other: str) -> None:
    if one in task and other in task:
        raise BadProblem(f"{path}.{one}", f"stands beside {other}", "give one of them")


def _milli(path: str, weight: object) -> int:
    # NaN and infinity fail the comparison; a Boolean is no number here.
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e12:
        raise BadProblem(path, f"is {weight!r}", "give a number above 0, such as 1.5")
    milli = round(weight * 1000)
    if milli < 1:
        raise BadProblem(path, f"is {weight!r}", "the smallest weight is 0.001")
    return milli


def _rate(path: str, remaining: object, deadline_ms: object) -> int:
    """What is left over the time that is left, in GFLOP/s, rounded up."""
    for name, value in (("remaining_gflop", remaining), ("deadline_ms", deadline_ms)):
        if type(value) is not int or value < 1:
            raise BadProblem(
                f"{path}.{name}",
                f"is {value!r}",
                "give both as positive integers: what is left to compute, and in which time",
            )
    assert isinstance(remaining, int)
    assert isinstance(deadline_ms, int)
    return -(-remaining * 1000 // deadline_ms)


def _slots(path: str, placement: Sequence[object]) -> list[object]:
    found: list[object] = []
    for j, entry in enumerate(placement):
        if not isinstance(entry, str):
            found.append(entry)
            continue
        where = f"{path}[{j}]"
        node, slash, devices = entry.rpartition("/")
        if not slash or not node:
            raise BadProblem(
                where, f"is {entry!r}", "write node/device, such as a001/0 or a001/0-7"
            )
        low, high = _range(where, devices)
        found += [
            {"node": name, "device": device}
            for name in names(where, node)
            for device in range(int(low), int(high) + 1)
        ]
    return found
