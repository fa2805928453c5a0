"""What Linux tells about a process and does for one."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot. Raises OSError if it is gone."""
    return int(_stat_fields(pid)[19])


def is_running(pid: int) -> bool:
    """The process exists and has not ended; a zombie has."""
    try:
        return _stat_fields(pid)[0] not in (b"Z", b"X")
    except OSError:
        return False


def thread_count() -> int:
    """Threads of the calling process, also those no Python module knows of."""
    return len(os.listdir("/proc/self/task"))


def die_with_parent(parent: int) -> None:
    """Have the kernel send this process SIGTERM when `parent`, which must be its parent, ends.

    The kernel means the parent's *thread* that made this process: make it from one that stays.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), signal.SIGTERM)


def _stat_fields(pid: int) -> list[bytes]:
    """Fields of /proc/<pid>/stat from the third on: the second may hold spaces and brackets."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()
