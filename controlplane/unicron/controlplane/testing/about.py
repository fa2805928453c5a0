"""Whom an entry of the log is about."""

from unicron.events import Envelope


def is_about(envelope: Envelope, name: str) -> bool:
    """Is the entry about that node, worker, task or instance, or written by it?"""
    body = envelope.body
    named = [getattr(body, field, None) for field in ("task", "worker", "node", "instance")]
    named.append(getattr(getattr(body, "spec", None), "task", None))
    if name in named:
        return True
    # A client's name is kind/name/incarnation; a source's is kind/name.
    client = str(getattr(body, "client", "")).rpartition("/")[0]
    return name in (client.partition("/")[2], envelope.source.who.partition("/")[2])
