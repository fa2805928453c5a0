"""Guarantee: what a leader of old still says has no effect, however late it comes. Its message is
held on the wire while it is stopped and another one leads and gives the same order."""

import os
import signal

import pytest

from tests.matrix.lane import NODE, WORKER, Lane
from tests.real.world import short_folder
from unicron.events import GenerationClosed, WorkerStarted, subjects

pytestmark = pytest.mark.real

_START, _CLOSE = "worker.start_ordered", "generation.closed"


@pytest.fixture
async def lane():
    with short_folder() as folder:
        async with Lane(folder) as made:
            yield made


async def stopped_while_it_says_again(lane, node, kind, subject):
    """A worker is killed. The order that follows doesn't get to `node`; the leader says it again,
    and is stopped before that is on its way. What is held, once another one leads."""

    def order(frame):
        return frame.subject == subject and frame.holds(kind)

    leader, term = lane.state.leader, lane.state.term
    first = lane.taps[node].catch(lambda f: not f.up and order(f))
    again = lane.taps[leader].catch(lambda f: f.up and order(f))
    os.kill(lane.pid(WORKER), signal.SIGKILL)
    await first.caught.wait()
    first.lose()
    await again.caught.wait()
    lane.signal(leader, signal.SIGSTOP)
    await lane.until(lambda: lane.state.term > term)
    return leader, again


async def test_an_agent_refuses_a_start_order(lane):
    life = lane.state.workers[WORKER].incarnation + 1
    old, held = await stopped_while_it_says_again(
        lane, NODE, _START, subjects.order("fleet", "node", NODE)
    )
    await lane.until(lambda: lane.state.workers[WORKER].incarnation == life)
    await lane.until(lambda: lane.state.workers[WORKER].begun)
    assert "is older than" not in log_of(lane)
    held.release()
    await lane.until(lambda: "is older than" in log_of(lane))
    lane.signal(old, signal.SIGCONT)
    await lane.rests()
    assert [b.incarnation for b in lane.bodies(WorkerStarted) if b.worker == WORKER].count(
        life
    ) == 1
    await lane.check()


def log_of(lane):
    return (lane.folder / f"{NODE}.log").read_text()


async def test_a_member_refuses_a_close(lane):
    """It answered the close that the new leader said again, and was ordered on in a newer term."""
    closed = len(lane.bodies(GenerationClosed))
    old, held = await stopped_while_it_says_again(
        lane, "n2", _CLOSE, subjects.order("fleet", "task", "gpt")
    )
    await lane.until(lambda: lane.state.tasks["gpt"].phase == "running")
    assert refused(lane) == 0
    held.release()
    await lane.until(lambda: refused(lane) == 1)
    lane.signal(old, signal.SIGCONT)
    await lane.rests()
    assert len(lane.bodies(GenerationClosed)) == closed + 1
    await lane.check()


def refused(lane):
    """Orders of an older term that the member on n2 has refused."""
    return (lane.folder / "run" / "n2" / "w0.1.log").read_text().count("refused")
