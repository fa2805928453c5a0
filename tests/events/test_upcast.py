"""The mechanism, shown with made-up tags, and every tag that really was retired."""

import copy
from pathlib import Path

import msgspec
import pytest

from tests.events.test_codec import CONTROL, lost
from unicron.events import (
    KNOWN_TAGS,
    DecodeError,
    Envelope,
    NodeLost,
    PlanSolved,
    UndecodableEvent,
    Upcasters,
    decode,
    encode,
)
from unicron.events.upcast import CURRENT

RETIRED = Path(__file__).parent / "retired"

V1 = encode(lost()).replace(b"node.lost.v1", b"node.vanished.v1").replace(b"evidence", b"why")


def upcasters():
    retired = Upcasters()

    @retired.retires("node.vanished.v1")
    def _v1(body):
        return {**body, "type": "node.vanished.v2", "proof": body["why"]}

    @retired.retires("node.vanished.v2")
    def _v2(body):
        return {
            "type": "node.lost.v1",
            "node": body["node"],
            "incarnation": body["incarnation"],
            "evidence": f"{body['proof']} (v2)",
        }

    return retired


def test_a_retired_version_is_brought_up_step_by_step():
    expected = lost(body=NodeLost(node="n1", incarnation=1, evidence="two paths (v2)"))
    assert decode(CONTROL, V1, upcasters=upcasters()) == expected
    assert decode(CONTROL, V1, upcasters=upcasters(), strict=True) == expected
    assert upcasters().tags == ("node.vanished.v1", "node.vanished.v2")


def test_strictness_still_sees_foreign_fields_of_the_envelope():
    data = V1.replace(b'"term":5', b'"term":5,"mood":"good"')
    with pytest.raises(DecodeError, match=r"\$\.mood"):
        decode(CONTROL, data, upcasters=upcasters(), strict=True)


def test_an_upcast_that_gives_no_event_is_undecodable_and_says_so():
    retired = Upcasters()

    @retired.retires("node.vanished.v1")
    def _v1(body):
        return {"type": "node.lost.v1"}

    entry = decode(CONTROL, V1, upcasters=retired)
    assert isinstance(entry, UndecodableEvent)
    assert "node.vanished.v1" in entry.reason


def test_upcasters_leave_the_body_they_get_alone_and_run_in_no_circle():
    retired = Upcasters()

    @retired.retires("a.v1")
    def _a(body):
        body["type"] = "b.v1"
        return body

    body = {"type": "a.v1"}
    assert retired.apply(body) == {"type": "b.v1"}
    assert body == {"type": "a.v1"}
    assert retired.apply({"type": "b.v1"}) is None

    @retired.retires("b.v1")
    def _b(body):
        return {"type": "a.v1"}

    with pytest.raises(ValueError, match="circle"):
        retired.apply(body)


def test_a_tag_is_retired_once():
    retired = upcasters()
    with pytest.raises(ValueError, match="already"):
        retired.retires("node.vanished.v1")


# --- Tags that were retired ----------------------------------------------------------------------


def body_of(data):
    return msgspec.json.decode(data)["body"]


@pytest.mark.parametrize("tag", CURRENT.tags)
def test_what_an_old_version_wrote_is_read_for_ever(tag):
    """The bytes are from a real log of that version."""
    data = (RETIRED / f"{tag}.json").read_bytes().strip()
    assert body_of(data)["type"] == tag
    entry = decode(CONTROL, data, strict=True)
    assert isinstance(entry, Envelope)
    assert type(entry.body).__struct_config__.tag in KNOWN_TAGS
    with pytest.raises(DecodeError, match="mood"):
        foreign = data.replace(b'"body":{', b'"body":{"mood":1,')
        decode(CONTROL, foreign, strict=True)


@pytest.mark.parametrize("tag", CURRENT.tags)
def test_upcasts_are_pure_and_described(tag):
    body = body_of((RETIRED / f"{tag}.json").read_bytes())
    before = copy.deepcopy(body)
    assert CURRENT.apply(body) == CURRENT.apply(body)
    assert body == before
    assert CURRENT.about(tag)
    assert tag not in KNOWN_TAGS


def test_every_old_body_belongs_to_a_retired_tag():
    assert sorted(path.stem for path in RETIRED.iterdir()) == list(CURRENT.tags)


def test_the_time_that_a_plan_took_is_a_field_of_its_own():
    data = (RETIRED / "plan.solved.v1.json").read_bytes().strip()
    solved = decode(CONTROL, data).body
    assert isinstance(solved, PlanSolved)
    assert solved.took_ms == dict(body_of(data)["statistics"])["took_ms"] > 0
    assert "took_ms" not in dict(solved.statistics)
    assert len(solved.statistics) == len(body_of(data)["statistics"]) - 1
    body = body_of(data)
    kept = {field: body[field] for field in body if field not in ("type", "statistics")}
    assert kept.items() <= body_of(encode(decode(CONTROL, data))).items()


@pytest.mark.parametrize("statistics", [[], [["optimal", 1]]])
def test_a_time_that_was_not_told_stays_unknown(statistics):
    raw = msgspec.json.decode((RETIRED / "plan.solved.v1.json").read_bytes())
    raw["body"]["statistics"] = statistics
    solved = decode(CONTROL, msgspec.json.encode(raw)).body
    assert solved.took_ms is None
    assert solved.statistics == tuple(map(tuple, statistics))


@pytest.mark.parametrize("statistics", [None, 7, ["took_ms"], [["took_ms", "long"]], [[], []]])
def test_a_body_that_the_upcast_stumbles_over_is_undecodable(statistics):
    raw = msgspec.json.decode((RETIRED / "plan.solved.v1.json").read_bytes())
    raw["body"]["statistics"] = statistics
    entry = decode(CONTROL, msgspec.json.encode(raw))
    assert isinstance(entry, UndecodableEvent)
    assert "plan.solved.v1" in entry.reason
