"""One connection to NATS that comes back by itself, with errors that say whose fault it is."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from nats import errors as nats_errors
from nats.aio.msg import Msg

from unicron.controlplane.runtime.jetstream.client import SteadyClient
from unicron.events import ConfigError, LogError, LogTooOld, LogUnreachable

log = logging.getLogger(__name__)

#: Atomic publishing and what the fence needs came with this version.
OLDEST_SERVER = (2, 12)

_API_LIMIT_S = 2.0
_RECONNECT_PAUSE_S = 0.05
# A server that hangs is given up after two missed pings; nats-py's default would take minutes.
_PING_INTERVAL_S = 2
#: How long an attempt that is given up gets to clean up after itself.
_CANCEL_S = 0.5
_CLOSE_LIMIT_S = 2.0
#: A server that refuses or leaves unanswered what is asked of it for so long may be cut off from
#: the others of its cluster: another one is tried, if there is one. They need about 5 s to agree on
#: a new leader, and whoever leads is to be back within the lease, 10 s.
MOVE_AFTER_S = 7.0

# Error codes of JetStream that say no more than silence does, as from servers that can't agree on
# who leads them: incomplete, temporarily unavailable, can't handle the request, stream is offline,
# an earlier try is still in process, too many requests.
_FOR_NOW = (10004, 10008, 10009, 10118, 10158, 10167)

T = TypeVar("T")


class NoAnswer(LogUnreachable):
    """A request got no answer; what it asked for may or may not have happened."""


class ApiRefused(LogError):
    """The server answered with an error. `err_code` is JetStream's, `status` like HTTP's."""

    default_code = "E-LOG-REFUSED"

    def __init__(self, what: str, *, status: int, err_code: int) -> None:
        super().__init__(what)
        self.status = status
        self.err_code = err_code


class ApiError(msgspec.Struct, frozen=True):
    """The error part of any JetStream answer."""

    code: int
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct, frozen=True):
    """Any answer. `type`: of the API's alone; an acknowledgement of what was stored has none."""

    type: str = ""
    error: ApiError | None = None


class _RefusedAtOnce(Exception):
    """Trying to connect again is no use."""


async def connect(url: str, *, name: str, limit_s: float = 3.0) -> "Connection":
    """Connect to a server that is new enough.

    `url`: its address, or those of several of one cluster with commas between. `name` is what the
    server's advisories call us. ConfigError within `limit_s` if the address can't be reached or the
    credentials are refused; LogTooOld if the server is.
    """
    connection = Connection(url, name)
    await connection._open(limit_s)
    return connection


@contextlib.contextmanager
def cancellation_kept() -> Iterator[None]:
    """Around what waits with asyncio.wait_for, as nats-py does: in Python 3.11 that loses a
    cancellation which comes together with the result, and whoever cancelled waits for ever."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    yield
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


def _shown(url: str) -> str:
    """The address, or the addresses, without credentials."""
    if "," in url:
        return ", ".join(_shown(one) for one in url.split(","))
    try:
        parts = urlsplit(url if "//" in url else f"nats://{url}")
        return f"{parts.hostname}:{parts.port or 4222}"
    except ValueError:
        return url.rpartition("@")[2]


def _read(answer: Msg) -> _Answer:
    try:
        return msgspec.json.decode(answer.data, type=_Answer)
    except msgspec.DecodeError:
        return _Answer(type="unknown")  # whoever asked will see


def _credentials(addresses: list[str]) -> dict[str, str]:
    """User and password for those servers, too, that the others tell us of: without them, they
    would refuse us. Empty if the addresses have none, or not the same."""
    with contextlib.suppress(ValueError):
        found = {(parts.username, parts.password) for parts in map(urlsplit, addresses)}
        user, password = found.pop()
        if user and password and not found:
            return {"user": user, "password": password}
    return {}


async def _within(limit_s: float, work: Coroutine[Any, Any, None]) -> None:
    """Do `work`; TimeoutError after the limit whatever it does about being cancelled: nats-py's
    connect can swallow that, and would then try for ever."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_s)
    except BaseException:
        task.cancel()
        raise
    if not done:
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_S)
        raise TimeoutError
    task.result()


