"""The server's own reports of closed and opened connections.

They stand in the stream as the server wrote them (raw JSON, no envelope); the codec maps them
by their subject. They are evidence, not a verdict.
"""

from unicron.events.base import Fact


class ConnectionClosed(Fact, frozen=True, kw_only=True, tag="connection.closed.v1"):
    """A client's connection to the log's server ended. `client` is the name it connected with:
    ``agent/<node>/<incarnation>`` or ``worker/<worker>/<incarnation>`` for ours."""

    client: str
    server: str
    client_number: int
    reason: str


class ConnectionOpened(Fact, frozen=True, kw_only=True, tag="connection.opened.v1"):
    """A client connected to the log's server."""

    client: str
    server: str
    client_number: int
