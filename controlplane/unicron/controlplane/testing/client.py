"""One process of a node towards the log: its connection, its facts, the orders it hears."""

import asyncio
from collections.abc import Callable

from unicron.controlplane.runtime.outcomes import Accepted
from unicron.controlplane.testing.network import ALL, Link
from unicron.controlplane.testing.server import Server
from unicron.events import AnyFact, Envelope, Recorded, Sequence, subjects
from unicron.worker_shim.identity import Identity
from unicron.worker_shim.publisher import FactPublisher
from unicron.worker_shim.spool import Spool

_ACK_LIMIT_S = 2.0


class Client:
    """The shim's and the agent's own publisher, on a simulated connection."""

    def __init__(
        self,
        server: Server,
        identity: Identity,
        link: Link,
        on_order: Callable[[Recorded, Envelope], None],
        *,
        skew_ns: int,
        spool: Spool,
    ) -> None:
        self._server = server
        self._orders = {subjects.order(identity.cluster, k, n) for k, n in identity.orders}
        self._on_order = on_order
        self._subject = subjects.fact(identity.cluster, identity.node)
        self.identity, self.link = identity, link
        self.facts = FactPublisher(
            identity,
            self._attempt,
            clock_ns=lambda: server.clock_ns() + skew_ns,
            spool=spool,
        )
        self._task: asyncio.Task[None] | None = None
        self._number = 0

    @property
    def name(self) -> str:
        return self.identity.client

    def open(self) -> None:
        """The process begins to speak."""
        self._task = asyncio.get_running_loop().create_task(self.facts.run())
        self.connect()

    def connect(self) -> None:
        """Its connection stands (again)."""
        self.link.mend()
        self.link.there(self._arrived)

    def _arrived(self) -> None:
        self._number = self._server.connected(self.name)
        self._server.subscribers[self.name] = self
        self.ask()

    def disconnect(self, forget_s: float = 0.0) -> None:
        """The connection is gone; the server notices after so long."""
        number = self._number
        self.link.cut()
        self._server.subscribers.pop(self.name, None)
        asyncio.get_running_loop().call_later(forget_s, self._server.disconnected, number)

    def close(self, forget_s: float = 0.0) -> None:
        """The process is gone: what it has sent may or may not get there, and lies in the spool."""
        if self._task is not None:
            self._task.cancel()
        self.disconnect(forget_s)

    def publish(self, fact: AnyFact, cause: tuple[Sequence, ...] = ()) -> None:
        self.facts.publish(fact, cause)

    def ask(self) -> None:
        for _, name in self.identity.orders:
            self.link.there(lambda n=name: self._server.ask(n), loss=ALL)  # type: ignore[misc]

    # --- Subscriber ---------------------------------------------------------------------------

    def hears(self, subject: str) -> bool:
        return subject in self._orders

    def hear(self, order: Recorded) -> None:
        if order.envelope is not None:
            self._on_order(order, order.envelope)

    async def _attempt(self, message_id: str, data: bytes) -> Sequence | str:
        try:
            outcome = await self.link.request(
                lambda: self._server.store(self._subject, data, message_id, None), _ACK_LIMIT_S
            )
        except TimeoutError:
            return "no answer"
        return outcome.seq if isinstance(outcome, Accepted) else "refused"
