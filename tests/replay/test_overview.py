"""A cluster on one screen and one thing in it; entries as they come; quantities in words."""

import msgspec
import pytest

from tests.core.story import SPEC, running
from tests.replay.histories import killed, night, powered_off
from unicron import events as ev
from unicron.controlplane.replay import IncidentBook, units
from unicron.controlplane.replay.views import Follower
from unicron.events import codec


def test_a_cluster_without_trouble():
    view = IncidentBook(running(2).log).cluster()
    assert view.headline == "no incident open, 1 of 1 task trains"
    assert [(n.node, n.status, n.workers) for n in view.nodes] == [
        ("n1", "healthy", 2),
        ("n2", "healthy", 2),
    ]
    (task,) = view.tasks
    assert (task.devices, task.devices_wanted, task.phase) == (4, 4, "running")
    assert task.gflops > 0
    assert [w.rank for w in view.workers] == [0, 2, 1, 3]
    assert (view.leader, view.term, view.log_lag_ms) == ("i1", 1, None)


def test_what_is_configured_is_said():
    story = running(2)
    assert IncidentBook(story.log).cluster().configured == ""
    planning = ev.Planning(
        quotas=(
            ev.Quota(tenant="lab", max_devices=1),
            ev.Quota(tenant="lab", max_devices=0, kind="h100"),
        ),
        devices=(
            ev.DeviceSpeed(kind="cpu", gflops=9),
            ev.DeviceSpeed(kind="x", link_bytes_per_s=10**9),
        ),
        node_mtbf_ms=90_000,
        repair_ms=8,
        link_bytes_per_s=10**7,
        measured_step_times=False,
    )
    story.decide_input(ev.ClusterConfigured(planning=planning, by="anna", digest="abc"))
    said = (
        "lab holds at most 1 device; lab holds at most 0 h100 devices; cpu devices make 9 GFLOP/s; "
        "x devices make 1,000,000,000 bytes/s; a node fails once in 1 min 30; one that failed is "
        "away for 8 ms; state moves with 10,000,000 bytes/s; measured step times don't count"
    )
    assert IncidentBook(story.log).cluster().configured == said
    story.decide_input(ev.ClusterConfigured(planning=ev.Planning(), by="anna", digest="abc"))
    assert IncidentBook(story.log).cluster().configured == ""


def test_a_task_says_that_there_is_no_device_that_it_may_run_on():
    story = running(2)
    story.submit(msgspec.structs.replace(SPEC, task="other", device_kinds=("h1OO", "b200")))
    story.settle()
    story.solve()
    story.settle()
    book = IncidentBook(story.log)
    assert book.cluster().headline == "no incident open, 1 of 2 tasks train"
    said = book.status("other").headline
    assert "is parked at iteration 0" in said
    assert "it may run only on h1OO, b200, of which no node is in use; there is cpu" in said
    assert "run only" not in book.status("gpt").headline


def test_a_cluster_in_the_midst_of_it():
    story = running(2)
    story.held.append(("quiesce", "n2/0"))
    story.exit("n1/1")
    story.settle()
    view = IncidentBook(story.log).cluster()
    assert view.headline == "1 incident open, 0 of 1 task trains"
    assert [i.is_open for i in view.incidents] == [True]
    assert view.tasks[0].incident == view.incidents[0].id
    assert [w.worker for w in view.workers if w.rank is None] == ["n1/1"]


def test_who_follows_is_known_by_its_connection():
    story = running(2)

    def said(kind, client, number, server="s", **more):
        body = kind(client=client, server=server, client_number=number, **more)
        story.fact("server/s", 0, body)
        return IncidentBook(story.log).cluster().followers

    opened, closed = ev.ConnectionOpened, ev.ConnectionClosed
    assert said(opened, "control/i1", 1) == ()  # it leads
    assert said(opened, "cli/reader", 2) == ()
    assert said(opened, "control/b", 3) == ("b",)
    assert said(opened, "control/a", 4) == ("a", "b")
    assert said(closed, "control/b", 3, reason="x") == ("a",)
    assert said(opened, "control/a", 1, server="t") == ("a",)
    assert said(closed, "control/a", 4, reason="x") == ("a",)  # that was the one before
    assert said(closed, "control/a", 1, server="t", reason="x") == ()


def test_at_an_earlier_sequence_it_is_as_it_was():
    log = powered_off().log
    whole = IncidentBook(log).cluster()
    assert whole.headline.startswith("no incident open, 1 node out or in doubt")
    opened = next(r.seq for r in log if isinstance(r.envelope.body, ev.IncidentOpened))
    then = IncidentBook(log[:opened]).cluster(len(log))
    assert (then.at_seq, then.last_seq) == (opened, len(log))
    assert len(then.incidents) == 1


@pytest.mark.parametrize("asked,kind", [("n2", "node"), ("gpt", "task"), ("n1/0", "worker")])
def test_one_thing(asked, kind):
    book = IncidentBook(night().log)
    found = book.status(asked)
    assert (found.kind, found.id) == (kind, asked)
    assert found.headline.startswith(f"{kind} {asked} is ")
    about = [*book.entries(asked)]
    assert list(found.events)[-1].seq == about[-1].seq
    assert found.events_left_out == len(about) - len(found.events) > 0
    assert ("why", asked) in [c.arguments for c in found.commands]


