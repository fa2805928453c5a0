"""The fork server: a process with one thread that has everything imported and forks on request.

    python -m unicron.worker_shim.forkserver --socket PATH --title TITLE

It is apart from the agent, so that an agent's death leaves the workers alone, and so that what
the agent does (threads, sockets, a store) can't spoil the forks. It reaps its children, tells
its clients at once, and keeps a file ``<pid>.status`` beside its socket for each end.
"""

import argparse
import contextlib
import gc
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import setproctitle

from unicron.events.errors import ConfigError, UnicronError
from unicron.worker_shim import forkchild, forkprotocol
from unicron.worker_shim.forkprotocol import Child, Exited, Hello, Kind, Reply
from unicron.worker_shim.forksocket import Client, Clients, listen
from unicron.worker_shim.preload import MODES, preload, set_environment
from unicron.worker_shim.process import die_with_parent, thread_count

_END_LIMIT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a fork server runs; a forked one inherits all but socket, title and grace.

    `entry`: ``module:function`` that is a worker's main. `store_entry`: "" or what hosts the
    store instead of ours.
    """

    socket: str
    title: str
    grace_s: float
    preload: str
    entry: str
    store_entry: str


class ForkServer:
    def __init__(self, options: Options) -> None:
        """Listen. Raises ConfigError if the socket's place is unfit or taken."""
        self._options = options
        self._listener = listen(options.socket)
        self._children: dict[int, Child] = {}
        self._unreported: list[Exited] = []
        self._pending: dict[int, tuple[Client, Reply]] = {}  # by pipe, until the child is ready
        self._status_files: list[str] = []
        self._ending = False
        self._selector = selectors.DefaultSelector()
        self._clients = Clients(self._selector, self._answer)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)

    def serve(self) -> None:
        """Run until told to end, or until nobody has been connected for the grace period."""
        for number in forkchild.SERVER_SIGNALS:
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        while not self._ending:
            ready = self._selector.select(self._wait_s())
            for key, events in ready:
                key.data(key.fd, events)
            self._reap()
            if not self._clients.connected and self._wait_s() == 0:
                print(f"{self._options.title}: no client for the grace period, ending", flush=True)
                break
        self._end()

    # --- The loop's parts ------------------------------------------------------------------------

    def _wait_s(self) -> float | None:
        if self._clients.connected:
            return None
        return max(0.0, self._clients.alone_since + self._options.grace_s - time.monotonic())

    def _on_signal(self, number: int, _: object) -> None:
        if number != signal.SIGCHLD:
            self._ending = True

    def _woken(self, *_: int) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass

    def _accept(self, *_: int) -> None:
        client = self._clients.accept(self._listener)
        exits, self._unreported = tuple(self._unreported), []
        hello = Hello(
            pid=os.getpid(),
            title=self._options.title,
            preload=self._options.preload,
            children=tuple(self._children.values()),
            exits=exits,
        )
        self._clients.say(client, hello)

    # --- Requests --------------------------------------------------------------------------------

    def _answer(self, client: Client, data: bytes) -> None:
        try:
            request = forkprotocol.decode_request(data)
        except msgspec.DecodeError as error:
            self._clients.say(client, Reply(id=-1, error=f"the request can't be read: {error}"))
            return
        try:
            reply = self._do(client, request)
        except (OSError, UnicronError) as error:
            reply = Reply(id=request.id, error=str(error))
        if reply is not None:
            self._clients.say(client, reply)

    def _do(self, client: Client, request: forkprotocol.AnyRequest) -> Reply | None:
        """Carry out one request. None: the reply comes when the child is ready."""
        options = self._options
        match request:
            case forkprotocol.StartWorker(launch=launch):
                child = Child(
                    pid=0,
                    kind=Kind.WORKER,
                    name=launch.worker,
                    incarnation=launch.incarnation,
                    task=launch.spec.task,
                )
                for living in self._children.values():
                    if _with_pid(living, 0) == child:
                        return Reply(id=request.id, pid=living.pid)
                pid = self._fork(child, lambda: forkchild.worker_body(launch, options.entry))
                return Reply(id=request.id, pid=pid)
            case forkprotocol.StartStore():
                child = Child(pid=0, kind=Kind.STORE, name=request.node)
                self._fork_and_wait(
                    client,
                    request.id,
                    child,
                    lambda report: forkchild.store_body(request, options.store_entry, report),
                )
                return None
            case forkprotocol.StartForkServer(socket=path, title=title, grace_s=grace_s):
                child = Child(pid=0, kind=Kind.FORK_SERVER, name=path)
                heir = replace(options, socket=path, title=title, grace_s=grace_s)
                self._fork_and_wait(client, request.id, child, lambda report: _serve(heir, report))
                return None
            case forkprotocol.CallFunction():
                child = Child(pid=0, kind=Kind.CALL, name=request.function)
                pid = self._fork(child, lambda: forkchild.call_body(request))
                return Reply(id=request.id, pid=pid)
            case forkprotocol.Kill():
                if request.pid in self._children:  # not reaped yet, so the pid is still its own
                    os.kill(request.pid, request.signal)
                return Reply(id=request.id, pid=request.pid)
            case forkprotocol.Shutdown():
                self._ending = True
                return Reply(id=request.id, pid=os.getpid())

    # --- Children --------------------------------------------------------------------------------

    def _fork(self, child: Child, body: Callable[[], int | None]) -> int:
        """Fork; the child runs `body` and ends. Raises ConfigError if this process has threads."""
        threads = thread_count()
        if threads != 1:
            raise ConfigError(
                f"the fork server has {threads} threads and can't fork safely",
                why="something it imported or ran started them",
                fix="import less: see unicron.worker_shim.preload",
                code="E-FORK-THREADS",
            )
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, forkchild.SERVER_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._close_descriptors()
                forkchild.run_child(body)
            self._children[pid] = _with_pid(child, pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, forkchild.SERVER_SIGNALS)
        return pid

    def _fork_and_wait(
        self,
        client: Client,
        request_id: int,
        child: Child,
        body: Callable[[forkchild.Report], int | None],
    ) -> None:
        """Fork a child that reports a number when it is ready; the reply is sent then."""
        read, write = os.pipe2(os.O_CLOEXEC)

        def report(number: int) -> None:
            os.write(write, b"%d\n" % number)
            os.close(write)
            os.close(read)  # the server's end, inherited

        try:
            pid = self._fork(child, lambda: body(report))
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._pending[read] = client, Reply(id=request_id, pid=pid)
        self._selector.register(read, selectors.EVENT_READ, self._ready)

    def _ready(self, fd: int, _: int) -> None:
        client, reply = self._pending.pop(fd)
        data = os.read(fd, 64)
        self._selector.unregister(fd)
        os.close(fd)
        if data:
            reply = msgspec.structs.replace(reply, port=int(data))
            if (child := self._children.get(reply.pid)) is not None:
                self._children[reply.pid] = msgspec.structs.replace(child, port=reply.port)
        else:
            reply = msgspec.structs.replace(
                reply, error="it ended before it was ready; see its log"
            )
        self._clients.say(client, reply)

    def _close_descriptors(self) -> None:
        """In the child: give back all that is the server's."""
        self._selector.close()
        self._listener.close()
        self._clients.close_descriptors()
        for fd in (self._wake_read, self._wake_write, *self._pending):
            os.close(fd)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._children:
                self._report(_exited(self._children.pop(pid), status))

    def _report(self, exited: Exited) -> None:
        path = os.path.join(os.path.dirname(self._options.socket), f"{exited.pid}.status")
        try:
            with open(path, "wb") as file:
                file.write(forkprotocol.line(exited))
            self._status_files.append(path)
        except OSError as error:  # a full disk must not keep the agent from hearing of it
            print(f"{self._options.title}: {path}: {error}", file=sys.stderr, flush=True)
        self._clients.say_to_all(exited)
        if not self._clients.connected:  # checked after: a client that had gone is dropped now
            self._unreported.append(exited)

    def _end(self) -> None:
        """Kill the children, tell of it, leave nothing. Forked fork servers live on their own."""
        for child in list(self._children.values()):
            if child.kind != Kind.FORK_SERVER:
                os.kill(child.pid, signal.SIGKILL)
        until = time.monotonic() + _END_LIMIT_S
        while any(child.kind != Kind.FORK_SERVER for child in self._children.values()):
            self._reap()
            if time.monotonic() > until:
                break  # it can't be killed (it hangs in the kernel); nothing is left to try
            time.sleep(0.002)
        self._clients.close()
        for path in (self._options.socket, *self._status_files):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _with_pid(child: Child, pid: int) -> Child:
    """The child with another pid and no port, for comparing and for recording."""
    return msgspec.structs.replace(child, pid=pid, port=0)


