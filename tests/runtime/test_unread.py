"""What can't be read is told once for each kind, whatever its writer made of it."""

import json

from unicron import events as ev
from unicron.controlplane.runtime.unread import Unread
from unicron.events import subjects

FACT = subjects.fact("c", ev.NodeId("n1"))


def of_type(seq, tag):
    return ev.record(seq, FACT, json.dumps({"id": str(seq), "body": {"type": tag}}).encode(), 0)


def told(unread):
    """Every alarm that is due, written and read back."""
    alarms = []
    while (alarm := unread.due()) is not None:
        source = ev.Source(who="control/a", incarnation=ev.Incarnation(1), counter=1)
        made = ev.Envelope(id=str(len(alarms)), source=source, written_at_ns=0, body=alarm)
        subject = subjects.control("c", "cluster", "c")
        unread.taken(ev.record(1, subject, ev.encode(made), 0))
        alarms.append(alarm.message)
    return alarms


def test_each_kind_is_told_once():
    unread = Unread()
    for seq, tag in enumerate(("new.v1", "new.v1", "other.v2"), start=1):
        unread.taken(of_type(seq, tag))
    assert told(unread) == [
        "#1 has the type new.v1, which this version doesn't know: it changes nothing",
        "#3 has the type other.v2, which this version doesn't know: it changes nothing",
    ]


def test_a_type_of_megabytes_is_no_alarm_of_megabytes():
    unread = Unread()
    unread.taken(of_type(1, "x" * 4_000_000))
    unread.taken(ev.record(2, f"{FACT}.{'y' * 3000}", b"\xff", 0))
    assert [len(message) < 250 for message in told(unread)] == [True, True]


def test_who_writes_a_new_kind_each_time_gets_a_hundred_alarms():
    unread = Unread()
    for seq in range(1, 1000):
        unread.taken(of_type(seq, f"new{seq}.v1"))
    alarms = told(unread)
    assert len(alarms) == 100
    assert "No further kinds are told" in alarms.pop()
    assert not any("further" in alarm for alarm in alarms)
    resumed = Unread()
    resumed.resume(unread.so_far())
    resumed.taken(of_type(1000, "new.v1"))
    assert told(resumed) == []
