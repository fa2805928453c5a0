"""The demo says when what all wait for stands still."""

import os
import signal
import subprocess
import sys
import time

import pytest

from unicron.controlplane.local import processes
from unicron.controlplane.local.silence import SILENT_S, Silence, Watched

_BUSY = "import time\nwhile True: time.sleep(0.005)"


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", _BUSY])
    yield process
    process.kill()
    process.wait()


def until(holds):
    limit = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.01)


def stopped(process):
    found = processes.activity(process.pid)
    return found is not None and found[0]


@pytest.mark.parametrize("busy", [True, False])
def test_one_that_was_stopped_is_named_with_its_cure(child, busy):
    told = []
    silence = Silence(told.append)
    watched = Watched(name="the control plane", pid=child.pid, busy=busy)
    silence.look(watched, 100.0)
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: stopped(child))
    silence.look(watched, 100.0)  # it may have done something until it was stopped
    silence.look(watched, 99.9 + SILENT_S, 1000.0)
    assert told == []
    for later in (4.0, 5.0, 6.0):
        silence.look(watched, 100.0 + later, 1000.0)
    line, limit = told
    assert line.startswith("nothing heard from the control plane for 4 s")
    assert f"kill -CONT {child.pid}" in line
    assert limit == "waiting for the control plane 896 s at most"
    os.kill(child.pid, signal.SIGCONT)
    until(lambda: not stopped(child))
    before = processes.activity(child.pid)
    until(lambda: processes.activity(child.pid) != before)
    silence.look(watched, 110.0)
    assert told[2:] == ["the control plane is heard again, after 10 s"]


def test_one_with_nothing_to_do_is_silent_only_if_it_should_have_something():
    told = []
    silence = Silence(told.append)
    idle = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        until(lambda: _sleeps(idle.pid))
        for now in (100.0, 101.0, 105.0):
            silence.look(Watched(name="nats-server", pid=idle.pid, busy=False), now)
        assert told == []
        for now in (100.0, 101.0, 105.0):
            silence.look(Watched(name="the control plane", pid=idle.pid, busy=True), now)
        assert told == [
            f"nothing heard from the control plane for 5 s: its process {idle.pid} stands still"
        ]
    finally:
        idle.kill()
        idle.wait()
    silence.look(Watched(name="the control plane", pid=idle.pid, busy=True), 120.0)
    assert len(told) == 1  # that it has ended is for others to tell


def _sleeps(pid):
    """It has come to its long sleep: nothing changes any more."""
    before = processes.activity(pid)
    time.sleep(0.2)
    return before == processes.activity(pid)
