"""How long things take in a simulated cluster."""

import random

import msgspec


class PaceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`micro_batch_ms`: what one takes; others in milliseconds, at most. `spread_percent`: how much
    a micro-batch may take longer; 0 makes every duration the same."""

    micro_batch_ms: int = 60
    spread_percent: int = 0
    fork_ms: int = 60
    build_ms: int = 600
    agent_start_ms: int = 500
    regroup_ms: int = 40
    transfer_ms: int = 80


class Pace:
    """Draws durations."""

    def __init__(self, options: PaceOptions, rng: random.Random) -> None:
        self._options, self._rng = options, rng
        self._percent = 100

    def hurry(self) -> None:
        """From now on training is five times as fast: what is left of it is of no interest."""
        self._percent = 20

    def usual_us(self, percent: int) -> int:
        """Time of a micro-batch without the spread."""
        return self._options.micro_batch_ms * percent * self._percent // 10

    def micro_batch_us(self, percent: int) -> int:
        """Time of the next micro-batch of a worker that needs so many percent of the usual."""
        usual = self.usual_us(percent)
        spread = self._options.spread_percent
        return usual + (int(self._rng.random() * usual * spread / 100) if spread else 0)

    def step_s(self, stage: str) -> float:
        """Time of a step that isn't a micro-batch."""
        most_ms = {"regroup": self._options.regroup_ms, "transfer": self._options.transfer_ms}
        return self._up_to(most_ms.get(stage, 2))

    def glance_s(self) -> float:
        """From a change to its being noticed."""
        return self._up_to(1)

    def fork_s(self) -> float:
        return self._up_to(self._options.fork_ms)

    def build_s(self) -> float:
        return self._up_to(self._options.build_ms)

    def agent_start_s(self) -> float:
        return self._up_to(self._options.agent_start_ms)

    def exit_s(self) -> float:
        """From an exception to the end of the process."""
        return self._up_to(30)

    def _up_to(self, most_ms: int) -> float:
        if not self._options.spread_percent:
            return most_ms / 1000
        return most_ms * (0.3 + 0.7 * self._rng.random()) / 1000
