"""Processes below this one: become their subreaper, find them, leave none behind."""

import contextlib
import ctypes
import os
import signal
import time

_PR_SET_CHILD_SUBREAPER = 36
_END_LIMIT_S = 5.0


def become_subreaper() -> None:
    """Orphans among our descendants become our children, so that none escapes `end_all`."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents() -> dict[int, int]:
    """pid -> parent's pid, of every process that is not a zombie."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] != b"Z":
                    found[int(name)] = int(fields[1])
    return found


def descendants(root: int) -> list[int]:
    """Pids of all living processes below `root`."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    result, stack = [], [root]
    while stack:
        for pid in children.get(stack.pop(), []):
            result.append(pid)
            stack.append(pid)
    return result


def title_of(pid: int) -> str:
    """The process's title, "" if it has gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def activity(pid: int) -> tuple[bool, int] | None:
    """Is the process stopped by a signal, and how often its first thread was taken off a processor
    so far, which grows as long as it does anything; None if it has gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
    except OSError:
        return None
    state = fields["State"].split()[0]
    if state in ("Z", "X"):
        return None
    turns = int(fields["voluntary_ctxt_switches"]) + int(fields["nonvoluntary_ctxt_switches"])
    return state in ("T", "t"), turns


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Signal a process; False if it has gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def end_all(pids: set[int] | None = None) -> None:
    """SIGKILL `pids`, or everything below this process, until nothing of it is left, and reap
    what became our child. Gives up after 5 s on a process that can't be killed."""
    me, until = os.getpid(), time.monotonic() + _END_LIMIT_S
    while time.monotonic() < until:
        left = [p for p in descendants(me) if pids is None or p in pids]
        for pid in left:
            kill(pid)
        _reap(pids)
        if not left:
            return
        time.sleep(0.01)


def _reap(pids: set[int] | None) -> None:
    with contextlib.suppress(ChildProcessError):
        if pids is None:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            return
    for pid in pids or ():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
