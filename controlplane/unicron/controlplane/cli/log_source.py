"""LOG, as every command takes it: a history file, a folder, or a NATS address."""

import contextlib
import functools
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import urlsplit

from unicron.controlplane.cli import data_folder
from unicron.controlplane.cli.history_path import history_in, opened
from unicron.controlplane.cli.read_ahead import ReadAhead, worth_it
from unicron.events import (
    ConfigError,
    HistoryReader,
    LogBroken,
    LogMismatch,
    LogUnreachable,
    Recorded,
    StateDigest,
    subjects,
)
from unicron.events.compressed import unpacked
from unicron.events.history_reader import unreadable

if TYPE_CHECKING:  # brings nats and asyncio, which reading a file doesn't need
    from unicron.controlplane.core.snapshot import Snapshot
    from unicron.controlplane.runtime.jetstream import JetStreamLog

#: How the address of a NATS server begins.
SCHEMES: Final = ("nats://", "tls://")
DEFAULT_CLUSTER: Final = "demo"
#: The next event of a log that is known to have one comes within this, or the log is unreachable.
_NEXT_EVENT_S: Final = 10.0
#: Stands for a password or a token in what is shown.
HIDDEN: Final = "***"
#: Entries of a stream that are handed over at once.
_BATCH: Final = 256


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log as far as it had come when it was read. `shown` names it in messages and commands to
    copy, without secrets."""

    shown: str
    cluster: str
    birth: str
    events: tuple[Recorded, ...]


@dataclass(frozen=True, kw_only=True)
class OpenLog:
    """A log that is being read: `items` can be gone through once, and each is checked before it
    is handed out. `fold_version`: of the fold that computed the digests among them. `total`: how
    many entries there are, None if only the end tells. `fraction()`: how much has been read, 0 to
    1; None if nobody can tell. `snapshot`: what the items come after, if they aren't all.
    `chain()`: the log's after the item that was taken last, if reading computes it."""

    shown: str
    cluster: str
    birth: str
    fold_version: int
    items: Iterator[Recorded | StateDigest]
    total: int | None
    fraction: Callable[[], float | None]
    snapshot: "Snapshot | None" = None
    chain: Callable[[], bytes] | None = None


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a log grows. `shown` is what names it for people, without secrets."""

    url: str
    cluster: str
    shown: str


def address_of(log: str, cluster: str | None) -> Address | None:
    """The NATS address that LOG is, or that stands in it if it is the data folder of a control
    plane that runs; None for a file, and for a folder of files.

    Raises:
        ConfigError: it is an address of another kind; the control plane of the folder doesn't run.
        LogMismatch: the folder is another cluster's.
    """
    if log.startswith(SCHEMES):
        try:
            shown = ",".join(_without_secrets(one) for one in log.split(","))
        except ValueError:  # its text may hold what was meant as a password
            raise ConfigError(
                "LOG names no server",
                why="a host is missing, or what stands behind a colon is no port",
                fix="give nats://host:port, several with commas between",
                code="E-LOG-ADDRESS",
            ) from None
        return Address(url=log, cluster=cluster or DEFAULT_CLUSTER, shown=shown)
    scheme, is_address, _ = log.partition("://")
    if is_address:
        raise ConfigError(
            f"a log can't be read from a {scheme}:// address",
            why="a NATS address begins with nats:// or tls://",
            fix="give nats://host:port, the data folder of `unicron up`, or a history file",
            code="E-LOG-ADDRESS",
        )
    found = data_folder.reading(Path(log))
    if found is None:
        return None
    url, name = found
    if cluster not in (None, name):
        raise LogMismatch(
            f"{log} is the folder of cluster {name}, not of {cluster}",
            fix=f"leave out --cluster, or say --cluster {name}",
            code="E-LOG-CLUSTER",
        )
    return Address(url=url, cluster=name, shown=log)


@contextlib.contextmanager
def open_log(log: str, cluster: str | None, from_snapshot: str | None = None) -> Iterator[OpenLog]:
    """Read a log piece by piece, so that it need not fit into memory; what comes after a snapshot,
    if one is asked for (a file, or "newest"). Raises as read_log() does, as late as when the entry
    is reached at which the log is broken; and as cli.from_snapshot."""
    if cluster is not None:
        subjects.check_cluster(cluster)
    address = address_of(log, cluster)
    if address is not None:
        with _open_stream(address, from_snapshot) as stream:
            yield stream
    else:
        with _open_file(history_in(log), cluster, from_snapshot) as file:
            yield file


def read_log(log: str, cluster: str | None) -> Log:
    """Read and check a whole log. `cluster`: the one it must be of; None: any for a file, "demo"
    for an address.

    Raises:
        ConfigError: there is no such file or server, or the folder holds not exactly one history.
        LogMismatch: it is no history, or another cluster's.
        LogBroken: it was cut off or changed.
        LogUnreachable: the server stopped answering.
    """
    with open_log(log, cluster) as opened:
        events = tuple(item for item in opened.items if isinstance(item, Recorded))
        return Log(shown=opened.shown, cluster=opened.cluster, birth=opened.birth, events=events)


@contextlib.contextmanager
def _open_file(path: Path, cluster: str | None, from_snapshot: str | None) -> Iterator[OpenLog]:
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(opened(path))
            reader = _reader(path, file, stack)
        except OSError as error:
            raise unreadable(path, error) from error
        header = reader.header
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
        items, snapshot = _of_file(path, reader), None
        if from_snapshot is not None:
            from unicron.controlplane.cli.from_snapshot import for_file
            from unicron.controlplane.replay.folding import behind

            snapshot = for_file(from_snapshot, header.cluster, header.birth)
            items = behind(snapshot, items)
        yield OpenLog(
            shown=os.fspath(path),
            cluster=header.cluster,
            birth=header.birth,
            fold_version=header.fold_version,
            items=items,
            total=None,
            fraction=_fraction(file),
            chain=lambda: reader.chain,
            snapshot=snapshot,
        )


def _reader(path: Path, file: IO[bytes], stack: contextlib.ExitStack) -> HistoryReader | ReadAhead:
    if worth_it(file):
        return stack.enter_context(contextlib.closing(ReadAhead(path, file)))
    return HistoryReader(str(path), unpacked(file))


def _fraction(file: IO[bytes]) -> Callable[[], float | None]:
    """How much of the file has been read; by a child, perhaps, which shares its position."""
    size = os.fstat(file.fileno()).st_size
    return lambda: os.lseek(file.fileno(), 0, os.SEEK_CUR) / size if size else None


def _of_file(
    path: Path, reader: Iterable[Recorded | StateDigest]
) -> Iterator[Recorded | StateDigest]:
    try:
        yield from reader
    except OSError as error:  # the disk fails in the middle of it
        raise unreadable(path, error) from error


@contextlib.contextmanager
def _open_stream(address: Address, from_snapshot: str | None) -> Iterator[OpenLog]:
    """Everything up to the entry that is the last one now, or what comes after the snapshot."""
    from anyio.from_thread import start_blocking_portal

    from unicron.controlplane.runtime.jetstream import JetStreamLog

    with start_blocking_portal() as portal:
        connect = functools.partial(JetStreamLog.connect, name="cli/reader", create=False)
        log = portal.call(connect, address.url, address.cluster)
        try:
            snapshot = None
            if from_snapshot is not None:
                from unicron.controlplane.cli.from_snapshot import for_stream

                snapshot = portal.call(for_stream, from_snapshot, log, address.shown)
            last = portal.call(log.last_seq)
            birth = portal.call(log.birth)
            began = read = snapshot.seq if snapshot is not None else 0
            batches = _batches(log, began, last)

            def items() -> Iterator[Recorded]:
                nonlocal read
                while read < last:
                    for recorded in portal.call(anext, batches):
                        read = recorded.seq
                        yield recorded

            try:
                yield OpenLog(
                    shown=address.shown,
                    cluster=address.cluster,
                    birth=birth,
                    fold_version=0,
                    items=items(),
                    total=last,
                    fraction=lambda: (read - began) / (last - began) if last > began else None,
                    snapshot=snapshot,
                )
            finally:
                portal.call(batches.aclose)
        finally:
            portal.call(log.close)


async def _batches(log: "JetStreamLog", read: int, last: int) -> AsyncGenerator[list[Recorded]]:
    """The entries after `read` up to `last`, some at a time: each hand-over between threads
    costs."""
    import anyio

    tail = log.read(read + 1)
    try:
        while read < last:
            batch: list[Recorded] = []
            with anyio.fail_after(_NEXT_EVENT_S):
                while len(batch) < min(_BATCH, last - read):
                    batch.append(await anext(tail))
            read += len(batch)
            yield batch
    except TimeoutError:
        raise LogUnreachable(
            f"the log stopped answering after event {read} of {last}",
            fix="check that the server runs, and try again",
        ) from None
    except StopAsyncIteration:
        raise LogBroken(
            f"the log ended after event {read} of {last}",
            first_wrong=read + 1,
            code="E-LOG-SHORT",
        ) from None
    finally:
        await tail.aclose()


def _without_secrets(url: str) -> str:
    """As it was typed, with `HIDDEN` for the password, or for what stands there alone: a token.
    ValueError if it is no address."""
    parts = urlsplit(url if "//" in url else f"nats://{url}")
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    shown = f"{name}:{HIDDEN}@" if colon else f"{HIDDEN}@" if at else ""
    if not parts.hostname:
        raise ValueError("no host")
    port = "" if parts.port else ":4222"
    return f"{parts.scheme}://{shown}{host}{port}"


def log_arguments(log: Log | OpenLog) -> str:
    """The arguments that read the same log again, for commands to copy. Secrets aren't among them:
    `HIDDEN` stands for each, see hidden_words()."""
    name = f"--log {shlex.quote(log.shown)}"
    return f"{name} --cluster {log.cluster}" if log.shown.startswith(SCHEMES) else name


def hidden_words(log: Log | OpenLog) -> str:
    """What `HIDDEN` stands for, if log_arguments() has it; else ""."""
    if not log.shown.startswith(SCHEMES) or HIDDEN not in log.shown:
        return ""
    return f"{HIDDEN} stands for the password or token, which is not shown"
