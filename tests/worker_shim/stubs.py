"""What forked children run in tests: stands in for a worker's main and for the store's host."""

import json
import os
import signal
import socket
import sys
import time

from unicron.events import PeerErrorReported
from unicron.worker_shim.identity import worker_identity
from unicron.worker_shim.page import Phase, ProgressPage
from unicron.worker_shim.spool import SpoolFile
from unicron.worker_shim.thread_transport import ThreadTransport


def run(launch):
    """A worker that makes progress and never ends by itself. Its task's name tells it more:
    ``exit-<code>``, ``raise``, ``stubborn`` (ignores SIGTERM), ``talk`` (tells the log a lot)."""
    page = ProgressPage(
        launch.page_path, launch.incarnation, fault_injection=launch.fault_injection
    )
    task = launch.spec.task
    print(f"stub {launch.worker} {launch.incarnation}")
    if task.startswith("exit-"):
        sys.exit(int(task.removeprefix("exit-")))
    if task == "raise":
        raise RuntimeError("the stub fails")
    if task == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if task == "talk":
        talk(launch)
    iteration = 0
    while True:
        page.set(generation=1, iteration=iteration, micro_batches_done=2)
        page.enter(Phase.FORWARD)
        iteration += 1
        time.sleep(0.005)


def talk(launch):
    """Gives its transport one fact after the other, and writes a byte to a file for each one that
    was taken."""
    identity = worker_identity(launch.cluster, launch.worker, launch.incarnation, "talk")
    spool = SpoolFile(launch.spool_path, identity.owner)
    transport = ThreadTransport(identity, launch.nats_url, lambda *_: None, spool)
    with open(f"{launch.journal_path}.taken", "ab", buffering=0) as taken:
        number = 0
        while True:
            fact = PeerErrorReported(
                task="talk",
                worker=launch.worker,
                incarnation=launch.incarnation,
                generation=1,
                iteration=number,
                phase="reduction",
                error="",
            )
            assert transport.publish(fact)
            taken.write(b"x")
            number += 1
            time.sleep(0.004)


def host_store(address, report):
    """Listens as the store would, without torch."""
    listener = socket.create_server((address, 0))
    report(listener.getsockname()[1])
    while True:
        listener.accept()


def broken_store(address, report):
    raise OSError(f"{address} isn't an address of this host")


def write_environment(path, **more):
    """Writes what a fork finds around it."""
    with open(path + ".new", "w") as file:
        json.dump(
            {
                "threads": len(os.listdir("/proc/self/task")),
                "omp": os.environ.get("OMP_NUM_THREADS"),
                "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
                "session": os.getsid(0) == os.getpid(),
                "torch": "torch" in sys.modules,
                "blocked": [int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
                "more": more,
            },
            file,
        )
    os.rename(path + ".new", path)
    return 3


def use_store(port):
    """Goes through a real TCPStore."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    store.set("key", "value")
    return 0 if store.get("key") == b"value" else 1
