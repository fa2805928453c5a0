"""Which control planes follow the log, as the server's news of their connections tells."""

from collections.abc import Iterable

from unicron.events import ConnectionClosed, ConnectionOpened, Recorded

_PREFIX = "control/"


def connected(log: Iterable[Recorded]) -> tuple[str, ...]:
    """Names of the instances whose newest connection is open, in order.

    A server that dies says nothing of whom it had: who doesn't connect again is still among them
    then. Where the server's advisories don't reach the log there are none.
    """
    newest: dict[str, tuple[str, int]] = {}
    for recorded in log:
        body = recorded.envelope.body if recorded.envelope is not None else None
        if not isinstance(body, ConnectionOpened | ConnectionClosed):
            continue
        name = body.client.removeprefix(_PREFIX)
        connection = (body.server, body.client_number)
        if isinstance(body, ConnectionOpened) and name != body.client:
            newest[name] = connection
        elif newest.get(name) == connection:
            del newest[name]
    return tuple(sorted(newest))
