"""An event loop on another host: what runs there makes its connections there."""

import asyncio
import contextlib
import threading


class Elsewhere:
    """A thread in a network namespace of `network`. Use as ``with``."""

    def __init__(self, network, host):
        self._network, self._host = network, host
        self._loop = None

    def __enter__(self):
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,))
        self._thread.start()
        ready.wait()
        return self

    def _run(self, ready):
        with self._network.inside(self._host), asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(ready.set)
            self._loop.run_forever()

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def begin(self, work):
        """Have it done there; to be awaited here."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    @contextlib.asynccontextmanager
    async def entered(self, context):
        """An async context manager, entered and left by one task there."""
        loop = asyncio.get_running_loop()
        got, leave = loop.create_future(), asyncio.Event()

        async def hold():
            async with context as value:
                loop.call_soon_threadsafe(got.set_result, value)
                await leave.wait()

        held = self.begin(hold())
        try:
            await asyncio.wait({held, got}, return_when=asyncio.FIRST_COMPLETED)
            if held.done():
                held.result()
            yield got.result()
        finally:
            self._loop.call_soon_threadsafe(leave.set)
            await held
