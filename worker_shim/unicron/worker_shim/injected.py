"""Faults that a worker does to itself when a fault injector asks for them at a breakpoint.

Dead code in a worker that was not launched for fault injection: its page never asks.
"""

import ctypes
from typing import Protocol

from unicron.worker_shim.page import Action

_MICROSECONDS = 1000


class InjectedError(RuntimeError):
    """What the training step raises when asked to."""


class Victim(Protocol):
    """What of a worker a fault can touch."""

    slow_ms: int

    def spoil(self) -> None:
        """Let the next loss be NaN."""

    def reset(self) -> None:
        """Reset the connections to the other members."""

    def declare(self, limit_ms: int) -> None:
        """Enter (0: leave) a section that may take so long."""


def suffer(victim: Victim, action: Action, argument_ms: int) -> None:
    """Carry out the fault. Raises InjectedError if that is what was asked for."""
    match action:
        case Action.HOLD:
            pass
        case Action.RAISE:
            raise InjectedError("the fault injector asked for an exception")
        case Action.SPIN:
            while True:
                pass
        case Action.NAN:
            victim.spoil()
        case Action.RESET:
            victim.reset()
        case Action.SLOW:
            victim.slow_ms = argument_ms
        case Action.HOG:
            victim.declare(2 * argument_ms)
            # PyDLL keeps the interpreter's lock: no other thread of this process runs meanwhile.
            ctypes.PyDLL(None).usleep(argument_ms * _MICROSECONDS)
            victim.declare(0)
