"""A private nats-server with the cluster's stream, that can be killed and started again."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from pathlib import Path

import nats
from nats.js.api import RePublish, StreamConfig

from unicron.events import codec, subjects

CLUSTER = "c"


def binary():
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NatsServer:
    """Port and store stay the same over `kill` and `start`. `extra`: more of its configuration."""

    def __init__(self, folder: Path):
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self.process = None
        self.extra = ""

    def start(self):
        config = self.folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{\n  store_dir: "{self.folder}/js"\n}}\n'
            + self.extra
        )
        with (self.folder / "nats.log").open("ab") as log:
            self.process = subprocess.Popen(
                [binary(), "-c", str(config)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        until = time.monotonic() + 15
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return self
            assert self.process.poll() is None, (self.folder / "nats.log").read_text()[-2000:]
            assert time.monotonic() < until, "nats-server doesn't listen"
            time.sleep(0.01)

    def kill(self, number=signal.SIGKILL):
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(10)
            self.process = None

    async def connect(self):
        return await nats.connect(self.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05)

    async def make_stream(self, name=None, covers=None):
        """The stream as the control plane makes it, as far as agents and workers notice; or
        another one, of other subjects."""
        republish = RePublish(src=f"unicron.{CLUSTER}.control.>", dest=f"unicron-order.{CLUSTER}.>")
        config = StreamConfig(
            name=name or subjects.stream_name(CLUSTER),
            subjects=covers or subjects.stream_subjects(CLUSTER),
            republish=None if name else republish,
        )
        client = await self.connect()
        try:
            await client.jetstream().add_stream(config)
        finally:
            await client.close()

    async def payloads(self, stream, at_least):
        """All payloads of a small stream, if there are so many."""
        client = await self.connect()
        try:
            context = client.jetstream()
            last = (await context.stream_info(stream)).state.last_seq
            if last < at_least:
                return []
            return [(await context.get_msg(stream, seq)).data for seq in range(1, last + 1)]
        finally:
            await client.close()

    async def stored(self, subject=f"unicron.{CLUSTER}.>"):
        """All messages stored under the subject: (message id, JSON body), in order."""
        client = await self.connect()
        try:
            stream = client.jetstream()
            info = await stream.stream_info(subjects.stream_name(CLUSTER))
            if info.state.messages == 0:
                return []
            found = []
            reader = await stream.subscribe(subject, ordered_consumer=True)
            while True:
                try:
                    message = await reader.next_msg(timeout=2)
                except TimeoutError:
                    break
                found.append((message.headers["Nats-Msg-Id"], json.loads(message.data)))
                if message.metadata.num_pending == 0:
                    break
            return found
        finally:
            await client.close()

    async def order(self, kind, name, envelope):
        """Append a decision as the leader does; the server republishes it. Its sequence."""
        client = await self.connect()
        try:
            ack = await client.jetstream().publish(
                subjects.control(CLUSTER, kind, name),
                codec.encode(envelope),
                headers={"Nats-Msg-Id": envelope.id},
            )
            return ack.seq
        finally:
            await client.close()

    async def say_again(self, sequence):
        """Repeat an order that stands in the log; its subject there and its bytes."""
        client = await self.connect()
        try:
            stream = subjects.stream_name(CLUSTER)
            stored = await client.jetstream().get_msg(stream, sequence)
            order = subjects.order_of(stored.subject)
            await client.publish(order, stored.data, headers={"Nats-Sequence": str(sequence)})
            await client.flush()
            return stored.subject, stored.data
        finally:
            await client.close()


async def until(condition, limit_s=15.0, what="the condition"):
    """Wait for `condition()`, which may be a coroutine function, to be true; return it."""
    end = time.monotonic() + limit_s
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"{what} did not come in {limit_s} s"
        await asyncio.sleep(0.02)


def is_alive(pid):
    """The process exists and isn't a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def alive_with(text):
    """Pids of living processes whose command line or title contains `text`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and is_alive(entry):
            with contextlib.suppress(OSError), open(f"/proc/{entry}/cmdline", "rb") as file:
                if text.encode() in file.read() and int(entry) != os.getpid():
                    found.append(int(entry))
    return found
