"""Free a training thread that is blocked in a collective: shut down its generation's sockets.

gloo has no abort: a thread that waits for a hung peer waits for the whole time-out, whatever is
done with the process group. What does help, within milliseconds, is ``shutdown(2)`` on the TCP
connections it uses; also while it is still connecting, or waits in its store client.

One wait has no connection: of two peers one listens until the other, which may be dead, connects
(``gloo/transport/tcp/pair.cc:waitUntilConnected``). So we connect in its place, to our own
listener, name the pair as it would (``listener.cc:haveConnection``) and hang up.

The connections of a generation are told from others by exclusion: what wasn't open when the
generation began (file descriptor and inode, as descriptors are used again), is not a listener
(shutting one ends the process from inside gloo) and is not `foreign`, such as the connection to
NATS, which may come and go at any time.
"""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from unicron.events.errors import UnicronError

#: Address and port of a connection's other end, as the kernel has it (IPv4-mapped IPv6 unmapped).
PeerAddress = tuple[str, int]

#: A thread about to block may open its socket after we looked; so we look again until it is out.
_SWEEP_INTERVAL_S = 0.02

_KNOCK_LIMIT_S = 0.2

_TCP_INFO_STATE = 0  # struct tcp_info begins with tcpi_state
_TCP_SYN_SENT = 2


class GenerationShut(UnicronError):
    """The generation was shut down: nothing of it may be entered any more."""

    default_code = "E-GENERATION-SHUT"


def _nobody(peer: PeerAddress) -> bool:
    return False


class Connections:
    """The sockets of the current generation. Thread-safe.

    The training thread brackets a generation with `begin` and `end`; any other thread may `shut`
    it. `foreign` says which peers are never the generation's.
    """

    def __init__(self, foreign: Callable[[PeerAddress], bool] = _nobody) -> None:
        self._foreign = foreign
        self._lock = threading.Lock()
        self._before: set[tuple[int, str]] = set()
        self._knocked: set[str] = set()
        self._members = 0
        self._current: int | None = None
        self._shut = 0
        self._left = threading.Event()

    def begin(self, generation: int, members: int) -> None:
        """Whatever is opened from now on belongs to `generation`, until `end`. GenerationShut if
        it, or a later one, has been shut already: a call to `shut` is never lost. `members`: how
        many the generation has, this one included."""
        with self._lock:
            self._refuse(generation)
            self._before = set(_sockets())
            self._knocked = set()
            self._members = members
            self._current = generation
            self._left = threading.Event()

    def check(self) -> None:
        """GenerationShut if the current generation has been shut. To be called between two steps
        of which each may block."""
        with self._lock:
            if self._current is not None:
                self._refuse(self._current)

    def end(self) -> None:
        """The training thread is out of all blocking calls: shut down what is left of the
        generation's connections, so that nothing of it lingers. Harmless when there is none."""
        with self._lock:
            if self._current is not None:
                self._sweep()
            self._current = None
            self._left.set()

    def shut(self, generation: int) -> int:
        """Free whoever is blocked in `generation` or an earlier one, and refuse to enter them from
        now on. Does not block; returns how many connections it shut at once.

        New ones are looked for, by a thread that lives as long, until the training thread is out.
        """
        with self._lock:
            self._shut = max(self._shut, generation)
            if self._current is None or self._current > generation:
                return 0
            count = self._sweep()
            current, left = self._current, self._left
        threading.Thread(
            target=self._keep_sweeping, args=(current, left), name=f"shut-{current}", daemon=True
        ).start()
        return count

    def cut(self) -> int:
        """Reset the current generation's connections and nothing else, as a network would: for the
        fault injector. How many."""
        with self._lock:
            return self._sweep() if self._current is not None else 0

    def _keep_sweeping(self, generation: int, left: threading.Event) -> None:
        while not left.wait(_SWEEP_INTERVAL_S):
            with self._lock:
                if self._current != generation or left is not self._left:
                    return
                self._sweep()
                self._knock()

    def _refuse(self, generation: int) -> None:
        if generation <= self._shut:
            raise GenerationShut(f"generation {generation} has been shut down")

    def _sweep(self) -> int:
        """Shut down every connection of the generation; how many. Called with the lock held."""
        count = 0
        for descriptor, inode in _sockets():
            if (descriptor, inode) in self._before:
                continue
            with _duplicate(descriptor, inode) as connection:
                if connection is not None and self._ours(connection):
                    # OSError: it closed itself meanwhile, which is as good.
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                        count += 1
        return count

    def _knock(self) -> None:
        """Connect to the generation's listeners in place of the peers that don't, once each:
        gloo keeps a connection that comes before it is waited for. Called with the lock held."""
        for descriptor, inode in _sockets():
            if (descriptor, inode) in self._before or inode in self._knocked:
                continue
            # Our copy keeps the port from being given to anybody else meanwhile.
            with _duplicate(descriptor, inode) as listener:
                if listener is not None and _is_listening(listener):
                    self._knocked.add(inode)
                    for pair in range(self._members):
                        with (
                            contextlib.suppress(OSError),
                            socket.create_connection(
                                listener.getsockname()[:2], timeout=_KNOCK_LIMIT_S
                            ) as visitor,
                        ):
                            visitor.sendall(struct.pack("@n", pair))

    def _ours(self, connection: socket.socket) -> bool:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        if connection.type != socket.SOCK_STREAM or _is_listening(connection):
            return False
        try:
            host, port = connection.getpeername()[:2]
        except OSError:
            # No peer yet. A pending connect blocks as well; a foreign one merely tries again.
            return _is_connecting(connection)
        return not self._foreign((host.removeprefix("::ffff:"), port))


def _sockets() -> Iterator[tuple[int, str]]:
    """Descriptor and inode of every open socket of this process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed while we looked
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                yield int(name), target


@contextlib.contextmanager
def _duplicate(descriptor: int, inode: str) -> Iterator[socket.socket | None]:
    """A descriptor of our own for the same socket; None if it isn't that one any more.

    Never the owner's: closing or reusing it under gloo would hit a stranger.
    """
    try:
        copy = os.dup(descriptor)
    except OSError:
        yield None
        return
    try:
        connection = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        yield None
        return
    with connection:
        same = os.readlink(f"/proc/self/fd/{copy}") == inode
        yield connection if same else None


def _is_listening(connection: socket.socket) -> bool:
    """Whether it is a TCP listener."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def _is_connecting(connection: socket.socket) -> bool:
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    except OSError:
        return False
    return bool(struct.unpack_from("B", info, _TCP_INFO_STATE)[0] == _TCP_SYN_SENT)
