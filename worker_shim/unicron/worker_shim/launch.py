"""What a worker process is started with, and the names of its files and title."""

import os

import msgspec

from unicron.events.ids import ClusterId, Incarnation, NodeId, WorkerId
from unicron.events.task import TaskSpec
from unicron.worker_shim.spool import SUFFIX

#: Titles of the product's processes begin with this; a reference run passes another.
TITLE_PREFIX = "unicron:"


class WorkerLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs; sent as JSON to the fork server, never through argv or a file,
    because `nats_url` may hold a password.

    `page_path`, `journal_path`, `log_path`: files this incarnation writes (page.py, journal.py;
    the log gets stdout and stderr). `spool_path`: where its facts wait for the log, for an agent
    to deliver them if it can't itself; "" for memory only. `fault_injection`: the page's
    breakpoint is honoured.
    """

    cluster: ClusterId
    spec: TaskSpec
    worker: WorkerId
    incarnation: Incarnation
    node: NodeId
    device: int
    nats_url: str
    page_path: str
    journal_path: str
    log_path: str
    spool_path: str = ""
    title_prefix: str = TITLE_PREFIX
    fault_injection: bool = False


class WorkerFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where one incarnation of a worker writes."""

    page: str
    journal: str
    log: str
    spool: str


def worker_files(node_dir: str, device: int, incarnation: Incarnation) -> WorkerFiles:
    """Files of one incarnation in its node's directory, ``<run dir>/<node>``."""
    stem = os.path.join(node_dir, f"w{device}.{incarnation}")
    return WorkerFiles(
        page=f"{stem}.page",
        journal=f"{stem}.journal",
        log=f"{stem}.log",
        spool=f"{stem}{SUFFIX}",
    )


def title(launch: WorkerLaunch, rank: int | None = None) -> str:
    """Process title that tells a person at `ps` who this is; `rank` None: not in a world yet."""
    name = f"{launch.title_prefix} worker {launch.worker} {launch.spec.task}"
    return name if rank is None else f"{name} rank {rank}"
