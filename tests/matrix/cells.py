"""The fault matrix: who is hit, how, and at which step of a fact's way to a command.

In every cell a worker is killed. Its agent tells the log, the leader opens an incident and orders
another life of the worker. A tap holds the message of one step; then somebody is killed, stopped or
started again; what was held goes on once the others have noticed; and in the end all is well.
"""

import asyncio
import os
import signal
from enum import StrEnum
from typing import NamedTuple

from tests.matrix.lane import NODE, WORKER
from unicron.events import AgentStarted, IncidentOpened, WorkerExited, subjects

_FACT, _DECISION, _COMMAND = "worker.exited", "incident.opened", "worker.start_ordered"
_ORDERED = subjects.order("fleet", "node", NODE)
#: Longer than the lease, and than what makes a node suspected.
_AWAY_S = 2.3
#: Shorter than the lease: what holds a message of the leader holds its renewals, too.
_PAUSE_S = 0.7
_LIMIT_S = 30.0


class Step(StrEnum):
    """What is held. In this order they come."""

    APPEND = "append"  # the fact, before the log has it
    ACKNOWLEDGE = "acknowledge"  # the log's answer to the agent
    FOLD = "fold"  # the fact, before the control plane has it
    DECIDE = "decide"  # the decision, before the log has it
    CONFIRM = "confirm"  # the log's answer to the leader
    READ_BACK = "read back"  # the decision, before the control plane has it
    COMMAND = "command"  # the order, before the agent has it


_AT_THE_AGENT = (Step.APPEND, Step.ACKNOWLEDGE, Step.COMMAND)


class Victim(StrEnum):
    SERVER = "server"
    LEADER = "leader"
    FOLLOWER = "follower"
    PUBLISHER = "publisher"


class Fault(StrEnum):
    """RESTART: killed, and begun again at once. KILL: begun again once others have noticed."""

    KILL = "kill"
    STOP = "stop"
    RESTART = "restart"


class Cell(NamedTuple):
    step: Step
    victim: Victim
    fault: Fault

    def __str__(self):
        return f"{self.fault} {self.victim} at {self.step}"


#: Nobody notices a follower: to begin again sooner or later is one and the same.
CELLS = [
    Cell(step, victim, fault)
    for victim in Victim
    for fault in Fault
    for step in Step
    if (victim, fault) != (Victim.FOLLOWER, Fault.RESTART)
]


async def tried(lane, cell):
    """Try it on a lane that rests; it rests again."""
    await Trial(lane, cell).run()


