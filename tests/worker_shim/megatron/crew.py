"""The test's side of forked members: start commands, collect results, each wait with a limit."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unicron.events.gradient_tree import assign

REPO = Path(__file__).resolve().parents[3]
LIMIT_S = 30.0


class Gone(Exception):
    """The member's process ended."""


class Failed(Exception):
    """A command raised. `kind` is the exception's name; the text has the member's traceback."""

    def __init__(self, message):
        super().__init__(message["traceback"])
        self.kind = message["error"]


class Member:
    """A forked process. A command goes out with `start`; `finish` waits for its result."""

    def __init__(self, connection):
        self.connection = connection
        self._received = b""
        self._messages = []
        self.pid = self._next("pid")["pid"]

    def start(self, command, *args):
        line = json.dumps({"command": command, "args": args}) + "\n"
        with contextlib.suppress(BrokenPipeError):  # `finish` will tell
            self.connection.sendall(line.encode())

    def finish(self, limit_s=LIMIT_S):
        """The result of the oldest command not finished. Gone, or Failed with its exception."""
        message = self._next("value", "error", limit_s=limit_s)
        if "error" in message:
            raise Failed(message)
        return message["value"]

    def call(self, command, *args):
        self.start(command, *args)
        return self.finish()

    def do(self, method, *args):
        return self.call("do", method, *args)

    def look(self, *names):
        values = self.call("look", *names)
        return values if len(names) > 1 else values[0]

    def shut(self, generation):
        """From another thread of the member, at once: the connections it shut."""
        self.start("shut", generation)
        return self._next("shut")["shut"]

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.connection.close()

    def _next(self, *kinds, limit_s=LIMIT_S):
        """The oldest message of these kinds; `shut` is answered out of turn."""
        while True:
            for message in self._messages:
                if any(kind in message for kind in kinds):
                    self._messages.remove(message)
                    return message
            self._messages.append(self._read(limit_s))

    def _read(self, limit_s):
        end = time.monotonic() + limit_s
        while b"\n" not in self._received:
            self.connection.settimeout(max(0.001, end - time.monotonic()))
            try:
                more = self.connection.recv(1 << 16)
            except TimeoutError:
                raise AssertionError(f"member {self.pid}: no answer in {limit_s} s") from None
            except ConnectionError:
                more = b""
            if not more:
                raise Gone
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)


class Forker:
    """The process that forks; started once for the session."""

    def __init__(self, folder):
        self._path = str(folder / "members")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen()
        self._listener.settimeout(LIMIT_S)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPO,
            env={**os.environ, "PYTHONPATH": str(REPO)},
        )
        assert self._process.stdout.readline() == "ready\n"

    def fork(self):
        self._process.stdin.write(json.dumps({"connect": self._path}) + "\n")
        self._process.stdin.flush()
        return Member(self._listener.accept()[0])

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.close()


class Crew:
    """Members of one task and their store."""

    def __init__(self, forker):
        self._forker = forker
        self.members = []
        self.generation = 0
        store = self._fork()
        store.start("host_store")
        self.port = store.finish()

    def _fork(self):
        member = self._forker.fork()
        self.members.append(member)
        return member

    def build(self, count, spec, *, start=True):
        """New members that have built `spec`, and have its initial state with `start`."""
        new = [self._fork() for _ in range(count)]
        together(new, "build", spec)
        if start:
            together(new, "do", "start")
        return new

    def enter(self, members, limit_s=10.0):
        """The next generation, members ranked as listed; who has left before just enters."""
        self.generation += 1
        for rank, member in enumerate(members):
            member.start(
                "do",
                "regroup",
                self.generation,
                rank,
                len(members),
                "127.0.0.1",
                self.port,
                limit_s,
            )
        for member in members:
            member.finish()

    def switch(self, old, new):
        """A planned change of members at an iteration boundary."""
        together(old, "do", "farewell", 5.0)
        together(old, "do", "leave")
        self.enter(new)

    def close(self):
        for member in self.members:
            member.kill()


def iterate(members, micro_batches):
    """One undisturbed iteration: digest of the state, which is everyone's, and the mean loss."""
    shares = assign(micro_batches, len(members))
    for member, share in zip(members, shares, strict=True):
        member.start("do", "compute", share)
        member.start("do", "reduce", shares)
        member.start("do", "vote", 0)
        member.start("do", "step")
        member.start("do", "state_digest")
    results = [[member.finish() for _ in range(5)][3:] for member in members]
    assert all(result == results[0] for result in results)
    loss, digest = results[0]
    return digest, loss.hex()


def together(members, command, *args):
    """The same command on all at once; their results."""
    for member in members:
        member.start(command, *args)
    return [member.finish() for member in members]


def broken(member, limit_s=5.0):
    """The running command ends with CollectiveBroken."""
    with pytest.raises(Failed) as failure:
        member.finish(limit_s)
    assert failure.value.kind == "CollectiveBroken", failure.value


def abandon(members, generation):
    """As a control plane does after a fault: shut the generation, so that whoever is in a
    collective is freed; collect the broken commands; all leave."""
    for member in members:
        member.shut(generation)
    for member in members:
        broken(member)
    together(members, "do", "leave")