class Connection:
    """Made by connect(). Everything sent while it is away goes out when it is back, up to 2 MiB:
    a request that timed out may still take effect."""

    def __init__(self, url: str, name: str) -> None:
        self.client = SteadyClient()
        self._url = url
        self._failing: tuple[float, float] | None = None  # since and until when requests failed
        self._name = name
        self._connecting = True
        self._last_error: Exception | None = None
        self._denied: list[str] = []
        self._listeners: list[tuple[Callable[[], None], Callable[[], None]]] = []

    async def _open(self, limit_s: float) -> None:
        servers = self._url.split(",")
        random.shuffle(servers)  # or all would sit on the first one
        options: dict[str, Any] = {
            "dont_randomize": True,  # whoever leaves one tries it last
            "reconnect_time_wait": _RECONNECT_PAUSE_S,
            "max_reconnect_attempts": -1,
            "ping_interval": _PING_INTERVAL_S,
            "connect_timeout": limit_s / len(servers),  # one that is down must not use up all
            **_credentials(servers),
        }
        try:
            await _within(
                limit_s,
                self.client.connect(
                    servers,
                    name=self._name,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_lost,
                    reconnected_cb=self._on_back,
                    closed_cb=self._on_lost,
                    **options,
                ),
            )
            self._check_version()
        except (TimeoutError, OSError, ValueError, nats_errors.Error, _RefusedAtOnce) as error:
            await self.close()
            raise self._not_connected(error, limit_s) from None
        except BaseException:
            await self.close()
            raise
        self._connecting = False

    def _not_connected(self, error: Exception, limit_s: float) -> ConfigError:
        address = _shown(self._url)
        if isinstance(error, _RefusedAtOnce):
            return ConfigError(
                f"the NATS server at {address} refuses the credentials",
                why=str(error),
                fix="give user and password in the address: nats://user:password@host:port",
                code="E-NATS-CREDENTIALS",
            )
        why = error if not isinstance(error, TimeoutError) else self._last_error
        return ConfigError(
            f"no NATS server can be reached at {address} within {limit_s:g} s",
            why=str(why or "no answer"),
            fix="check the address and that the server runs",
            code="E-NATS-ADDRESS",
        )

    def _check_version(self) -> None:
        found = self.server_version
        if found < OLDEST_SERVER:
            wanted = ".".join(map(str, OLDEST_SERVER))
            raise LogTooOld(
                f"the NATS server at {_shown(self._url)} has version "
                f"{'.'.join(map(str, found)) or 'unknown'}; {wanted} or newer is needed",
                why="older ones lack atomic publishing and let two writers past one fence",
                fix="update the server, or leave out the address to use the embedded one",
            )

    @property
    def server_version(self) -> tuple[int, ...]:
        """Version of the server that it is connected to; empty if it didn't say."""
        text = str(self.client._server_info.get("version", ""))
        core = text.partition("-")[0]
        return tuple(int(part) for part in core.split(".") if part.isdigit())

    @property
    def has_jetstream(self) -> bool:
        """Whether the server it is connected to says that it runs JetStream."""
        return bool(self.client._server_info.get("jetstream"))

    @property
    def address(self) -> str:
        """Host and port for messages to people."""
        return _shown(self._url)

    def listen(self, lost: Callable[[], None], back: Callable[[], None]) -> Callable[[], None]:
        """Call `lost` when the connection breaks or is closed and `back` when it is up again.
        Returns what ends that. Subscriptions are in force again when `back` is called."""
        entry = (lost, back)
        self._listeners.append(entry)

        def unlisten() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(entry)

        return unlisten

    async def _on_error(self, error: Exception) -> None:
        self._last_error = error
        text = str(error).lower()
        if self._connecting and "authorization violation" in text:
            raise _RefusedAtOnce(text)
        if "permissions violation" in text:
            self._denied = [*self._denied[-99:], text]

    async def _on_lost(self) -> None:
        # What was sent on the broken connection isn't answered on the next one; say so now
        # instead of letting everyone wait for their limit.
        for answer in list(self.client._resp_map.values()):
            if not answer.done():
                answer.set_exception(nats_errors.ConnectionReconnectingError())
        for lost, _ in list(self._listeners):
            lost()

    async def _on_back(self) -> None:
        self._failing = None
        for _, back in list(self._listeners):
            back()

    def check_permitted(self, subject: str) -> None:
        """ConfigError if the server has refused us this subject. It says so only on the side; the
        request itself just gets no answer."""
        if any(f'"{subject.lower()}"' in text for text in self._denied):
            raise ConfigError(
                f"the NATS server at {self.address} doesn't permit us {subject}",
                why="the user in the address may not do that",
                fix="to read a log of `unicron up`, give its data folder, or the address in its "
                "reader.url with the --cluster it is of; a control plane needs a user that may do "
                "everything",
                code="E-NATS-PERMISSION",
            )

    async def request(
        self, subject: str, data: bytes, *, limit_s: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """Send and wait for the answer. NoAnswer if there is none, or only one for now; LogError if
        `data` is larger than the server takes."""
        sent = asyncio.get_running_loop().time()
        try:
            with cancellation_kept():
                answer = await self.client.request(subject, data, timeout=limit_s, headers=headers)
        except nats_errors.MaxPayloadError:
            raise LogError(
                f"an event of {len(data)} bytes under {subject} is too large",
                why=f"the server at {self.address} takes {self.client.max_payload} bytes",
                fix="raise max_payload in the server's configuration",
                code="E-LOG-TOO-LARGE",
            ) from None
        except (nats_errors.Error, OSError) as error:
            self.check_permitted(subject)
            await self.not_served(sent)
            raise NoAnswer(
                f"the NATS server at {self.address} gave no answer on {subject}",
                why=str(error) or type(error).__name__,
                fix="check that the server runs",
            ) from None
        said = _read(answer)
        if said.error is not None and said.error.err_code in _FOR_NOW:
            await self.not_served(sent)
            raise NoAnswer(
                f"the NATS server at {self.address} can't do anything on {subject} for now",
                why=said.error.description,
                fix="if that lasts: more than half of a cluster's servers must be there",
            )
        if said.error is None and not said.type:
            self.served()
        return answer

    @property
    def has_others(self) -> bool:
        """The server that it is connected to isn't the only one."""
        return len(self.client.servers) > 1

    def served(self) -> None:
        """The server that we are connected to is one of the majority that keeps the log: something
        was stored, or it hears from the others. Whatever else it answers, it may be cut off."""
        self._failing = None

    async def not_served(self, since: float) -> None:
        """It could not do what was asked of it at `since` (the loop's time). If that goes on, leave
        it for another one. Nothing else tells that it is cut off: it answers our pings."""
        now = asyncio.get_running_loop().time()
        first, last = self._failing or (since, since)
        if now - last > MOVE_AFTER_S or not self.client.is_connected:
            first = since
        self._failing = first, now
        if now - first > MOVE_AFTER_S and self.has_others:
            self._failing = None
            log.warning("the server is of no use for %g s: trying another one", now - first)
            await self.client.force_reconnect()

    async def api(
        self, operation: str, body: object, answer: type[T], *, limit_s: float = _API_LIMIT_S
    ) -> T:
        """Call JetStream's API. ApiRefused if it answers with an error, NoAnswer if not at all."""
        data = b"" if body is None else msgspec.json.encode(body)
        message = await self.request(f"$JS.API.{operation}", data, limit_s=limit_s)
        error = _read(message).error
        if error is not None:
            raise ApiRefused(
                f"the NATS server refuses {operation}: {error.description}",
                status=error.code,
                err_code=error.err_code,
            )
        return msgspec.json.decode(message.data, type=answer)

    @property
    def is_closed(self) -> bool:
        """Closed for good, by us or because the server sent us away."""
        return self.client.is_closed

    def closed_error(self) -> LogUnreachable:
        """Why it is closed."""
        return LogUnreachable(
            f"the connection to the NATS server at {self.address} is closed",
            why=str(self._last_error or "it was closed here"),
            fix="check the server's log and our credentials",
        )

    async def close(self) -> None:
        """Close it for good, within 2 s. Harmless if it is closed."""
        if self.client._flush_queue is not None:  # else it never came as far as connecting
            with contextlib.suppress(OSError, nats_errors.Error):  # the server is gone already
                async with asyncio.timeout(_CLOSE_LIMIT_S):
                    await self.client.close()
        self.client.abort()
