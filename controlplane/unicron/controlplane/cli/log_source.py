"""LOG, as every command takes it: a history file, a folder that holds one, or a NATS address."""

import functools
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from unicron.events import (
    ConfigError,
    LogBroken,
    LogMismatch,
    LogUnreachable,
    Recorded,
    read_history,
    subjects,
)

if TYPE_CHECKING:  # brings nats and asyncio, which reading a file doesn't need
    from unicron.controlplane.runtime.jetstream import JetStreamLog

_SCHEMES: Final = ("nats://", "tls://")
_DEFAULT_CLUSTER: Final = "demo"
#: The next event of a log that is known to have one comes within this, or the log is unreachable.
_NEXT_EVENT_S: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log as far as it had come when it was read. `shown` names it in messages and commands to
    copy, without credentials."""

    shown: str
    cluster: str
    birth: str
    events: tuple[Recorded, ...]


def read_log(log: str, cluster: str | None) -> Log:
    """Read and check a whole log. `cluster`: the one it must be of; None: any for a file, "demo"
    for an address.

    Raises:
        ConfigError: there is no such file or server, or the folder holds not exactly one history.
        LogMismatch: it is no history, or another cluster's.
        LogBroken: it was cut off or changed.
        LogUnreachable: the server stopped answering.
    """
    if cluster is not None:
        subjects.check_cluster(cluster)
    if log.startswith(_SCHEMES):
        import anyio

        return anyio.run(functools.partial(_read_stream, log, cluster or _DEFAULT_CLUSTER))
    return _read_file(_history_in(Path(log)), cluster)


def _history_in(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(p for p in path.iterdir() if p.suffix == ".ndjson" and p.is_file())
    if len(found) == 1:
        return found[0]
    names = ", ".join(p.name for p in found[:5])
    raise ConfigError(
        f"{path} holds {len(found) or 'no'} history files",
        why=f"there are {names}" if found else "a history's name ends in .ndjson",
        fix="give the path of one history file",
        code="E-CONFIG-FILE",
    )


def _read_file(path: Path, cluster: str | None) -> Log:
    try:
        history = read_history(path)
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read",
            why=error.strerror or str(error),
            fix="check the path and its permissions",
            code="E-CONFIG-FILE",
        ) from error
    header = history.header
    if cluster is not None and header.cluster != cluster:
        raise LogMismatch(
            f"{path} is a log of cluster {header.cluster}, not of {cluster}",
            fix=f"leave out --cluster, or say --cluster {header.cluster}",
            code="E-LOG-CLUSTER",
        )
    if header.first_seq != 1:
        raise LogMismatch(
            f"{path} begins with event {header.first_seq}",
            why="a state can only be folded from the first event on",
            fix="export the whole log",
            code="E-LOG-PART",
        )
    return Log(
        shown=os.fspath(path),
        cluster=header.cluster,
        birth=header.birth,
        events=history.events,
    )


async def _read_stream(url: str, cluster: str) -> Log:
    """Everything up to the entry that is the last one now."""
    from unicron.controlplane.runtime.jetstream import JetStreamLog

    log = await JetStreamLog.connect(url, cluster, name="cli/reader", create=False)
    try:
        last = await log.last_seq()
        return Log(
            shown=_without_credentials(url),
            cluster=cluster,
            birth=await log.birth(),
            events=await _read_to(log, last),
        )
    finally:
        await log.close()


async def _read_to(log: "JetStreamLog", last: int) -> tuple[Recorded, ...]:
    import anyio

    events: list[Recorded] = []
    tail = log.read(1)
    try:
        while len(events) < last:
            with anyio.fail_after(_NEXT_EVENT_S):
                events.append(await anext(tail))
    except TimeoutError:
        raise LogUnreachable(
            f"the log stopped answering after event {len(events)} of {last}",
            fix="check that the server runs, and try again",
        ) from None
    except StopAsyncIteration:
        raise LogBroken(
            f"the log ended after event {len(events)} of {last}",
            first_wrong=len(events) + 1,
            code="E-LOG-SHORT",
        ) from None
    return tuple(events)


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or 4222}"


def log_arguments(log: Log) -> str:
    """The arguments that read the same log again, for commands to copy."""
    name = f"--log {shlex.quote(log.shown)}"
    return f"{name} --cluster {log.cluster}" if log.shown.startswith(_SCHEMES) else name
