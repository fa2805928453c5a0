"""A log on NATS, from its first entry on and then as it grows."""

import contextlib
import functools
from collections.abc import Iterator

from unicron.controlplane.cli.log_source import address_of
from unicron.events import ConfigError, Recorded, subjects


@contextlib.contextmanager
def following(log: str, cluster: str | None) -> Iterator[tuple[int, Iterator[Recorded]]]:
    """The sequence of the last entry now, and all entries, which never end.

    Raises:
        ConfigError: it is no address, or there is no such server.
        LogUnreachable: the server stopped answering.
    """
    if cluster is not None:
        subjects.check_cluster(cluster)
    address = address_of(log, cluster)
    if address is None:
        raise ConfigError(
            f"{log} can't be followed",
            why="a file doesn't grow",
            fix="leave out --follow, or give a NATS address or the data folder of `unicron up`",
            code="E-CONFIG-FOLLOW",
        )
    from anyio.from_thread import start_blocking_portal

    from unicron.controlplane.runtime.jetstream import JetStreamLog

    with start_blocking_portal() as portal:
        connect = functools.partial(JetStreamLog.connect, name="cli/reader", create=False)
        stream = portal.call(connect, address.url, address.cluster)
        try:
            last = portal.call(stream.last_seq)
            tail = stream.read(1)

            def entries() -> Iterator[Recorded]:
                while True:
                    yield portal.call(anext, tail)

            try:
                yield last, entries()
            finally:
                portal.call(tail.aclose)
        finally:
            portal.call(stream.close)
