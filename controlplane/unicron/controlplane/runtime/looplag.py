"""How late the event loop comes to what is due. Whatever blocks it, ours or a host's, delays beats,
orders and the renewal of the lease alike."""

import logging
from collections.abc import Callable

import anyio

log = logging.getLogger(__name__)

#: A node is suspected after 2 s of silence, and a lease of 2 s is renewed every 0.5 s: with a loop
#: this late, what the instance thinks of others begins to be its own fault.
WARN_S = 0.5
_LOOK_S = 0.25
#: One line in the log for all that comes within this time.
_QUIET_S = 30.0


async def watch(took: Callable[[float], object] = lambda _: None) -> None:
    """Until cancelled; `took` hears the seconds of each look."""
    worst, quiet_until = 0.0, 0.0
    while True:
        due = anyio.current_time() + _LOOK_S
        await anyio.sleep(_LOOK_S)
        now = anyio.current_time()
        lag = max(0.0, now - due)
        took(lag)
        worst = max(worst, lag)
        if worst >= WARN_S and now >= quiet_until:
            log.warning(
                "the event loop was blocked for %.1f s: beats, orders and the lease waited. Too "
                "little CPU, a process that was stopped, or something in it that blocks",
                worst,
            )
            worst, quiet_until = 0.0, now + _QUIET_S
