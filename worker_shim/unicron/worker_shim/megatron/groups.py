"""A member's process groups: built apart, entered for a generation, left, entered again.

Model, DDP and optimizer hold ProcessGroup objects by value, in some seventy places. They are built
once; with each generation the groups in these places are replaced by those of the same role (the
name of the variable in ``megatron/core/parallel_state.py``).
"""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.testing._internal.distributed.fake_pg import FakeStore

from unicron.worker_shim.megatron.errors import CollectiveBroken
from unicron.worker_shim.unblock import Connections, GenerationShut

#: One attempt at the store. torch's client tries again by itself for as long as its limit is, so
#: this bounds how long it goes on after a shut.
_ATTEMPT_S = 0.5
_PAUSE_S = 0.02


@dataclass(frozen=True)
class _Place:
    """Where a group is held: an attribute, a dictionary's value or a list's item."""

    holder: dict[Any, Any] | list[Any]
    key: Any
    role: str


class Groups:
    """Enters and leaves the generations of one task. For the training thread only."""

    def __init__(self, task: str, connections: Connections) -> None:
        self._task = task
        self._connections = connections
        self._places: list[_Place] = []
        self._store: Any = None  # the generation's own client: a TCPStore
        self.generation: int | None = None
        self.rank = -1
        self.size = 0

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """A world of this process alone, on torch's `fake` backend: to build in."""
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
        try:
            parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
            yield
        finally:
            _destroy()

    def remember(self, *holders: Any) -> int:
        """Find the places in `holders` that hold a group, while the groups they were built with
        still are Megatron's current ones. Returns how many."""
        self._places = list(_find(holders))
        return len(self._places)

    def enter(
        self, generation: int, rank: int, size: int, store: tuple[str, int], timeout_s: float
    ) -> None:
        """Connect to the other members and put the new groups in all remembered places.

        `store`: address and port of the rendezvous store of this generation. Blocks until all
        members are there; CollectiveBroken if they aren't after `timeout_s`, or if the
        generation is shut. `timeout_s` limits every later collective as well.
        """
        if self.generation is not None:
            raise RuntimeError(f"still in generation {self.generation}; leave it first")
        with broken(f"entering generation {generation}"):
            self._connections.begin(generation, size)
            self.generation, self.rank, self.size = generation, rank, size
            try:
                self._connect(generation, store, timeout_s)
                _rebind(self._places)
                self._connections.check()
            except BaseException:
                self.leave()
                raise

    def _connect(self, generation: int, store: tuple[str, int], timeout_s: float) -> None:
        limit = timedelta(seconds=timeout_s)
        # One client, one connection with a lock: whoever shares it waits for the others' waits.
        self._store = self._open(*store, timeout_s)
        self._store.set_timeout(limit)
        self._connections.check()
        dist.init_process_group(
            "gloo",
            store=PrefixStore(f"{self._task}/{generation}", self._store),
            rank=self.rank,
            world_size=self.size,
            timeout=limit,
        )
        self._connections.check()
        parallel_state.initialize_model_parallel(
            create_gloo_process_groups=False,
            # It becomes a timedelta, so half a minute is fine, whatever the annotation says.
            distributed_timeout_minutes=timeout_s / 60,  # pyright: ignore[reportArgumentType]
        )

    def _open(self, address: str, port: int, timeout_s: float) -> Any:
        """A client of the store, as soon as that is there."""
        end = time.monotonic() + timeout_s
        attempt = timedelta(seconds=_ATTEMPT_S)
        while True:
            self._connections.check()
            try:
                # A look of our own first: torch's client waits half a second between two.
                socket.create_connection((address, port), timeout=_ATTEMPT_S).close()
                return TCPStore(
                    address, port, is_master=False, timeout=attempt, wait_for_workers=False
                )
            except (OSError, RuntimeError) as error:
                if time.monotonic() > end:
                    raise RuntimeError(f"no store at {address}:{port}: {error}") from error
            time.sleep(_PAUSE_S)

    def farewell(self, timeout_s: float) -> None:
        """Wait on the store until all members have finished their last collective, so that none
        tears down what another still reads. CollectiveBroken if one doesn't come in time."""
        with broken("the farewell"):
            keys = [f"{self._task}/{self.generation}/farewell/{rank}" for rank in range(self.size)]
            self._store.set(keys[self.rank], "1")
            self._store.wait(keys, timedelta(seconds=timeout_s))

    def leave(self) -> None:
        """Tear down the generation's groups and connections. Safe after a break, and twice."""
        # Shut first: destroying a group joins its threads, which may wait for a peer.
        self._connections.end()
        old: list[Any] = list(_current_groups().values())
        for place in self._places:
            place.holder[place.key] = None  # nobody uses a dead group by mistake
        _destroy()
        # Some 8 ms for each of a dozen groups, spent waiting for its thread: nobody else waits.
        if old:
            threading.Thread(target=old.clear, name="old-groups", daemon=True).start()
        self._store = None
        self.generation = None
        self.rank, self.size = -1, 0

    @property
    def data_parallel(self) -> Any:
        """The group of all replicas (context parallelism included)."""
        return parallel_state.get_data_parallel_group(with_context_parallel=True)