def test_an_incident_an_event_and_a_plan():
    story = powered_off()
    book = IncidentBook(story.log)
    incident = book.status("inc-")
    assert incident.commands[0].arguments == ("audit", book.ids[0])
    assert dict(incident.facts)["severity"] == "SEV1"
    plan = next(r for r in story.log if isinstance(r.envelope.body, ev.PlanDecided) and r.seq > 40)
    found = book.status(f"#{plan.seq}")
    assert found.kind == "plan"
    assert "instead" in [name for name, _ in found.facts]
    asked = next(r.seq for r in story.log if isinstance(r.envelope.body, ev.PlanRequested))
    event = book.status(str(asked))
    assert event.kind == "event"
    assert f"#{asked + 1}" in dict(event.facts)["led to"]


def test_entries_of_one_thing_between_two_sequences():
    story = night()
    book = IncidentBook(story.log)
    assert [e.seq for e in book.entries()] == [r.seq for r in story.log]
    mine = [*book.entries("n2", since=20, until=80)]
    assert mine
    assert all(20 <= e.seq <= 80 for e in mine)
    assert mine[0].t_plus_ms == 0
    incident = book.ids[0]
    told = [e.seq for e in book.story(incident).events]
    assert [e.seq for e in book.entries(incident)] == told
    assert [e.seq for e in book.entries("#7")] == [7]
    assert [*book.entries("n2", since=9999)] == []


def test_what_cannot_be_read_is_told_too():
    story = running(1)
    known = codec.record(1, "unicron.c.fact.n", story.log[5].data, 0)
    strange = story.log[5].data.replace(
        known.envelope.body.__struct_config__.tag.encode(), b"new.v9"
    )
    book = IncidentBook(
        [
            *story.log,
            codec.record(len(story.log) + 1, "unicron.c.fact.n", b"\xff\x1b[2J", story.now_ns),
            codec.record(len(story.log) + 2, "unicron.c.control.task.x", strange, story.now_ns),
        ]
    )
    broken, new = [*book.entries(since=len(story.log) + 1)]
    assert (broken.type, broken.kind, broken.who) == ("unreadable", "observed", "?")
    assert broken.what.isprintable()
    assert (new.type, new.kind) == ("new.v9", "decided")
    assert "which this version doesn't know" in new.what


def test_a_follower_tells_what_the_book_tells():
    story = night()
    follower, book = Follower(), IncidentBook(story.log)
    told = [follower.tell(r) for r in story.log]
    whole = [msgspec.structs.replace(e, t_plus_ms=0) for e in book.entries()]
    assert told == whole
    follower.only("n2")
    assert [r.seq for r in story.log if follower.is_wanted(r)] == [
        e.seq for e in book.entries("n2")
    ]
    follower.only(book.ids[0])
    wanted = {r.seq for r in story.log if follower.is_wanted(r)}
    assert wanted < {e.seq for e in book.entries(book.ids[0])}
    assert book.state.incidents[book.ids[0]].evidence[0] in wanted


def test_costs_of_a_log_that_ends_early_are_counted_to_there():
    log = killed().log
    opened = next(r.seq for r in log if isinstance(r.envelope.body, ev.IncidentOpened))
    (incident,) = IncidentBook(log[: opened + 1]).incidents()
    assert incident.is_open
    assert incident.cost_until == "log_end"
    assert incident.stall_ms == (log[opened].at_ns - incident.began_at_ns) // 1_000_000


@pytest.mark.parametrize(
    "count,text",
    [
        (None, "-"),
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (1_000, "1.00 kFLOP"),
        (32_589_393_230, "32.6 GFLOP"),
        (999_600_000_000, "1.00 TFLOP"),
        (7 * 10**20, "700 EFLOP"),
        (10**30, "1,000,000 YFLOP"),
    ],
)
def test_flop(count, text):
    assert units.flop(count) == text


@pytest.mark.parametrize(
    "ms,text",
    [
        (None, "-"),
        (0, "0.00 device-seconds"),
        (24, "0.024 device-seconds"),
        (1738, "1.74 device-seconds"),
        (700_000, "700 device-seconds"),
        (138_960_000, "38.6 device-hours"),
    ],
)
def test_device_time(ms, text):
    assert units.device_time(ms) == text


def test_throughputs_and_counts():
    assert units.gflops(76_000) == "76 GFLOP/s"
    assert units.gflops(38_999) == "38.999 GFLOP/s"
    assert [units.gflops(milli) for milli in (-1, 9, -10)] == [
        "0 GFLOP/s",
        "0 GFLOP/s",
        "-0.01 GFLOP/s",
    ]
    assert units.gflops(-1_200) == "-1.2 GFLOP/s"
    assert (units.count(1, "device"), units.count(0, "task")) == ("1 device", "0 tasks")