def _exited(child: Child, status: int) -> Exited:
    code = os.waitstatus_to_exitcode(status)
    return Exited(
        pid=child.pid,
        kind=child.kind,
        name=child.name,
        incarnation=child.incarnation,
        task=child.task,
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
    )


def _serve(options: Options, report: forkchild.Report | None = None) -> int:
    setproctitle.setproctitle(options.title)
    server = ForkServer(options)
    if report is not None:
        report(0)
    server.serve()
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m unicron.worker_shim.forkserver")
    parser.add_argument("--socket", required=True, help="path of the unix socket to listen on")
    parser.add_argument("--title", default="unicron: fork server", help="process title")
    parser.add_argument("--preload", choices=MODES, default=MODES[0], help="what to import")
    parser.add_argument("--grace-s", type=float, default=forkprotocol.DEFAULT_GRACE_S)
    parser.add_argument("--entry", default="unicron.worker_shim.worker:run", help="worker's main")
    parser.add_argument("--store-entry", default="", help="host of the store, for tests")
    parser.add_argument("--die-with-parent", type=int, default=0, metavar="PID")
    given = parser.parse_args(arguments)
    set_environment(os.path.dirname(os.path.abspath(given.socket)))
    if given.die_with_parent:
        die_with_parent(given.die_with_parent)
    options = Options(
        socket=given.socket,
        title=given.title,
        grace_s=given.grace_s,
        preload=given.preload,
        entry=given.entry,
        store_entry=given.store_entry,
    )
    try:
        setproctitle.setproctitle(options.title)
        preload(options.preload, options.entry)
        gc.collect()
        gc.freeze()  # children don't touch, and so don't copy, what is here already
        return _serve(options)
    except UnicronError as error:
        print(f"fork server: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
