"""Moves one instance between following and leading: looks at the lease, takes it, renews it, gives
it back. What that means is in `leadership`."""

import logging
from collections.abc import Callable

import anyio

from unicron.controlplane.runtime import leadership
from unicron.controlplane.runtime.clock import now_ms
from unicron.controlplane.runtime.leadership import Move, Role, Standing
from unicron.controlplane.runtime.ports import Clock, Lease
from unicron.events import LogUnreachable, Term

log = logging.getLogger(__name__)

#: A holder renews so often within the limit, and a follower looks so often.
_RENEWALS, _LOOKS = 4, 10
_LONGEST_LOOK_S = 0.2
_GIVE_BACK_LIMIT_S = 1.0


class Election:
    """Of one instance. `life` tells it from every other process of that name."""

    def __init__(self, lease: Lease, instance: str, life: int, clock: Clock) -> None:
        self._lease = lease
        self._clock = clock
        self._renew_s = lease.limit_ms / _RENEWALS / 1000
        self._look_s = min(lease.limit_ms / _LOOKS / 1000, _LONGEST_LOOK_S)
        self._at = Standing(me=f"{instance}/{life}", limit_ms=lease.limit_ms)
        self._step_down: Callable[[], None] = lambda: None

    @property
    def role(self) -> Role:
        """What this instance does now."""
        return self._at.role

    @property
    def waits(self) -> bool:
        """It has seen that it isn't its turn."""
        return self._at.looked and self._at.role is Role.FOLLOWER

    async def won(self, waiting: Callable[[], None]) -> None:
        """Follow until the lease is ours. `waiting` is called once it shows that it isn't yet."""
        told = False
        while not await self._is_ours():
            if self.waits and not told:
                told = True
                waiting()
            await self._clock.sleep(self._look_s)

    async def _is_ours(self) -> bool:
        await self._move()
        return self._at.role is not Role.FOLLOWER

    async def keep(self, step_down: Callable[[], None]) -> None:
        """Keep the lease. `step_down` is called once another instance has it or leads."""
        self._step_down = step_down
        while True:
            # Who can't reach the lease looks often, to be back before anybody's wait is over.
            await self._clock.sleep(self._renew_s if self._at.seen is not None else self._look_s)
            if self._at.role is Role.FOLLOWER:
                return
            await self._move()

    async def _move(self) -> None:
        """Look, and take the lease if that is our turn; or renew it."""
        try:
            if leadership.next_move(self._at, now_ms(self._clock)) is Move.LOOK:
                seen = await self._lease.look()
                self._now(leadership.looked(self._at, seen, now_ms(self._clock)))
            if leadership.next_move(self._at, now_ms(self._clock)) is Move.TAKE:
                assert self._at.seen is not None
                hold = await self._lease.put(self._at.me, self._at.seen)
                self._now(leadership.took(self._at, hold, now_ms(self._clock)))
        except LogUnreachable:
            self._now(leadership.unanswered(self._at))

    def leads(self, term: Term) -> None:
        """Our leadership was read back."""
        self._now(leadership.leads(self._at, term))

    def folded(self, term: Term) -> None:
        """This is the newest term in the log."""
        self._now(leadership.folded(self._at, term))

    def refused(self) -> None:
        """The fence refused us."""
        self._now(leadership.refused(self._at))

    def _now(self, standing: Standing) -> None:
        before, self._at = self._at, standing
        if standing.role is Role.FOLLOWER is not before.role:
            self._step_down()

    async def give_back(self) -> None:
        """We end: whoever follows may lead at once."""
        seen, self._at = self._at.seen, leadership.resigned(self._at)
        if seen is None or seen.holder != self._at.me:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(_GIVE_BACK_LIMIT_S):
            try:
                await self._lease.put("", seen)
            except LogUnreachable as error:
                log.info("the lease runs out by itself: %s", error)
