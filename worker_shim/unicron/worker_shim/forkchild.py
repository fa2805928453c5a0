"""The child's side of a fork: what each kind of child does. It never returns into the server."""

import contextlib
import faulthandler
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import setproctitle

from unicron.worker_shim.forkprotocol import CallFunction, StartStore
from unicron.worker_shim.launch import WorkerLaunch, title
from unicron.worker_shim.store import host_store

#: Signals the server handles, held back around a fork so that no child runs its handlers.
SERVER_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)

#: What a child tells its server through a pipe once it is ready: a port, or 0.
Report = Callable[[int], None]


def run_child(body: Callable[[], int | None]) -> NoReturn:
    """Run `body` in the fresh child and end the process with its return value as exit code.

    An exception is written to stderr and gives 1. Neither atexit handlers nor the server's
    open descriptors' buffers run here.
    """
    code: int | None = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in SERVER_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SERVER_SIGNALS)
        os.setsid()  # a terminal's Ctrl-C is for the one who supervises us
        code = body()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code or 0)


def worker_body(launch: WorkerLaunch, entry: str) -> int | None:
    """The worker's process, up to its own main."""
    redirect(launch.log_path)
    setproctitle.setproctitle(title(launch))
    result = resolve(entry)(launch)
    return result if isinstance(result, int) else 0


def store_body(request: StartStore, entry: str, report: Report) -> int | None:
    """The store's host. `entry`: "" for ours; tests give one that needs no torch."""
    setproctitle.setproctitle(request.title)
    host = resolve(entry) if entry else host_store
    host(request.address, report)
    return 0


def call_body(request: CallFunction) -> int | None:
    """Any function, for reference runs and tests."""
    redirect(request.log_path)
    setproctitle.setproctitle(request.title)
    result = resolve(request.function)(**request.arguments)
    return result if isinstance(result, int) else 0


def resolve(entry: str) -> Callable[..., Any]:
    """The function ``module:function`` names. Raises ImportError or AttributeError."""
    module, _, function = entry.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def redirect(log_path: str) -> None:
    """Send stdout and stderr to the end of the file, unbuffered by line; read nothing."""
    fd = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    os.close(nothing)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    faulthandler.enable(file=sys.stderr)