@contextlib.contextmanager
def broken(what: str) -> Iterator[None]:
    """Turn what gloo, the store or a shut generation raise into CollectiveBroken."""
    try:
        yield
    except (RuntimeError, GenerationShut) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        why = _in_short(error)
        raise CollectiveBroken(f"{what} failed", why=why) from error


def _in_short(error: Exception) -> str:
    """What gloo says, without where in its source and its advice."""
    first = (str(error).splitlines() or [""])[0]
    return re.sub(r"\[/[^]]*\] *", "", first).partition(". This is ")[0] or type(error).__name__


def _destroy() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
    # Groups are named by a count, and the names are part of the store's keys. An attempt that broke
    # before there was a default group has counted too: this member would wait for other keys than
    # all the others, for ever.
    dist.distributed_c10d._world.group_count = 0
    parallel_state.destroy_model_parallel()
    for role in _current_groups():  # those it forgets
        setattr(parallel_state, role, None)


def _current_groups() -> dict[str, Any]:
    """Megatron's groups by role; the last by name first, so that a group of two roles ends up
    under the first."""
    return {
        role: group
        for role, group in sorted(vars(parallel_state).items(), reverse=True)
        if isinstance(group, dist.ProcessGroup)
    }


def _rebind(places: list[_Place]) -> None:
    for place in places:
        place.holder[place.key] = getattr(parallel_state, place.role)


def _find(holders: tuple[Any, ...]) -> Iterator[_Place]:
    """Walk from `holders` through Megatron's and torch's objects, depth first, each once."""
    roles = {id(group): role for role, group in _current_groups().items()}
    seen: set[int] = set()
    stack: list[Any] = list(holders)
    while stack:
        holder = stack.pop()
        if id(holder) in seen or isinstance(holder, torch.Tensor | type):
            continue
        seen.add(id(holder))
        for container, key, value in _contents(holder):
            if isinstance(value, dist.ProcessGroup):
                yield _Place(container, key, roles[id(value)])
            else:
                stack.append(value)


def _contents(holder: Any) -> list[tuple[Any, Any, Any]]:
    """What `holder` holds: (container that can be assigned to, key, value)."""
    if isinstance(holder, dict):
        return [(holder, key, value) for key, value in holder.items()]
    if isinstance(holder, list):
        return [(holder, index, value) for index, value in enumerate(holder)]
    if isinstance(holder, tuple | set | frozenset):
        return [(None, None, value) for value in holder]
    module = type(holder).__module__
    if module.startswith(("megatron.", "torch.nn", "torch.optim")) and hasattr(holder, "__dict__"):
        return [(vars(holder), key, value) for key, value in vars(holder).items()]
    return []
