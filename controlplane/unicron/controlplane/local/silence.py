"""Processes that all wait for, and that stand still: most likely stopped by SIGSTOP."""

from collections.abc import Callable

import msgspec

from unicron.controlplane.local import processes

#: A process of which nothing is heard for so long is told of.
SILENT_S = 3.0


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """One to look at. `busy`: it has something to do many times a second as long as it lives; if it
    does nothing for long, something holds it even where no signal has stopped it."""

    name: str
    pid: int
    busy: bool


class Silence:
    """Looks at processes now and then. `tell` gets a line when one falls silent, for how long it is
    waited for, and when it is heard again."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._heard: dict[str, tuple[int, int, float]] = {}
        self._silent: dict[str, float] = {}
        self._limited: set[str] = set()

    def look(self, watched: Watched, now: float, gives_up: float | None = None) -> None:
        """`now`: monotonic seconds; `gives_up`: when whoever waits for it will, None if nobody
        waits."""
        seen = processes.activity(watched.pid)
        if seen is None:
            return  # it has ended, which others notice
        stopped, turns = seen
        pid, before, since = self._heard.get(watched.name, (0, -1, now))
        moves = turns != before if watched.busy else not stopped
        if moves or pid != watched.pid:
            self._heard[watched.name] = (watched.pid, turns, now)
            began = self._silent.pop(watched.name, None)
            if began is not None:
                self._tell(f"{watched.name} is heard again, after {now - began:.0f} s")
            self._limited.discard(watched.name)
            return
        if now - since < SILENT_S:
            return
        if watched.name not in self._silent:
            self._silent[watched.name] = since
            cure = f"is stopped (kill -CONT {pid} lets it go on)" if stopped else "stands still"
            silent = f"nothing heard from {watched.name} for {now - since:.0f} s"
            self._tell(f"{silent}: its process {pid} {cure}")
        if gives_up is not None and watched.name not in self._limited:
            self._limited.add(watched.name)
            self._tell(f"waiting for {watched.name} {gives_up - now:.0f} s at most")
