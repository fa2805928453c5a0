"""The digest: what the content alone decides, whatever was hashed before, and nothing slips by."""

import copy
import hashlib
import random
import threading
from zlib import crc32

import msgspec
import pytest

from tests.core.test_fold import night, rich_night
from unicron import events as ev
from unicron.controlplane.core import digest as digests
from unicron.controlplane.core.change import changed_keys
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.state import ClusterState

MAPS = ("sources", "connections", "nodes", "workers", "tasks", "incidents")


@pytest.fixture(params=[1, 3, 64], ids=["all-large", "some-large", "as-it-is"])
def inline_max(request, monkeypatch):
    monkeypatch.setattr(digests, "INLINE_MAX", request.param)
    monkeypatch.setattr(digests, "_kept", [])
    return request.param


def canonical(value):
    return msgspec.json.encode(value, order="deterministic")


def defined(state: ClusterState, inline_max: int) -> str:
    """The definition, word by word."""
    large = {m: getattr(state, m) for m in MAPS if len(getattr(state, m)) > inline_max}
    text = canonical(msgspec.structs.replace(state, **{m: {} for m in large}))
    for name, entries in large.items():
        hashes = b""
        for bucket in range(256):
            inside = {k: v for k, v in entries.items() if crc32(k.encode()) % 256 == bucket}
            hashes += hashlib.sha256(canonical(inside)).digest()
        text += f"\n{name} {len(entries)} {hashlib.sha256(hashes).hexdigest()}".encode()
    return hashlib.sha256(text).hexdigest()


def test_all_maps_of_the_state_are_known():
    assert set(MAPS) == set(digests._MAPS)


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_what_its_definition_says_in_whatever_order_states_are_asked_for(inline_max, seed):
    world = rich_night() if seed == 1 else night(seed)
    states = [*world.states[::9], *random.Random(seed).choices(world.states, k=60)]
    for state in states:
        assert digest(state) == defined(state, inline_max)


def test_a_state_of_ten_thousand_entries_goes_on_as_one_that_was_read():
    decoder = msgspec.json.Decoder(ClusterState)
    state = wide(700)
    for number in range(40):
        name = f"n{number * 17}"
        node = msgspec.structs.replace(state.nodes[name], last_fact=ev.Sequence(900 + number))
        sources = {k: v for k, v in state.sources.items() if k != f"agent/n{number}"}
        nodes = {**state.nodes, name: node}
        if number % 5 == 0:
            nodes |= {f"new{number}": node}
        if number % 7 == 0:
            del nodes[f"n{number * 17}"]
        state = msgspec.structs.replace(state, nodes=nodes, sources=sources)
        assert digest(state) == defined(state, 64)
        again = decoder.decode(canonical(state))
        backwards = msgspec.structs.replace(again, nodes=dict(reversed(again.nodes.items())))
        assert digest(backwards) == digest(again) == digest(state)


def wide(nodes: int) -> ClusterState:
    """The rich night's end with many more nodes and sources."""
    state = rich_night().state
    node, source = next(iter(state.nodes.values())), next(iter(state.sources.values()))
    return msgspec.structs.replace(
        state,
        nodes={f"n{i}": msgspec.structs.replace(node, node=f"n{i}") for i in range(nodes)},
        sources={
            f"agent/n{i}": msgspec.structs.replace(source, counter=i + 1) for i in range(nodes)
        },
    )


def places(value, path=()):
    """All places in plain data at which something can be changed."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def changed_at(data, path):
    """The data with another value there; None if what is there can't be changed by itself."""
    data = copy.deepcopy(data)
    *above, last = path
    inside = data
    for step in above:
        inside = inside[step]
    value = inside[last]
    if isinstance(value, bool):
        inside[last] = not value
    elif isinstance(value, int):
        inside[last] = value + 1
    elif isinstance(value, str):
        inside[last] = value + "x"
    elif isinstance(value, list) and value:
        inside[last] = value[:-1]
    elif isinstance(value, dict) and value and path[0] in MAPS and len(path) == 1:
        del value[next(iter(value))]
    else:
        return None
    return data


def test_any_changed_field_shows(inline_max):
    state = rich_night().states[len(rich_night().log) // 2]
    data = msgspec.to_builtins(state)
    found = {digest(state)}
    tried = 1
    for path in places(data):
        other = changed_at(data, path) if path else None
        if other is None:
            continue
        found.add(digest(msgspec.convert(other, ClusterState)))
        tried += 1
    assert tried > 200
    assert len(found) == tried


def test_entries_can_not_pass_from_one_map_to_another(inline_max):
    """Equal entries under two names differ by the name alone."""
    entries = {f"a{i}": f"server/{i}" for i in range(300)}
    held = ClusterState(connections=entries)
    assert digest(held) != digest(ClusterState(connections={**entries, "b": "server/1"}))
    assert digest(held) != digest(ClusterState(cluster="connections"))


def test_threads_that_ask_at_once_get_the_right_answer():
    states = [wide(300 + 10 * n) for n in range(4)]
    expected = [defined(state, 64) for state in states]
    wrong = []

    def ask(number: int) -> None:
        wrong.extend(n for n in [number] * 30 if digest(states[n]) != expected[n])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_changed_keys_finds_what_is_another_object():
    one, other = [1], [1]
    before = {"a": one, "b": one, "c": one}
    assert changed_keys(before, before) == []
    assert changed_keys(before, {**before, "b": other}) == ["b"]
    assert changed_keys(before, {**before, "b": other, "d": one}) == ["b", "d"]
    assert changed_keys(before, {"c": one, "a": other}) == ["a", "b"]
    assert changed_keys({}, before) == ["a", "b", "c"]
    assert changed_keys(before, {}) == ["a", "b", "c"]
