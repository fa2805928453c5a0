"""Texts that are too long for the log, in a stream of their own beside it.

Agents write there and nobody else needs to; a subject takes one message only, so what was written
stays as it is. The stream is bounded in size and age. Nothing depends on it: it is for people.
"""

import base64
import logging
from typing import Final

import anyio
import msgspec

from unicron.controlplane.runtime.jetstream.connection import ApiRefused, Connection, NoAnswer
from unicron.events import ConfigError, LongText, NodeId, subjects
from unicron.events.texts import TEXT_MAX_BYTES, is_whole, part_count

log = logging.getLogger(__name__)

#: Of all texts together, and for how long each is kept.
MAX_BYTES: Final = 256 * 1024 * 1024
MAX_AGE_S: Final = 30 * 24 * 3600

_AGAIN_S: Final = 5.0
_NAME_IN_USE: Final = 10058
#: Not enough of the servers are there, perhaps for now.
_NO_PEERS: Final = (10005, 10074)
_NOT_THERE: Final = (10037, 10059)


class _Message(msgspec.Struct, frozen=True):
    data: str = ""


class _Answer(msgspec.Struct, frozen=True):
    message: _Message


async def ensure_texts(connection: Connection, cluster: str, *, replicas: int) -> None:
    """Make the stream if it isn't there; waits for a server that is away. If it may not be made
    that is logged: texts wait on the nodes' disks then."""
    name = subjects.text_stream(cluster)
    body = {
        "name": name,
        "subjects": [subjects.text_tree(cluster)],
        "storage": "file",
        "num_replicas": replicas,
        "max_msgs_per_subject": 1,
        "discard": "new",
        "discard_new_per_subject": True,
        "max_bytes": MAX_BYTES,
        "max_age": MAX_AGE_S * 1_000_000_000,
        "deny_delete": True,
    }
    while True:
        try:
            await connection.api(f"STREAM.CREATE.{name}", body, dict)
        except NoAnswer:
            await anyio.sleep(_AGAIN_S)
            continue
        except ApiRefused as refused:
            if refused.err_code in _NO_PEERS:
                await anyio.sleep(_AGAIN_S)
                continue
            if refused.err_code != _NAME_IN_USE:  # made otherwise, by an operator: as good
                log.warning("there is no stream for long texts: %s", refused.what)
        except ConfigError as error:
            log.warning("there is no stream for long texts: %s", error)
        return


async def read_text(
    connection: Connection, cluster: str, node: NodeId, text: LongText
) -> str | None:
    """The whole text; None if it isn't there, or not all of it. LogUnreachable if there is no
    answer, ConfigError if it may not be read."""
    if text.size > TEXT_MAX_BYTES:
        return None
    parts: list[bytes] = []
    for number in range(part_count(text)):
        subject = subjects.text(cluster, node, text.sha256, number)
        try:
            answer = await connection.api(
                f"STREAM.MSG.GET.{subjects.text_stream(cluster)}",
                {"last_by_subj": subject},
                _Answer,
            )
        except ApiRefused as refused:
            if refused.err_code in _NOT_THERE:
                return None
            raise
        parts.append(base64.b64decode(answer.message.data))
    data = b"".join(parts)
    return data.decode(errors="replace") if is_whole(text, data) else None
