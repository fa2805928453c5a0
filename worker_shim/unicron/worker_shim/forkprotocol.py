"""What is said between a fork server and its clients: one JSON object a line, over a unix socket.

The server speaks first (`Hello`), answers each request with one `Reply` of the same id, in any
order, and reports each ended child at once (`Exited`) to all who are connected.
"""

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from unicron.worker_shim.launch import WorkerLaunch

#: A unix socket's path may have this many bytes (Linux, without the closing zero).
SOCKET_PATH_LIMIT = 107

#: Children of a fork server nobody is connected to live this long, seconds.
DEFAULT_GRACE_S = 30.0


class Kind(StrEnum):
    """What a child is."""

    WORKER = "worker"
    STORE = "store"
    FORK_SERVER = "fork_server"
    CALL = "call"


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="cmd"):
    id: int


class StartWorker(Request, frozen=True, kw_only=True, tag="worker"):
    """Fork a worker; the reply has its pid. Repeated for a worker that lives: the same pid."""

    launch: WorkerLaunch


class StartStore(Request, frozen=True, kw_only=True, tag="store"):
    """Fork the host of a rendezvous store; the reply has its pid and port."""

    node: str
    address: str
    title: str


class StartForkServer(Request, frozen=True, kw_only=True, tag="fork_server"):
    """Fork another fork server, with all that is imported here, listening on `socket`. It lives
    on its own: it ends when its own clients have gone for its grace. The reply, with its pid,
    comes when it listens."""

    socket: str
    title: str
    grace_s: float = DEFAULT_GRACE_S


class CallFunction(Request, frozen=True, kw_only=True, tag="call"):
    """Fork a process that calls ``module:function`` with keyword arguments; its return value is
    the exit code (None is 0). The reply has its pid."""

    function: str
    arguments: dict[str, Any]
    title: str
    log_path: str


class Kill(Request, frozen=True, kw_only=True, tag="kill"):
    """Send a signal to a living child. A child that has ended is no error."""

    pid: int
    signal: int


class Shutdown(Request, frozen=True, kw_only=True, tag="shutdown"):
    """Kill all children but fork servers, and end."""


AnyRequest: TypeAlias = StartWorker | StartStore | StartForkServer | CallFunction | Kill | Shutdown


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="msg"):
    """What a fork server says."""


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A living child. `name`: worker id, node, socket or function, by kind. `task`: a worker's."""

    pid: int
    kind: Kind
    name: str
    incarnation: int = 0
    task: str = ""
    port: int = 0


class Exited(Message, frozen=True, kw_only=True, tag="exited"):
    """A child ended: exactly one of `code` and `signal` is not None."""

    pid: int
    kind: Kind
    name: str
    incarnation: int = 0
    task: str = ""
    code: int | None = None
    signal: int | None = None


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """Said on every connect. `exits`: those that happened while nobody was connected."""

    pid: int
    title: str
    preload: str
    children: tuple[Child, ...] = ()
    exits: tuple[Exited, ...] = ()


class Reply(Message, frozen=True, kw_only=True, tag="reply"):
    """The answer to one request; `error` is "" or says what was wrong."""

    id: int
    pid: int = 0
    port: int = 0
    error: str = ""


AnyMessage: TypeAlias = Hello | Reply | Exited

decode_request = msgspec.json.Decoder(AnyRequest).decode
decode_message = msgspec.json.Decoder(AnyMessage).decode
_encoder = msgspec.json.Encoder()


def line(message: Request | Message) -> bytes:
    """One message as it goes over the socket."""
    return _encoder.encode(message) + b"\n"
