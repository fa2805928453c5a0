"""The cluster's stream: how it is made, and what one must be like to be taken for the log."""

import asyncio
import secrets
from datetime import UTC, datetime
from typing import Any

import msgspec

from unicron.controlplane.runtime.jetstream.connection import ApiRefused, Connection, NoAnswer
from unicron.events import ConfigError, LogMismatch, subjects

# Error codes of JetStream's API.
_STREAM_NOT_FOUND = 10059
_NAME_IN_USE = 10058
_SUBJECTS_OVERLAP = 10065
_NOT_ENABLED = (10039, 10076)
_TOO_FEW_SERVERS = (10005, 10074)

#: Writers try again for 30 s; the server must still know their ids then, with ample reserve.
DUPLICATE_WINDOW_S = 300
_SHORTEST_WINDOW_S = 120
#: The servers that keep a stream hear from each other every second.
_HEARD_NS = 4_000_000_000
#: Longer than they need for that, and than it takes until a connection leaves one that is cut off.
_AGREE_LIMIT_S = 15.0
_PAUSE_S = 0.2

_CLUSTER_KEY = "unicron.cluster"
_BIRTH_KEY = "unicron.birth"


class RePublish(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions go out as orders once they are durable."""

    src: str = ""
    dest: str = ""


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What of a stream's configuration the log's guarantees depend on. Times in nanoseconds."""

    name: str
    subjects: list[str]
    storage: str = "file"
    retention: str = "limits"
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msgs_per_subject: int = -1
    deny_delete: bool = True
    deny_purge: bool = True
    allow_direct: bool = True
    allow_atomic: bool = True
    duplicate_window: int = DUPLICATE_WINDOW_S * 1_000_000_000
    republish: RePublish | None = None
    metadata: dict[str, str] = {}


class _FoundConfig(StreamConfig, frozen=True, kw_only=True):
    """As the server shows it: what it leaves out is off."""

    deny_delete: bool = False
    deny_purge: bool = False
    allow_direct: bool = False
    allow_atomic: bool = False
    duplicate_window: int = 0
    num_replicas: int = 1


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """First and last sequence; an empty stream has `last_seq` 0 (or what it lost by force). What is
    missing in between is counted, and listed if it was asked for."""

    first_seq: int
    last_seq: int
    num_deleted: int = 0
    deleted: list[int] | None = None


class _Replica(msgspec.Struct, frozen=True):
    active: int = 0  # ns since it was heard


class _Servers(msgspec.Struct, frozen=True):
    """Who keeps the stream, as the one sees it that answers."""

    leader: str = ""
    replicas: list[_Replica] = []


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The server's answer about the stream. `created`: RFC 3339. `cluster`: None if there is one
    server only."""

    config: _FoundConfig
    state: StreamState
    created: str
    cluster: _Servers | None = None

    @property
    def birth(self) -> str:
        """Tells it from any other stream: what we wrote into it when we made it."""
        return self.config.metadata.get(_BIRTH_KEY, self.created)

    @property
    def is_current(self) -> bool:
        """Whoever answered hears from most of the servers that keep the stream. One that was cut
        off from them answers, too, but doesn't know what was stored since."""
        if self.cluster is None:
            return True
        replicas = self.cluster.replicas
        heard = 1 + sum(replica.active < _HEARD_NS for replica in replicas)
        return bool(self.cluster.leader) and 2 * heard > 1 + len(replicas)


class _ServerAway(ConfigError):
    """There are servers enough, but one of them is away."""


class _Names(msgspec.Struct, frozen=True):
    streams: list[str] | None = None


def stream_config(cluster: str, birth: str) -> StreamConfig:
    """How the cluster's stream is made."""
    return StreamConfig(
        name=subjects.stream_name(cluster),
        subjects=subjects.stream_subjects(cluster),
        republish=RePublish(src=subjects.control_tree(cluster), dest=subjects.order_tree(cluster)),
        metadata={_CLUSTER_KEY: cluster, _BIRTH_KEY: birth},
    )


async def stream_info(connection: Connection, cluster: str, *, deleted: bool = False) -> StreamInfo:
    """The stream as it is; with a list of what is `deleted` from it if that is wanted. LogMismatch
    if there is none; ConfigError without JetStream; NoAnswer also if the server that answers is cut
    off from most of those that keep the stream."""
    name = subjects.stream_name(cluster)
    body = {"deleted_details": True} if deleted else None
    asked = asyncio.get_running_loop().time()
    try:
        info = await connection.api(f"STREAM.INFO.{name}", body, StreamInfo)
    except ApiRefused as refused:
        if refused.err_code in _NOT_ENABLED:
            raise _no_jetstream(connection) from None
        if refused.err_code != _STREAM_NOT_FOUND:
            raise
        raise LogMismatch(
            f"the NATS server at {connection.address} has no log of the cluster {cluster}",
            why=await _what_there_is(connection),
            fix="check the cluster's name and the server's address",
            code="E-LOG-NONE",
        ) from None
    except NoAnswer:
        if not connection.has_jetstream:
            raise _no_jetstream(connection) from None
        raise
    if not info.is_current:
        await connection.not_served(asked)
        raise NoAnswer(
            f"the NATS server at {connection.address} doesn't hear from the others",
            why=f"most servers that keep the log of {cluster} are away, or it is cut off from them",
            fix="more than half of them must be there",
        )
    connection.served()
    return info


def _no_jetstream(connection: Connection) -> ConfigError:
    return ConfigError(
        f"the NATS server at {connection.address} has no JetStream for us",
        why="it is switched off, or not for the account of our user",
        fix="enable jetstream in the server's configuration, or leave out the address",
        code="E-NATS-NO-JETSTREAM",
    )


async def _what_there_is(connection: Connection) -> str:
    """Which logs the server has, for a message."""
    names = (await connection.api("STREAM.NAMES", {}, _Names)).streams or []
    prefix = subjects.stream_name("")
    clusters = sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return f"it has logs of: {', '.join(clusters)}" if clusters else "it has no log of ours"


async def ensure_stream(
    connection: Connection, cluster: str, *, create: bool, replicas: int
) -> StreamInfo:
    """The cluster's stream, made if it isn't there and `create`. LogMismatch if the one that is
    there can't be the log. Several servers get time to come and to agree on who leads them."""
    give_up = asyncio.get_running_loop().time() + _AGREE_LIMIT_S
    while True:
        try:
            info = await _found_or_made(connection, cluster, create=create, replicas=replicas)
        except (NoAnswer, _ServerAway):
            if not connection.has_others or asyncio.get_running_loop().time() > give_up:
                raise
            await asyncio.sleep(_PAUSE_S)
        else:
            _check(connection, cluster, info)
            return info


async def _found_or_made(
    connection: Connection, cluster: str, *, create: bool, replicas: int
) -> StreamInfo:
    try:
        return await stream_info(connection, cluster)
    except LogMismatch as mismatch:
        if not create or mismatch.code != "E-LOG-NONE":
            raise
        return await _create(connection, cluster, replicas)


async def _create(connection: Connection, cluster: str, replicas: int) -> StreamInfo:
    born = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted = stream_config(cluster, birth=f"{born}-{secrets.token_hex(6)}")
    # "new": if the disk is full, refuse what comes rather than drop what is there.
    body: dict[str, Any] = msgspec.to_builtins(wanted)
    body |= {"discard": "new", "num_replicas": replicas}
    try:
        return await connection.api(f"STREAM.CREATE.{wanted.name}", body, StreamInfo, limit_s=10.0)
    except ApiRefused as refused:
        if refused.err_code == _NAME_IN_USE:  # another instance was quicker
            return await stream_info(connection, cluster)
        if refused.err_code in _TOO_FEW_SERVERS:
            away = "offline" in refused.what
            raise (_ServerAway if away else ConfigError)(
                f"the log can't be kept by {replicas} servers",
                why=f"{connection.address}: {refused.what}",
                fix="ask for fewer replicas (1 for one server), or give the addresses of a cluster",
                code="E-NATS-REPLICAS",
            ) from None
        if refused.err_code == _SUBJECTS_OVERLAP:
            raise LogMismatch(
                f"another stream at {connection.address} stores the subjects of {cluster}",
                why=str(refused.what),
                fix="remove that stream, or choose another cluster name",
            ) from None
        raise


def _check(connection: Connection, cluster: str, info: StreamInfo) -> None:
    """LogMismatch unless it is this cluster's and keeps what is in it."""
    found, wanted = info.config, stream_config(cluster, birth="")
    owner = found.metadata.get(_CLUSTER_KEY)
    if owner != cluster:
        raise LogMismatch(
            f"the stream {found.name} at {connection.address} is not the log of {cluster}",
            why=f"it belongs to {owner}" if owner else "it wasn't made by unicron",
            fix="check the cluster's name and the server's address",
        )
    differing = [
        f"{field} is {getattr(found, field)!r} and must be {getattr(wanted, field)!r}"
        for field in wanted.__struct_fields__
        if field not in {"metadata", "subjects", "duplicate_window"}
        and getattr(found, field) != getattr(wanted, field)
    ]
    if set(found.subjects) != set(wanted.subjects):
        differing.append(f"subjects are {found.subjects!r} and must be {wanted.subjects!r}")
    if found.duplicate_window < _SHORTEST_WINDOW_S * 1_000_000_000:
        differing.append(f"duplicate_window must be {_SHORTEST_WINDOW_S} s or more")
    if differing:
        raise LogMismatch(
            f"the stream {found.name} at {connection.address} isn't configured as a log",
            why="; ".join(differing),
            fix="correct that with `nats stream edit`, or use another cluster name",
            code="E-LOG-CONFIG",
        )


def nanoseconds(text: str) -> int:
    """Nanoseconds since 1970 of a time as the server writes it: RFC 3339, UTC."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0"))
