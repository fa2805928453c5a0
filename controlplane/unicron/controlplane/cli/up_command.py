"""``unicron up``: a control plane in the foreground, with a server of its own if none is given."""

import asyncio
import contextlib
import fcntl
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli.options import json_option, verbose_option
from unicron.controlplane.cli.output import emit
from unicron.events import ConfigError

if TYPE_CHECKING:
    from unicron.controlplane.runtime.natsserver import NatsServer


@click.command()
@click.option("--cluster", required=True, help="Name of the cluster; its log is named after it.")
@click.option("--nats", "url", help="Address of a NATS server with JetStream (2.12 or newer).")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Without --nats: the folder of a server of this control plane's own (kept).",
)
@click.option(
    "--port", type=int, help="Without --nats: the server's port; a free one if not given."
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Submit this task (TOML or JSON, a TaskSpec of docs/events.md) unless the log knows it.",
)
@click.option("--when-nodes", type=int, default=1, show_default=True, help="... at so many nodes.")
@json_option
@verbose_option
def up(
    cluster: str,
    url: str | None,
    data: Path | None,
    port: int | None,
    tasks: tuple[str, ...],
    when_nodes: int,
    as_json: bool,
) -> None:
    """Run a control plane for a cluster until it is told to end (Ctrl-C, SIGTERM).

    Nodes join with: UNICRON_NATS=ADDRESS python -m unicron.worker_shim.agent --cluster CLUSTER
    --node NAME --devices N --run-dir DIR. The address for them is printed (with its password) into
    the file nodes.url of the data folder, readable by you alone.
    """
    if (url is None) == (data is None):
        raise click.UsageError("give either --nats or --data")
    from unicron.controlplane.runtime.service import serve
    from unicron.controlplane.runtime.taskfile import read_tasks

    specs = read_tasks(list(tasks))

    async def run() -> None:
        if url is not None:
            await serve(url, cluster, tasks=specs, when_nodes=when_nodes)
            return
        from unicron.controlplane.runtime.natsserver import NatsServer

        assert data is not None
        async with NatsServer(data, cluster, port=port or _port_of(data)) as server:
            (data / "port").write_text(server.url.rpartition(":")[2])
            nodes = data / "nodes.url"
            nodes.touch(mode=0o600)
            nodes.write_text(server.node_url + "\n")
            if as_json:
                emit(
                    json.dumps({"schema": "unicron.up/1", "cluster": cluster, "nodes": str(nodes)})
                )
            else:
                emit(f"nats-server of cluster {cluster} runs; address for nodes: {nodes}")
            try:
                await _beside(
                    server, serve(server.url, cluster, tasks=specs, when_nodes=when_nodes)
                )
            finally:
                nodes.unlink(missing_ok=True)

    with _alone(data):
        asyncio.run(run())


@contextlib.contextmanager
def _alone(data: Path | None) -> Iterator[None]:
    """Nobody else runs on this folder meanwhile: two servers on one store destroy the log."""
    if data is None:
        yield
        return
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / "lock").open("w")
    except OSError as error:
        raise ConfigError(f"can't use the folder {data}", why=str(error)) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another `unicron up` runs on {data}",
                why="two servers on one store would destroy the log",
                fix="end that one, or give another --data",
                code="E-DATA-IN-USE",
            ) from error
        yield


def _port_of(data: Path) -> int | None:
    """The port of last time, so that agents find the server again."""
    try:
        return int((data / "port").read_text())
    except (OSError, ValueError):
        return None


async def _beside(server: "NatsServer", work: Coroutine[None, None, None]) -> None:
    """Do `work`; ConfigError if the server ends meanwhile."""
    serving, ended = asyncio.ensure_future(work), asyncio.ensure_future(server.wait())
    try:
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            raise ConfigError(
                "the nats-server of this control plane ended",
                why=f"exit code {ended.result()}",
                fix="start it again; tasks train on meanwhile",
                code="E-NATS-ENDED",
            )
        serving.result()
    finally:
        for task in (serving, ended):
            task.cancel()
        await asyncio.wait({serving, ended})
