"""A process that has imported torch and Megatron once and forks members on request.

Run as a script. It reads one JSON object per line from standard input: ``{"connect": PATH}``. The
fork connects to that Unix socket and obeys the commands that come over it (see `crew.Member`). At
the end of the input it kills what it forked.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import traceback


class Interrupted(Exception):
    """Stands for the exception the shim's loop raises out of the phase callback."""


class Member:
    """Runs in a fork: one connection, one trainer, commands in their order, `shut` at once."""

    def __init__(self, connection):
        self.connection = connection
        self.commands = []
        self.ready = threading.Condition()
        self.stops = []
        self.phases = []
        self.trainer = None
        self.connections = None
        self.lock = threading.Lock()

    def say(self, **message):
        with self.lock:
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def read(self):
        """A thread: the test's end of the connection is our life line."""
        for line in self.connection.makefile():
            message = json.loads(line)
            if message["command"] == "shut":
                self.say(shut=self.connections.shut(*message["args"]))
            else:
                with self.ready:
                    self.commands.append(message)
                    self.ready.notify()
        os._exit(0)

    def obey(self):
        threading.Thread(target=self.read, daemon=True).start()
        self.say(pid=os.getpid())
        while True:
            with self.ready:
                self.ready.wait_for(lambda: self.commands)
                message = self.commands.pop(0)
            try:
                self.say(value=getattr(self, message["command"])(*message["args"]))
            except Exception as error:
                self.say(
                    error=type(error).__name__, text=str(error), traceback=traceback.format_exc()
                )

    # --- Commands ---

    def build(self, spec):
        import msgspec

        from unicron.events.task import TaskSpec
        from unicron.worker_shim.megatron.trainer import Trainer
        from unicron.worker_shim.unblock import Connections

        self.connections = Connections()
        task = msgspec.convert(spec, TaskSpec)
        self.trainer = Trainer(task, self.phase, self.connections)
        return self.trainer.parameters

    def do(self, name, *args):
        """Call a method of the trainer."""
        return getattr(self.trainer, name)(*args)

    def look(self, *names):
        """Attributes of the trainer."""
        return [getattr(self.trainer, name) for name in names]

    def stop_at(self, action, phase, skip=0):
        """At the next entry of `phase` but `skip`: "kill" or "stop" ourselves, or "interrupt"."""
        self.stops.append([action, phase, skip])

    def kill_at_send(self, count):
        """SIGKILL ourselves instead of the isend number `count`, counted from now, from 0."""
        import torch.distributed as dist

        left = [count]
        original = dist.isend

        def isend(*args, **kwargs):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return original(*args, **kwargs)

        dist.isend = isend

    def stop_at_group(self, count):
        """SIGSTOP ourselves in the middle of entering a generation, before group `count` of it."""
        import torch.distributed as dist

        left = [count]
        original = dist.new_group

        def new_group(*args, **kwargs):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
            left[0] -= 1
            return original(*args, **kwargs)

        dist.new_group = new_group

    def debug(self):
        """Stacks of all threads on SIGUSR1, to standard error."""
        faulthandler.register(signal.SIGUSR1)

    def parameters(self):
        return self.trainer.parameters

    def forward_passes(self):
        return sum(phase == "forward" for phase, _ in self.phases)

    def flip_a_bit(self):
        """In the reduced gradient."""
        import torch

        self.trainer._built.buffers[0].view(torch.int32)[5] ^= 1

    def stock_reduction(self):
        """Megatron's own all-reduce, of everything this member has added up."""
        from megatron.core.distributed import DistributedDataParallel

        trainer, ddp = self.trainer, self.trainer._built.ddp

        def finish_grad_sync(force_all_reduce=False):
            for index, buffer in enumerate(trainer._built.buffers):
                buffer.zero_()
                for sums in trainer._held.sums.values():
                    buffer.add_(sums[index])
            DistributedDataParallel.finish_grad_sync(ddp)

        ddp.finish_grad_sync = finish_grad_sync

    def run(self, function, *args):
        """Call ``module:function`` here."""
        module, _, name = function.partition(":")
        return getattr(importlib.import_module(module), name)(self, *args)

    def host_store(self):
        """Host a store from now on; the answer is its port."""
        from unicron.worker_shim.store import host_store

        host_store("127.0.0.1", lambda port: self.say(value=port))

    # --- The phase callback ---

    def phase(self, phase, micro_batch=-1):
        self.phases.append((phase, micro_batch))
        for stop in self.stops:
            if stop[1] == phase:
                if stop[2]:
                    stop[2] -= 1
                    continue
                self.stops.remove(stop)
                if stop[0] == "interrupt":
                    raise Interrupted(phase)
                # The kill is asked for from elsewhere in life: let messages under way leave first.
                os.kill(os.getpid(), getattr(signal, f"SIG{stop[0].upper()}"))


def fork(path):
    pid = os.fork()
    if pid:
        return pid
    with contextlib.suppress(BaseException):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        os.close(0)
        Member(connection).obey()
    os._exit(1)


def main():
    import warnings

    from unicron.worker_shim.preload import preload, set_environment

    set_environment(tempfile.gettempdir())
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # what it warns of is what we test
    warnings.simplefilter("ignore")
    preload("megatron", "unicron.worker_shim.megatron.trainer:Trainer")
    print("ready", flush=True)
    children = set()
    for line in sys.stdin:
        children.add(fork(json.loads(line)["connect"]))
        with contextlib.suppress(ChildProcessError):
            while (gone := os.waitpid(-1, os.WNOHANG)[0]) > 0:
                children.discard(gone)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
