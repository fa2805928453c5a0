"""Three nats-servers on this machine that keep a stream together."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from unicron.controlplane.runtime.natsserver import find_nats_server
from unicron.events import UnicronError

_CONFIG = """\
server_name: "{name}"
listen: "127.0.0.1:{port}"
ping_interval: "1s"
ping_max: 2
jetstream {{ store_dir: "{root}" }}
cluster {{ name: "three", listen: "127.0.0.1:{route}", routes: [{routes}] }}
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
    """Begun with start(), ended with stop(). Servers are counted from 0."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="unicron-"))
        self.ports = _free_ports(6)
        self._running = {}

    @property
    def url(self):
        return ",".join(f"nats://127.0.0.1:{port}" for port in self.ports[:3])

    def start(self):
        for number in range(3):
            self.start_one(number)
        return self

    def start_one(self, number):
        routes = [f"nats://127.0.0.1:{p}" for i, p in enumerate(self.ports[3:]) if i != number]
        config = self.root / f"s{number}.conf"
        config.write_text(
            _CONFIG.format(
                name=f"s{number}",
                port=self.ports[number],
                root=self.root / f"s{number}",
                route=self.ports[3 + number],
                routes=", ".join(f'"{route}"' for route in routes),
            )
        )
        with (self.root / f"s{number}.log").open("ab") as log:
            self._running[number] = subprocess.Popen(
                [find_nats_server(), "-c", str(config)], stdout=log, stderr=log
            )
        _await_port(self.ports[number])

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


def _await_port(port):
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"no server at port {port} (pid {os.getpid()})")
