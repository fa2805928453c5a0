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
from unicron.planner.validation import DEVICES_MAX, NODES_MAX

#: Shorthands of a task that are no fields of it; for suggestions.
TASK_WORDS = ("weight", "remaining_gflop", "deadline_ms")

_RANGED = re.compile(r"^(?P<head>[^\[\]]*)\[(?P<ranges>[^\[\]]*)\](?P<tail>[^\[\]]*)$")
_RANGE = re.compile(r"^([0-9]{1,12})(?:-([0-9]{1,12}))?$")
#: Where a complaint about a node is.
_NODE = re.compile(r"^nodes\[(\d+)\]")
#: Of a name that is one of a range: as long as a host's name may be.
_RANGED_MAX = 253


def expanded_nodes(data: Mapping[str, object]) -> dict[str, object]:
    """The same without shorthands of nodes; what has another shape is left as it is."""
    full, nodes = dict(data), data.get("nodes")
    if isinstance(nodes, list | tuple):
        found: list[object] = []
        devices = 0
        for i, node in enumerate(nodes):
            for one in _nodes(f"nodes[{i}]", node):
                found.append(one)
                devices += _devices(one)
                if len(found) > NODES_MAX or devices > DEVICES_MAX:
                    raise BadProblem(
                        f"nodes[{i}]",
                        f"makes it more than {NODES_MAX} nodes or {DEVICES_MAX} devices",
                        "give fewer: no larger cluster is planned at once",
                    )
        full["nodes"] = found
    return full


def as_written(data: Mapping[str, object], field: str) -> str:
    """The place of a complaint, where `nodes[i]` counts the entries that were written."""
    found, nodes = _NODE.match(field), data.get("nodes")
    if found is None or not isinstance(nodes, list | tuple):
        return field
    written = [i for i, node in enumerate(nodes) for _ in _nodes("", node)]
    return f"nodes[{written[int(found[1])]}]{field[found.end() :]}"


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
    if len(found["head"]) + len(found["tail"]) > _RANGED_MAX:
        fix = f"give a name of at most {_RANGED_MAX} characters"
        raise BadProblem(path, f"is {text!r}, too long", fix)
    many = 0
    for part in found["ranges"].split(","):
        low, high = _range(path, part.strip())
        numbers = _upwards(path, low, high)
        many += len(numbers)
        if many > NODES_MAX:
            raise BadProblem(
                path, f"stands for more than {NODES_MAX} names", "give a smaller range"
            )
        for number in numbers:
            yield f"{found['head']}{number:0{len(low)}d}{found['tail']}"


def _range(path: str, text: str) -> tuple[str, str]:
    found = _RANGE.match(text)
    if found is None:
        raise BadProblem(path, f"has the range {text!r}", "write numbers, such as 1-16 or 3")
    return found[1], found[2] or found[1]


def _upwards(path: str, low: str, high: str) -> range:
    if int(high) < int(low):
        raise BadProblem(path, f"has the range '{low}-{high}'", "count upwards, such as 1-16")
    return range(int(low), int(high) + 1)


def _nodes(path: str, node: object) -> Iterator[object]:
    if not isinstance(node, Mapping):
        yield node
        return
    full = dict(node)
    count = node.get("devices")
    if type(count) is int:
        if not 0 <= count <= DEVICES_MAX:
            fix = f"give how many there are, from 0 to {DEVICES_MAX}, or a list of indexes"
            raise BadProblem(f"{path}.devices", f"is {count}", fix)
        full["devices"] = list(range(count))
    if not isinstance(node.get("node"), str):
        yield full
        return
    for name in names(f"{path}.node", node["node"]):
        yield {**full, "node": name}


def _devices(node: object) -> int:
    devices = node.get("devices") if isinstance(node, Mapping) else None
    return len(devices) if isinstance(devices, list | tuple) else 0


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
        numbers = _upwards(where, *_range(where, devices))
        for name in names(where, node):
            if len(found) + len(numbers) > DEVICES_MAX:
                fix = "name what the task holds, as many as its layout takes"
                raise BadProblem(where, f"makes it more than {DEVICES_MAX} slots", fix)
            found += [{"node": name, "device": device} for device in numbers]
    return found