class Trial:
    def __init__(self, lane, cell):
        self.lane = lane
        self.cell = cell
        self.leader = lane.state.leader
        self.follower = lane.other(self.leader)
        self.term = lane.state.term
        self.begins = lane.state.seq
        self.lives = len(lane.bodies(AgentStarted))
        self.worker = lane.state.workers[WORKER].incarnation

    async def run(self):
        lane = self.lane
        self.catch = self.arm()
        os.kill(lane.pid(WORKER), signal.SIGKILL)
        await asyncio.wait_for(self.catch.caught.wait(), _LIMIT_S)
        await self.check_step()
        if self.cell.victim is Victim.SERVER:
            await self.hit_server()
        else:
            await self.hit()
        await lane.until(lambda: lane.state.workers[WORKER].incarnation > self.worker)
        await lane.rests()
        self.check_outcome()

    # --- The step ---------------------------------------------------------------------------------

    def arm(self):
        taps, victim = self.lane.taps, self.cell.victim
        agent, leader = taps[NODE], taps[self.leader]
        reader = taps[self.follower] if victim is Victim.FOLLOWER else leader
        match self.cell.step:
            case Step.APPEND:
                return agent.catch(lambda f: f.up and f.holds(_FACT))
            case Step.ACKNOWLEDGE:
                return agent.catch_answer(lambda f: f.holds(_FACT))
            case Step.FOLD:
                return reader.catch(lambda f: not f.up and f.holds(_FACT))
            case Step.DECIDE:
                return leader.catch(lambda f: f.up and f.holds(_DECISION))
            case Step.CONFIRM:
                return leader.catch_answer(lambda f: f.holds(_DECISION))
            case Step.READ_BACK:
                return reader.catch(lambda f: not f.up and f.holds(_DECISION))
            case Step.COMMAND:
                return agent.catch(
                    lambda f: not f.up and f.subject == _ORDERED and f.holds(_COMMAND)
                )

    async def check_step(self):
        """The log stands where it must when this is held; so the fault comes at that step."""
        lane, step = self.lane, self.cell.step
        await lane.seen()
        new = [r.envelope.body for r in lane.entries[self.begins :] if r.envelope is not None]
        fact = any(isinstance(body, WorkerExited) for body in new)
        decided = any(isinstance(body, IncidentOpened) for body in new)
        assert fact is (step is not Step.APPEND), self.cell
        if step in (Step.CONFIRM, Step.READ_BACK, Step.COMMAND):
            assert decided, self.cell
        elif self.cell.victim is not Victim.FOLLOWER and step is not Step.ACKNOWLEDGE:
            assert not decided, self.cell
        assert lane.state.leader == self.leader

    # --- The fault --------------------------------------------------------------------------------

    async def hit_server(self):
        server, fault = self.lane.server, self.cell.fault
        pid = server.pid
        if fault is Fault.STOP:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(_AWAY_S)
            assert _is_stopped(pid)
            self.catch.release()
            os.kill(pid, signal.SIGCONT)
            return
        await server.kill()
        assert server.pid is None
        if fault is Fault.KILL:
            await asyncio.sleep(_AWAY_S)
        self.catch.release()
        await server.start()

    async def hit(self):
        names = {Victim.LEADER: self.leader, Victim.FOLLOWER: self.follower}
        name = names.get(self.cell.victim, NODE)
        process = await self.lane.process(name)
        if self.cell.fault is Fault.STOP:
            process.send_signal(signal.SIGSTOP)
            await self.noticed(name)
            assert _is_stopped(process.pid)
            self.catch.release()
            await asyncio.sleep(0)  # it is on its way
            process.send_signal(signal.SIGCONT)
            return
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        if self.cell.fault is Fault.RESTART:
            await self.begin(name)
        await self.noticed(name)
        self.catch.release()
        if self.cell.fault is Fault.KILL:
            await self.begin(name)

    async def begin(self, name):
        if name == NODE:
            self.lane.begin(name)
        else:
            await self.lane.begin_control(name)

    async def noticed(self, name):
        """The others have noticed: somebody leads anew, or the agent's next life has said that it
        is there. What nobody has to notice takes a moment."""
        lane, fault = self.lane, self.cell.fault
        if self.cell.victim is Victim.LEADER:
            await lane.until(lambda: lane.state.term > self.term)
        elif self.cell.victim is Victim.PUBLISHER and fault is Fault.RESTART:
            await lane.until(lambda: len(lane.bodies(AgentStarted)) > self.lives)
        elif self.cell.victim is Victim.PUBLISHER and self.cell.step in _AT_THE_AGENT:
            await asyncio.sleep(_AWAY_S)
        else:
            await asyncio.sleep(_PAUSE_S)

    def check_outcome(self):
        lane, step = self.lane, self.cell.step
        if self.cell.victim is not Victim.LEADER:
            return
        assert lane.state.term > self.term
        if self.cell.fault is not Fault.RESTART:
            assert lane.state.leader == self.follower
        if step is Step.DECIDE:  # it came after another one's leadership
            late = self.catch.frame.id
            assert late not in {recorded.id for recorded in lane.entries}
            assert self.cell.fault is not Fault.STOP or late in lane.taps[self.leader].refused


def _is_stopped(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
