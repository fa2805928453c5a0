"""``unicron up``: a control plane in the foreground, with a server of its own if none is given."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import socket
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli.options import json_option, verbose_option
from unicron.controlplane.cli.output import emit
from unicron.controlplane.cli.stderr_log import logged_on_stderr
from unicron.controlplane.runtime import data_folder
from unicron.events import ConfigError

if TYPE_CHECKING:
    from unicron.controlplane.runtime.natsserver import NatsServer
    from unicron.controlplane.runtime.service import WhoLeads


@click.command()
@click.option("--cluster", required=True, help="Name of the cluster; its log is named after it.")
@click.option("--nats", "url", help="Address of a NATS server with JetStream (2.12 or newer).")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Without --nats: the folder of a server of this control plane's own (kept), which only "
    "this host can reach.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    help="Without --nats: the server's port; a free one if not given.",
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Submit this task (TOML or JSON, such as examples/task.toml) unless the log knows it.",
)
@click.option(
    "--when-nodes",
    type=int,
    default=1,
    show_default=True,
    help="... once so many nodes are healthy.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What plans rest on besides nodes and tasks: quotas, speeds, failure rates (TOML, see "
    "docs/configuration.md). Without it they go on resting on what the log says.",
)
@click.option(
    "--instance",
    help="Name of this control plane among several of the cluster; give it the same one when it is "
    "started again.  [default: a with --data, host and process with --nats]",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 5),
    default=1,
    show_default=True,
    help="With --nats: on how many servers a log that is made now is kept.",
)
@click.option(
    "--snapshots",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep snapshots of the state there, to start from; they are kept on the server as well.  "
    "[default: DATA/snapshots; with --nats only on the server]",
)
@json_option
@verbose_option
def up(
    cluster: str,
    url: str | None,
    data: Path | None,
    port: int | None,
    tasks: tuple[str, ...],
    config: Path | None,
    instance: str | None,
    replicas: int,
    snapshots: Path | None,
    when_nodes: int,
    as_json: bool,
) -> None:
    """Run a control plane for a cluster until it is told to end (Ctrl-C, SIGTERM).

    Start it several times with the same --nats, on different hosts, and one of them leads; the
    others follow the log and say so, and one takes over when the leader ends, dies or hangs.

    Nodes join with: UNICRON_NATS=ADDRESS python -m unicron.worker_shim.agent --cluster CLUSTER
    --node NAME --devices N --run-dir DIR. With --nats that is the address of your server. With
    --data it is written (with its password) into the file nodes.url of the data folder, readable
    by you alone; reader.url beside it holds one that can only read the log. Both last as long as
    the control plane runs.

    Read its log meanwhile with the folder (unicron status --log DATA, unicron replay --log DATA
    --export FILE) or with the address (unicron status --log nats://HOST:PORT --cluster CLUSTER).

    With --json stdout has a line for each thing that is said: where the addresses are, and then,
    whenever that changes, the role of this instance and who leads.
    """
    if (url is None) == (data is None):
        raise click.UsageError("give either --nats or --data")
    if data is not None and replicas > 1:
        raise click.UsageError("--replicas needs --nats: the server of --data is one alone")
    if url is not None:
        _check_address(url)
    name = instance or (_own_name() if url is not None else "a")
    from unicron.controlplane.runtime.configfile import read_configuration
    from unicron.controlplane.runtime.service import serve
    from unicron.controlplane.runtime.taskfile import read_tasks

    work = partial(
        serve,
        cluster=cluster,
        instance=name,
        tasks=read_tasks(list(tasks)),
        when_nodes=when_nodes,
        replicas=replicas,
        planning=read_configuration(config).planning if config is not None else None,
        snapshots=snapshots or (data / data_folder.SNAPSHOTS if data is not None else None),
        tell=_say,
        changed=_emit_role if as_json else lambda _: None,
    )

    async def run() -> None:
        if url is not None:
            await work(url)
            return
        from unicron.controlplane.runtime.natsserver import NatsServer
        from unicron.controlplane.runtime.serverdisk import keep_writable

        assert data is not None
        async with NatsServer(data, cluster, port=port or data_folder.port_of(data)) as server:
            with data_folder.addresses(data, server):
                emit(_started(cluster, data, as_json=as_json))
                await _beside(server, work(server.url), keep_writable(server, _say))

    mine = data_folder.alone(data, cluster) if data is not None else contextlib.nullcontext()
    with mine, logged_on_stderr():
        asyncio.run(run())
    _say(f"control plane {name} of cluster {cluster} ended; tasks train on without it")


def _say(text: str) -> None:
    """On stderr: stdout holds addresses, and all of --json."""
    click.echo(text, err=True)


def _check_address(url: str) -> None:
    """ConfigError if it is a path, such as the data folder of another `unicron up`."""
    if url.startswith((".", "/", "~")) or Path(url).exists():
        raise ConfigError(
            f"{url} is no address of a NATS server",
            why="with --data a control plane is alone on a server of its own; several share one "
            "that is yours",
            fix="--nats nats://user:password@host:port, see docs/failover.md",
            code="E-NATS-ADDRESS",
        )


def _own_name() -> str:
    """Of one of several control planes that were given no name: whatever tells them apart."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname().partition(".")[0]).strip("-")
    return f"{host[:40] or 'host'}-{os.getpid()}"


def _emit_role(who: "WhoLeads") -> None:
    import msgspec

    emit(json.dumps({"schema": "unicron.up.role/1", **msgspec.to_builtins(who)}))


def _started(cluster: str, data: Path, *, as_json: bool) -> str:
    nodes, reader = data / data_folder.NODES, data / data_folder.READER
    if as_json:
        said = {"schema": "unicron.up/1", "cluster": cluster}
        return json.dumps({**said, "nodes": str(nodes), "reader": str(reader)})
    return (
        f"nats-server of cluster {cluster} runs; address for nodes: {nodes}\n"
        f"to read the log meanwhile: unicron status --log {shlex.quote(str(data))}"
    )


async def _beside(
    server: "NatsServer", work: Coroutine[None, None, None], care: Coroutine[None, None, None]
) -> None:
    """Do `work`, and `care` meanwhile; ConfigError if the server ends before the work."""
    serving, caring = asyncio.ensure_future(work), asyncio.ensure_future(care)
    ended = asyncio.ensure_future(server.wait())
    try:
        await asyncio.wait({serving, caring, ended}, return_when=asyncio.FIRST_COMPLETED)
        if caring.done():
            caring.result()
        elif not serving.done():
            raise ConfigError(
                "the nats-server of this control plane ended",
                why=f"exit code {ended.result()}",
                fix="start it again; tasks train on meanwhile",
                code="E-NATS-ENDED",
            )
        serving.result()
    finally:
        for task in (serving, caring, ended):
            task.cancel()
        await asyncio.wait({serving, caring, ended})
