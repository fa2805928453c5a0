from pathlib import Path

from tests.support.event_strategies import EVENT_TYPES
from unicron import events
from unicron.events import catalog

PAGE = Path(__file__).resolve().parents[2] / "docs" / "events.md"


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == catalog.render_markdown(), (
        "run: python -m unicron.events.catalog > docs/events.md"
    )


def test_every_type_is_in_the_catalogue_once_and_described():
    listed = catalog.catalogue()
    assert sorted(e.name for e in listed) == sorted(e.__name__ for e in EVENT_TYPES)
    assert all(e.doc and e.fields and e.kind in {"fact", "decision"} for e in listed)


def test_every_type_and_every_value_inside_one_is_public():
    for struct in (*EVENT_TYPES, *catalog.parts()):
        assert getattr(events, struct.__name__) is struct
        assert struct.__name__ in events.__all__


def test_what_a_field_looks_like():
    exited = next(e for e in catalog.catalogue() if e.name == "WorkerExited")
    by_name = {field.name: field for field in exited.fields}
    assert (by_name["signal"].type, by_name["signal"].default) == ("int | null", "")
    assert (by_name["phase"].type, by_name["phase"].default) == ("str", '""')
    decided = next(e for e in catalog.catalogue() if e.name == "PlanDecided")
    assert {f.name: f.type for f in decided.fields}["allocations"] == "[Allocation, …]"


def test_house_rules_for_event_types():
    """No floats, no sets, no maps: the page promises it."""
    for event in catalog.catalogue():
        for field in event.fields:
            assert not {"float", "set", "dict"} & set(field.type.replace("[", " ").split()), event
