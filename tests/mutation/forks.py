"""Functions run in forked children, some at a time; what they say comes back over a pipe."""

import os
import pickle
import selectors
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

#: A child's function is given this to say something (any bytes) while it runs.
Say = Callable[[bytes], None]
Job = Callable[[Say], None]


@dataclass(slots=True)
class Ended:
    """How a child ended: `status` is its exit status, negative for a signal; `said`: all it
    said."""

    status: int
    said: bytes


@dataclass(slots=True)
class _Child:
    pid: int
    key: Any
    said: bytearray = field(default_factory=bytearray)


def run_all(
    jobs: Iterable[tuple[Any, Job]], at_once: int, *, quiet: bool = True
) -> Iterator[tuple[Any, Ended]]:
    """Run each job in a child of its own; yields (key, how it ended) as they end. The next job is
    taken from the iterable when there is room for it. `quiet`: what they print goes nowhere."""
    waiting = iter(jobs)
    with selectors.DefaultSelector() as selector:
        more = True
        while True:
            while more and len(selector.get_map()) < at_once:
                found = next(waiting, None)
                if found is None:
                    more = False
                else:
                    key, job = found
                    pipe, pid = _fork(job, quiet=quiet)
                    selector.register(pipe, selectors.EVENT_READ, _Child(pid, key))
            if not selector.get_map():
                return
            for ready, _ in selector.select():
                child = ready.data
                data = os.read(ready.fd, 65536)
                child.said += data
                if not data:
                    selector.unregister(ready.fd)
                    os.close(ready.fd)
                    _, status = os.waitpid(child.pid, 0)
                    yield child.key, Ended(os.waitstatus_to_exitcode(status), bytes(child.said))


def _fork(job: Job, *, quiet: bool) -> tuple[int, int]:
    """The reading end of its pipe and the pid."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return reading, pid
    status = 70
    try:
        os.close(reading)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2) if quiet else (0,):
            os.dup2(silence, stream)
        job(lambda data: _write(writing, data))
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        _write(writing, b"\n" + traceback.format_exc().encode())
    finally:
        os._exit(status)


def _write(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


def call(function: Callable[[], Any]) -> Any:
    """What the function returns when a child of its own calls it.

    Raises:
        RuntimeError: the child failed; with what it said.
    """

    def job(say: Say) -> None:
        say(pickle.dumps(function()))

    ((_, ended),) = run_all([(None, job)], 1, quiet=False)
    if ended.status:
        raise RuntimeError(
            f"child ended with {ended.status}: {ended.said.decode(errors='replace')}"
        )
    return pickle.loads(ended.said)


def limit(cpu_s: float, wall_s: float) -> None:
    """From now on: the process is killed (SIGPROF, SIGALRM) once it has used or taken so much."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


#: Statuses of a child that ran into a limit.
OVERRUN = (-signal.SIGPROF, -signal.SIGALRM)
