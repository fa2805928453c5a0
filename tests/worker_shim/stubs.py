"""What forked children run in tests: stands in for a worker's main and for the store's host."""

import json
import os
import signal
import socket
import sys
import time

from unicron.worker_shim.page import Phase, ProgressPage


def run(launch):
    """A worker that makes progress and never ends by itself. Its task's name tells it more:
    ``exit-<code>``, ``raise``, ``stubborn`` (ignores SIGTERM)."""
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
    iteration = 0
    while True:
        page.set(generation=1, iteration=iteration, micro_batches_done=2)
        page.enter(Phase.FORWARD)
        iteration += 1
        time.sleep(0.005)


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
