"""The host of a rendezvous store: a process of its own, because the store's threads would make
its fork server unable to fork, and its agent unable to end."""

import signal
import socket
from collections.abc import Callable
from datetime import timedelta


def host_store(address: str, report: Callable[[int], None]) -> None:
    """Host a TCPStore at `address`, on a port the kernel chooses, until killed.

    `report` gets the port once it is bound. Raises OSError if `address` isn't this host's.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # We bind: left to itself the store listens on all addresses of the host.
    listener = socket.create_server((address, 0), backlog=1024)
    port = listener.getsockname()[1]
    store = TCPStore(
        host_name=address,
        port=port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=30),
        master_listen_fd=listener.detach(),
    )
    report(port)
    while store is not None:
        signal.pause()
