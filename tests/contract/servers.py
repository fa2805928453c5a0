"""Three nats-servers that keep a stream together: on this machine, or each on a host of its own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from unicron.controlplane.runtime.natsserver import _die_with_parent, find_nats_server
from unicron.events import UnicronError

_CONFIG = """\
server_name: "{name}"
listen: "{host}:{port}"
ping_interval: "1s"
ping_max: 2
jetstream {{ store_dir: "{root}" }}
cluster {{ name: "three", listen: "{host}:{route}", routes: [{routes}] }}
"""
_LIMIT_S = 30.0


def why_not() -> str:
    """Why there can be none here; "" if there can."""
    try:
        find_nats_server()
    except UnicronError as error:
        return str(error)
    return ""


class Trio:
    """Begun with start(), ended with stop(). Servers are counted from 0.

    `hosts`: where they listen. `entered`: what goes before the command of one so that it runs
    there, by its number."""

    def __init__(self, hosts=("127.0.0.1",) * 3, entered=lambda number: ()):
        self.root = Path(tempfile.mkdtemp(prefix="unicron-"))
        self.hosts, self._entered = hosts, entered
        self.ports = _free_ports(6)
        self._running = {}

    @property
    def url(self):
        return ",".join(self.address(number) for number in range(3))

    def address(self, number):
        """Of one server."""
        return f"nats://{self.hosts[number]}:{self.ports[number]}"

    def start(self):
        for number in range(3):
            self.start_one(number)
        return self

    def start_one(self, number):
        others = [other for other in range(3) if other != number]
        routes = [f"nats://{self.hosts[other]}:{self.ports[3 + other]}" for other in others]
        config = self.root / f"s{number}.conf"
        config.write_text(
            _CONFIG.format(
                name=f"s{number}",
                host=self.hosts[number],
                port=self.ports[number],
                root=self.root / f"s{number}",
                route=self.ports[3 + number],
                routes=", ".join(f'"{route}"' for route in routes),
            )
        )
        with (self.root / f"s{number}.log").open("ab") as log:
            self._running[number] = subprocess.Popen(
                [*self._entered(number), find_nats_server(), "-c", str(config)],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent(),  # noqa: PLW1509 - the main thread has no other yet
            )
        _await_port(self.hosts[number], self.ports[number])

    def kill(self, name):
        """SIGKILL to the server of that name (s0, s1, s2)."""
        server = self._running.pop(int(name[1:]))
        server.kill()
        server.wait()

    def stop(self):
        for server in self._running.values():
            server.send_signal(signal.SIGKILL)
        for server in self._running.values():
            server.wait()
        shutil.rmtree(self.root, ignore_errors=True)


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def _await_port(host, port):
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"no server at {host}:{port} (pid {os.getpid()})")
