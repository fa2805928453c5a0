"""Runs the reference: the same task at a constant size, undisturbed, without a control plane."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from unicron.controlplane.local.cluster import ClusterFailed
from unicron.controlplane.local.measure import Work, read_work
from unicron.events import TaskSpec
from unicron.worker_shim.forkclient import ForkClient
from unicron.worker_shim.forkprotocol import Exited

_LIMIT_S = 600.0


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Its final state's digest and what it computed."""

    state_digest: str
    work: Work


async def run_reference(
    root: Path,
    template: str,
    spec: TaskSpec,
    ranks: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Reference:
    """Fork `ranks` workers from the fork server listening at `template` and wait for their end.

    A folder below `root` takes its files. `progress` is told the iterations committed so far.
    Raises ClusterFailed, ForkServerError.
    """
    folder = root / f"reference-{spec.task}"
    folder.mkdir()
    ended: dict[int, Exited] = {}
    client = await ForkClient.connect(template, lambda e: ended.update({e.pid: e}))
    pids: list[int] = []
    try:
        store, port = await client.start_store("reference", "127.0.0.1", "unicron: reference store")
        pids.append(store)
        for rank in range(ranks):
            pid = await client.call(
                "unicron.worker_shim.reference:run",
                f"unicron: reference worker {spec.task} rank {rank}",
                str(folder / f"{rank}.log"),
                spec=msgspec.json.encode(spec).decode(),
                rank=rank,
                ranks=ranks,
                store_port=port,
                folder=str(folder),
            )
            pids.append(pid)
        await _wait(client, folder, ranks, pids[1:], ended, progress)
    finally:
        for pid in pids:
            with contextlib.suppress(Exception):
                await client.kill(pid, 9)
        await client.close()
    digests = {json.loads((folder / f"{r}.json").read_text())["state_digest"] for r in range(ranks)}
    if len(digests) != 1:
        raise ClusterFailed("the members of the reference run differ from each other")
    work = read_work(sorted(folder.glob("*.journal")))
    return Reference(state_digest=digests.pop(), work=work)


async def _wait(
    client: ForkClient,
    folder: Path,
    ranks: int,
    pids: list[int],
    ended: dict[int, Exited],
    progress: Callable[[int], None],
) -> None:
    until = time.monotonic() + _LIMIT_S
    wanted = [folder / f"{rank}.json" for rank in range(ranks)]
    while not all(path.exists() for path in wanted):
        for rank, pid in enumerate(pids):
            if pid in ended and not wanted[rank].exists():
                tail = (folder / f"{rank}.log").read_text(errors="replace")[-1000:]
                raise ClusterFailed(f"rank {rank} of the reference run ended", why=tail)
        if client.is_closed:
            raise ClusterFailed("the fork server that started its processes was killed")
        if time.monotonic() > until:
            raise ClusterFailed(f"the reference run took longer than {_LIMIT_S:.0f} s")
        done = max((i for _, i, _ in read_work([folder / "0.journal"]).commits), default=-1)
        progress(done + 1)
        await asyncio.sleep(0.25)
