"""The subjects of the stream and of the messages beside it; the one place that spells them.

``unicron.<cluster>.fact.<node>``            facts of a node's agent and shims (stream)
``unicron.<cluster>.control.<kind>.<name>``  the leader's tree, fenced as a whole (stream)
``unicron.<cluster>.advisory.<kind>``        the server's connection advisories (stream)
``unicron-order.<cluster>.<kind>.<name>``    durable decisions, republished by the server
``unicron-beat.<cluster>.<node>``            heartbeats with progress, never stored
``unicron-ask.<cluster>.<task>``             a shim or agent asks for the current order again
``unicron-text.<cluster>.<node>.<sha256>.<part>``  what is too long for the log; own stream
"""

import functools
import re

from unicron.events.errors import ConfigError
from unicron.events.ids import NodeId, TaskId

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def check_cluster(cluster: str) -> None:
    """ConfigError unless `cluster` can be part of subjects, stream and file names."""
    if not _NAME.fullmatch(cluster):
        raise ConfigError(
            f"{cluster!r} can't be the name of a cluster",
            why="it becomes part of subjects and file names",
            fix="use 1 to 64 letters, digits, - and _, beginning with a letter or digit",
            code="E-CONFIG-CLUSTER",
        )


def stream_name(cluster: str) -> str:
    """Name of the cluster's stream."""
    return f"UNICRON_{cluster}"


def lease_bucket(cluster: str) -> str:
    """Name of the key-value bucket with the lease of the cluster's control plane."""
    return f"UNICRON_{cluster}_lease"


def snapshot_bucket(cluster: str) -> str:
    """Name of the object store with snapshots of the cluster's state."""
    return f"UNICRON_{cluster}_snapshots"


def text_stream(cluster: str) -> str:
    """Name of the stream with what is too long for the log."""
    return f"TEXTS_UNICRON_{cluster}"


def text_tree(cluster: str) -> str:
    """What that stream stores."""
    return f"unicron-text.{cluster}.>"


def text(cluster: str, node: NodeId, sha256: str, part: int) -> str:
    """Where one part of a text of that digest lies, counted from 0."""
    return f"unicron-text.{cluster}.{node}.{sha256}.{part}"


def stream_subjects(cluster: str) -> list[str]:
    """What the cluster's stream stores."""
    return [f"unicron.{cluster}.{tree}.>" for tree in ("fact", "control", "advisory")]


@functools.lru_cache(maxsize=4096)
def tree_of(subject: str) -> str:
    """``fact``, ``control`` or ``advisory``; "" if it is no subject of a stream of ours."""
    parts = subject.split(".", 3)
    return parts[2] if len(parts) == 4 and parts[0] == "unicron" else ""


def fact(cluster: str, node: NodeId) -> str:
    """Facts of one node."""
    return f"unicron.{cluster}.fact.{node}"


def control(cluster: str, kind: str, name: str) -> str:
    """A decision about `name`; `kind` is ``task``, ``node`` or ``cluster``."""
    return f"unicron.{cluster}.control.{kind}.{name}"


def control_tree(cluster: str) -> str:
    """The tree that the fence covers."""
    return f"unicron.{cluster}.control.>"


def order(cluster: str, kind: str, name: str) -> str:
    """Where the durable decision about `name` is heard."""
    return f"unicron-order.{cluster}.{kind}.{name}"


def order_of(control_subject: str) -> str:
    """Where the durable decision stored under `control_subject` is heard."""
    _, cluster, _, rest = control_subject.split(".", 3)
    return f"unicron-order.{cluster}.{rest}"


def order_tree(cluster: str) -> str:
    """Where all durable decisions are heard."""
    return f"unicron-order.{cluster}.>"


def advisory(cluster: str, kind: str) -> str:
    """The server's advisory; `kind` is ``connect`` or ``disconnect``."""
    return f"unicron.{cluster}.advisory.{kind}"


def beat(cluster: str, node: NodeId) -> str:
    """Heartbeats of one node's agent."""
    return f"unicron-beat.{cluster}.{node}"


def ask(cluster: str, task: TaskId) -> str:
    """Ask the leader to say the task's (or node's) current orders again."""
    return f"unicron-ask.{cluster}.{task}"
