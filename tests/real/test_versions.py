"""Guarantee: versions may be mixed while a cluster is updated. What one doesn't know of the other
changes nothing for it, and is told; nothing is lost, nothing ends by it, and who met a decision
that it can't read doesn't lead.

The newer version is this one with its events changed as `events/README.md` allows: a field more
here, a type more there, a retired tag, and so the next fold version. It runs in processes of its
own.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.contract.worlds import until
from tests.real.fleet import CLUSTER, Fleet
from unicron import controlplane, events
from unicron.controlplane.core.state import FOLD_VERSION
from unicron.controlplane.runtime.natsserver import NatsServer
from unicron.events import AgentStopped, AlarmRaised, NodeAdmitted, UnknownEvent, subjects
from unicron.worker_shim.identity import agent_identity
from unicron.worker_shim.transport import Transport

pytestmark = pytest.mark.real

_NEW_FACT = """\
class FanSlowed(Fact, frozen=True, kw_only=True, tag="fan.slowed.v1"):
    node: NodeId


"""
_UPCAST = """\
@CURRENT.retires("alarm.raised.v1")
def _alarm_raised_v1(body: RawBody) -> RawBody:
    return {**body, "type": "alarm.raised.v2", "level": 0}


"""
_ZONE = '    zone: str = "z1"\n'
_RETIRED = '@CURRENT.retires("plan.solved.v1")'
_NODE_ADMITTED = "class NodeAdmitted(Decision, "
_ALARM = "    code: str\n    message: str\n"
#: File, what stands there, and what stands there in the newer version.
_CHANGES = [
    ("core/state.py", f"FOLD_VERSION = {FOLD_VERSION}\n", f"FOLD_VERSION = {FOLD_VERSION + 1}\n"),
    # A fact gets a field, and there is a new one.
    ("events/node.py", '    rack: str = ""\n', '    rack: str = ""\n' + _ZONE),
    ("events/node.py", _NODE_ADMITTED, _NEW_FACT + _NODE_ADMITTED),
    ("events/union.py", "    | node.StoreBound\n", "    | node.StoreBound\n    | node.FanSlowed\n"),
    # A decision gets a field; another one is retired: v2 is written, and both are read.
    ("events/leadership.py", "    logic_version: int\n", _ZONE + "    logic_version: int\n"),
    ("events/leadership.py", 'tag="alarm.raised.v1"', 'tag="alarm.raised.v2"'),
    ("events/leadership.py", _ALARM, _ALARM + "    level: int = 7\n"),
    ("events/upcast.py", _RETIRED, _UPCAST + _RETIRED),
]


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """The folder that makes a Python process one of the newer version, if it is on its path."""
    folder = tmp_path_factory.mktemp("newer")
    unicron = folder / "unicron"
    for package in (events, controlplane):
        source = Path(package.__file__).parent
        shutil.copytree(source, unicron / source.name, ignore=shutil.ignore_patterns("*.pyc"))
    for name, old, new in _CHANGES:
        path = unicron / (name if name.startswith("events/") else f"controlplane/{name}")
        text = path.read_text()
        assert text.count(old) == 1, (name, old)
        path.write_text(text.replace(old, new))
    return folder


@pytest.fixture
async def fleet(tmp_path):
    async with (
        NatsServer(tmp_path / "nats", CLUSTER) as server,
        Fleet(server.url, tmp_path) as made,
    ):
        yield made


async def start(fleet, monkeypatch, name, version=None):
    """A control plane begins, of the newer version if given."""
    with monkeypatch.context() as patched:
        if version is not None:
            patched.setenv("PYTHONPATH", str(version))
        await fleet.start(name)


async def command(fleet, version, *arguments):
    """What a command of that version says about the log, and its exit code."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unicron.controlplane.cli", *arguments),
        *("--log", fleet.url, "--cluster", CLUSTER),
        env=os.environ | ({"PYTHONPATH": str(version)} if version else {}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def report(fleet, node, counter, kind="fan.slowed.v1"):
    """A fact of an agent of the newer version."""
    source = {"who": f"agent/{node}", "incarnation": 1, "counter": counter}
    body = {"type": kind, "node": node, "reason": "", "speed": 3}
    data = events.codec._encoder.encode(
        {"id": f"agent/{node}:1:{counter}", "source": source, "written_at_ns": 0, "body": body}
    )
    subject = subjects.fact(CLUSTER, node)
    await fleet.log.append(subject, data, f"agent/{node}:1:{counter}", fence=None)


def alarms(fleet):
    return [body.message for body in fleet.bodies(AlarmRaised) if "fan.slowed" in body.message]


def unknown(fleet):
    """Tags of the entries that this version doesn't know, without the server's own."""
    found = [r.entry for r in fleet.entries if isinstance(r.entry, UnknownEvent)]
    return [entry.tag for entry in found if not entry.tag.startswith("io.nats.")]


async def test_an_older_version_leads_and_a_newer_one_follows(fleet, newer, monkeypatch):
    """Then the newer one leads, on what the older one had decided; both read all of it."""
    await start(fleet, monkeypatch, "old")
    await fleet.leads("old")
    await fleet.works("n1")
    await start(fleet, monkeypatch, "new", newer)
    await fleet.follows("new")
    await report(fleet, "n1", 2)
    await fleet.until(lambda: alarms(fleet))  # by the older one, which doesn't know that fact
    await report(fleet, "n1", 3, kind="agent.stopped.v1")
    await fleet.works("n2")
    await fleet.end("old")
    await fleet.leads("new")
    await fleet.works("n3")
    await fleet.end("new")
    assert fleet.leaderships == ["old", "new"]
    assert sum(b'"zone":"z1"' in entry.data for entry in fleet.entries) == 1  # it was the newer one
    assert unknown(fleet) == ["fan.slowed.v1"]
    assert len(alarms(fleet)) == 1
    assert (fleet.state.gaps, fleet.state.unknown_decisions) == (0, 0)
    code, said = await command(fleet, newer, "replay", "--verify")
    assert code == 0, said
    code, said = await command(fleet, None, "replay")
    assert code == 0, said
    assert "fan.slowed.v1" in said


async def test_who_met_a_decision_that_it_cannot_read_does_not_lead(fleet, newer, monkeypatch):
    """The newer one leads; what it writes reaches the older one with fields and types that that one
    doesn't know. Once updated, that instance folds what was kept, and leads."""
    await start(fleet, monkeypatch, "new", newer)
    await fleet.leads("new")
    await start(fleet, monkeypatch, "old")
    await fleet.follows("old")
    await fleet.works("n1")
    subject = subjects.fact(CLUSTER, "n1")
    await fleet.log.append(subject, b"no event", "junk", fence=None)
    await fleet.until(lambda: "alarm.raised.v2" in unknown(fleet))
    await fleet.works("n2")
    assert fleet.processes["old"].returncode is None  # it follows on
    fleet.signal("new", signal.SIGKILL)
    old = fleet.processes.pop("old")
    assert await old.wait() == 2
    assert "E-LOG-NEWER" in fleet.said("old")
    assert fleet.leaderships == ["new"]
    assert fleet.state.unknown_decisions == 1
    assert fleet.state.gaps == 0
    await start(fleet, monkeypatch, "updated", newer)
    await fleet.leads("updated")
    await fleet.works("n3")
    await fleet.end("updated")
    code, said = await command(fleet, newer, "replay", "--verify")
    assert code == 0, said
    code, said = await command(fleet, None, "replay")
    assert code == 0, said
    assert "alarm.raised.v2" in said


async def test_an_agent_or_worker_hears_what_it_knows_of_a_newer_order(fleet):
    """Fields that it doesn't know are left out, a type that it doesn't know is passed over, and
    what it reports is taken meanwhile."""
    heard = []
    transport = Transport(agent_identity(CLUSTER, "n1", 1), fleet.url, lambda *o: heard.append(o))
    running = asyncio.create_task(transport.run())
    await until(lambda: transport.is_connected)
    for seq, (kind, more) in enumerate(
        [("node.admitted.v1", {}), ("node.warmed.v1", {}), ("node.admitted.v1", {"zone": "z1"})], 1
    ):
        source = {"who": "control/new", "incarnation": 1, "counter": seq}
        body = {"type": kind, "node": "n1", "incarnation": 1, **more}
        envelope = {"id": f"{seq}", "source": source, "written_at_ns": 0, "body": body, "term": 1}
        await fleet.log.connection.client.publish(
            subjects.order(CLUSTER, "node", "n1"),
            json.dumps(envelope | more).encode(),
            headers={"Nats-Sequence": str(seq)},
        )
    await until(lambda: len(heard) == 2)
    assert [seq for seq, _ in heard] == [1, 3]
    assert heard[0][1].body == heard[1][1].body == NodeAdmitted(node="n1", incarnation=1)
    assert transport.publish(AgentStopped(node="n1", reason="test"))
    assert await transport.flush(10)
    running.cancel()
    await asyncio.wait({running})
