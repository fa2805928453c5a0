"""``unicron up``: a control plane in the foreground, with a server of its own if none is given."""

import asyncio
import json
from pathlib import Path

import click

from unicron.controlplane.cli.options import json_option, verbose_option
from unicron.controlplane.cli.output import emit


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
        data.mkdir(parents=True, exist_ok=True)
        async with NatsServer(data, cluster, port=port) as server:
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
                await serve(server.url, cluster, tasks=specs, when_nodes=when_nodes)
            finally:
                nodes.unlink(missing_ok=True)

    asyncio.run(run())
