"""No tag is retired yet, so the mechanism is shown with made-up ones."""

import pytest

from tests.events.test_codec import CONTROL, lost
from unicron.events import DecodeError, NodeLost, UndecodableEvent, Upcasters, decode, encode

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
