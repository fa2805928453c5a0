"""The embedded control plane with a host that launches real workers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.real.world import ITERATIONS, small_task
from unicron import controlplane as cp
from unicron.controlplane.local import processes
from unicron.controlplane.local.reference import Reference
from unicron.events import ClusterId, ExceptionReported, MemberFinished, NodeId
from unicron.worker_shim import WorkerLaunch
from unicron.worker_shim.forkclient import ForkClient
from unicron.worker_shim.forkprotocol import Exited
from unicron.worker_shim.launch import worker_files


class Host(cp.Scheduler):
    """Two nodes on this machine, and one fork server for both."""

    def __init__(self, folder: Path, template: str) -> None:
        self.folder = folder
        self.template = template
        self.client: ForkClient | None = None
        self.stores: list[int] = []
        self.pids: dict[str, int] = {}
        self._workers: dict[tuple[str, int], cp.HostedWorker] = {}

    async def start(self) -> None:
        template = await ForkClient.connect(self.template, lambda _: None)
        socket = str(self.folder / "fork.sock")
        await template.start_fork_server(socket, "unicron: fork server of a host")
        await template.close()
        self.client = await ForkClient.connect(socket, self._on_exit)

    async def close(self) -> None:
        assert self.client is not None
        await self.client.shutdown()

    async def nodes(self) -> AsyncIterator[cp.NodeChange]:
        assert self.client is not None
        for node in (NodeId("n1"), NodeId("n2")):
            pid, port = await self.client.start_store(node, "127.0.0.1", f"unicron: store {node}")
            self.stores.append(pid)
            yield cp.NodeOffered(node=node, devices=2, store_port=port)

    async def launch(self, worker: cp.HostedWorker) -> int:
        assert self.client is not None
        folder = self.folder / worker.node
        folder.mkdir(exist_ok=True)
        files = worker_files(str(folder), worker.device, worker.incarnation)
        self._workers[worker.name, worker.incarnation] = worker
        worker.watch_page(files.page)
        self.pids[worker.name] = await self.client.start_worker(
            WorkerLaunch(
                cluster=ClusterId("t"),
                spec=worker.spec,
                worker=worker.name,
                incarnation=worker.incarnation,
                node=worker.node,
                device=worker.device,
                nats_url=worker.nats,
                page_path=files.page,
                journal_path=files.journal,
                log_path=files.log,
            )
        )
        return self.pids[worker.name]

    async def stop(self, worker: cp.HostedWorker, grace_ms: int) -> None:
        assert self.client is not None
        number = signal.SIGTERM if grace_ms else signal.SIGKILL
        await self.client.kill(self.pids[worker.name], number)

    def _on_exit(self, exited: Exited) -> None:
        worker = self._workers.pop((exited.name, exited.incarnation), None)
        if worker is not None:
            worker.exited(code=exited.code, signal=exited.signal)


@pytest.mark.real
async def test_real_workers_of_a_host_survive_a_kill_bit_by_bit(
    template: str, reference: Reference, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("e")
    before = set(processes.descendants(os.getpid()))
    host = Host(folder, template)
    await host.start()
    try:
        async with cp.ControlPlane("t", scheduler=host) as plane:
            await plane.submit(small_task(ITERATIONS))
            await plane.until(lambda s: len(s.tasks["gpt"].committed) == 4, limit_s=90)
            os.kill(host.pids["n2/1"], signal.SIGKILL)
            state = await plane.until(lambda s: bool(s.tasks["gpt"].outcome), limit_s=90)
            history = await plane.history()
    finally:
        await host.close()
    bodies = [r.envelope.body for r in history if r.envelope is not None]
    (incident,) = state.incidents.values()
    assert (incident.severity, incident.worker) == (2, "n2/1")
    assert not [b for b in bodies if isinstance(b, ExceptionReported)]
    digests = {b.state_digest for b in bodies if isinstance(b, MemberFinished)}
    assert digests == {reference.state_digest}
    assert cp.Replayer(history).verify().verified
    async with asyncio.timeout(10):
        while set(processes.descendants(os.getpid())) - before:
            await asyncio.sleep(0.05)
