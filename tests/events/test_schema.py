"""Fields that an event once had, it keeps: old logs hold them.

`schema.json` is what was promised so far. With SCHEMA=write in the environment it is written anew:
commit the difference only if events/README.md allows it.
"""

import os
from pathlib import Path

import msgspec
import pytest

from unicron.events import catalog, upcast
from unicron.events.envelope import Basis, Envelope, Source

PROMISED = Path(__file__).parent / "schema.json"


def fields_now():
    """Tag (or name, for what isn't an event itself) -> field -> type and default."""
    events = {e.tag: {f.name: [f.type, f.default] for f in e.fields} for e in catalog.catalogue()}
    for struct in (*catalog.parts(), Envelope, Source, Basis):
        described = catalog._fields(struct)
        events[struct.__name__] = {f.name: [f.type, f.default] for f in described}
    return events


def broken_promises(promised, now, retired):
    """What old logs hold and this version wouldn't read as it was meant."""
    for name, fields in promised.items():
        if name in now:
            for field, (type_name, default) in fields.items():
                if now[name].get(field, [None])[0] != type_name:
                    yield f"{name}.{field} was {type_name}: that needs a new tag"
                elif now[name][field][1] != default:
                    yield f"{name}.{field} had the default {default!r}: old entries rely on it"
            for field in now[name].keys() - fields.keys():
                if not now[name][field][1]:
                    yield f"{name}.{field} is new and has no default"
        elif name not in retired:
            yield f"{name} is gone: retire it with an upcast"


def test_every_promise_is_kept():
    now = fields_now()
    if os.environ.get("SCHEMA") == "write":
        text = msgspec.json.format(msgspec.json.encode(now, order="sorted")).decode()
        PROMISED.write_text(text + "\n", encoding="utf-8")
    promised = msgspec.json.decode(PROMISED.read_bytes())
    assert list(broken_promises(promised, now, upcast.CURRENT.tags)) == []
    assert promised == now, "run with SCHEMA=write, and say so in the changelog"


@pytest.mark.parametrize(
    "change,complaint",
    [
        (lambda now: now.pop("node.lost.v1"), "node.lost.v1 is gone"),
        (lambda now: now["node.lost.v1"].pop("evidence"), "node.lost.v1.evidence was str"),
        (
            lambda now: now["node.lost.v1"].update(evidence=["int", ""]),
            "node.lost.v1.evidence was str",
        ),
        (lambda now: now["Envelope"].update(term=["Term", "7"]), "Envelope.term had the default"),
        (lambda now: now["Source"].update(host=["str", ""]), "Source.host is new"),
    ],
)
def test_a_broken_promise_is_noticed(change, complaint):
    now = fields_now()
    change(now)
    (found,) = broken_promises(fields_now(), now, upcast.CURRENT.tags)
    assert found.startswith(complaint)


def test_a_new_field_with_a_default_and_a_retired_tag_break_nothing():
    now = fields_now()
    now["node.lost.v1"]["rack"] = ["str", '""']
    promised = fields_now() | {"plan.solved.v1": {"request": ["int", ""]}}
    assert list(broken_promises(promised, now, upcast.CURRENT.tags)) == []
