"""Faults: what kinds there are, how one is written, and the demo's default.

worker:n2/1@5/forward/2     SIGKILL to worker n2/1 in iteration 5, in its forward pass, when
it has done 2 micro-batches of it
node:n2@26/backward/1       the whole of node n2, when its first worker stands there
"""

import difflib
import re
import signal

import msgspec

from unicron.events import ConfigError
from unicron.worker_shim.page import Action, Phase


class FaultKind(msgspec.Struct, frozen=True, kw_only=True):
    """`about`: what happens to its target, for the help. `words`: the same before the target's
    name. Either the injector `sends` a signal (to the whole node if `whole_node`) to a victim that
    is held where the fault says, or the victim does `action` to itself there."""

    about: str
    words: str
    sends: signal.Signals | None = None
    whole_node: bool = False
    action: Action = Action.HOLD
    argument_ms: int = 0
    #: It opens an incident. Otherwise the victim lives and answers.
    harms: bool = True


KINDS: dict[str, FaultKind] = {
    "worker": FaultKind(
        about="is killed (SIGKILL)", words="SIGKILL to worker", sends=signal.SIGKILL
    ),
    "stop": FaultKind(
        about="is stopped (SIGSTOP): it hangs, and lives",
        words="SIGSTOP to worker",
        sends=signal.SIGSTOP,
    ),
    "exception": FaultKind(
        about="raises an exception out of its training step",
        words="exception in worker",
        action=Action.RAISE,
    ),
    "node": FaultKind(
        about="dies as a whole: SIGKILL to its agent, workers, fork server, store",
        words="SIGKILL to all of node",
        sends=signal.SIGKILL,
        whole_node=True,
    ),
    "nan": FaultKind(
        about="gets NaN as the loss of a micro-batch",
        words="NaN loss in worker",
        action=Action.NAN,
    ),
    "spin": FaultKind(
        about="runs in circles in Python code: it hangs",
        words="endless loop in worker",
        action=Action.SPIN,
    ),
    "reset": FaultKind(
        about="loses its connections to the other members; all live",
        words="connections reset at worker",
        action=Action.RESET,
    ),
    "slow": FaultKind(
        about="takes 300 ms longer for each micro-batch; it is only named",
        words="slower computing in worker",
        action=Action.SLOW,
        argument_ms=300,
        harms=False,
    ),
    "hog": FaultKind(
        about="holds the interpreter for 5 s in a declared section; no incident",
        words="interpreter held in worker",
        action=Action.HOG,
        argument_ms=5000,
        harms=False,
    ),
}

#: Between two of them there is room for the first to be over, and after the last for a new node.
DEFAULT_FAULTS = (
    "worker:n2/1@5/forward/2,stop:n1/1@12/forward/1,exception:n1/0@19/backward/1,"
    "node:n2@26/backward/1"
)

_FAULT = re.compile(
    r"(?P<kind>[a-z]+):(?P<target>[\w-]+(/\d+)?)@(?P<iteration>\d+)"
    r"(/(?P<phase>[a-z]+)(/(?P<done>\d+))?)?"
)
_SEE = "unicron demo --faults help"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault to come. `done`: micro-batches its victim has finished, -1 for any."""

    kind: str
    target: str
    iteration: int
    phase: Phase = Phase.FORWARD
    done: int = -1
    generation: int = -1
    argument_ms: int = 0

    @property
    def worker(self) -> str:
        """The worker whose place decides when it hits."""
        return f"{self.target}/0" if self.kind == "node" else self.target

    def __str__(self) -> str:
        at = f"{self.iteration}/{self.phase.label}"
        return f"{self.kind}:{self.target}@{at}" + (f"/{self.done}" if self.done >= 0 else "")


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Faults separated by commas; ``none`` or nothing for none. Raises ConfigError."""
    if text.strip() in ("", "none"):
        return ()
    return tuple(_parse(part.strip()) for part in text.split(","))


def _parse(text: str) -> Fault:
    named, _, _ = text.partition(":")
    if named not in KINDS:
        near = difflib.get_close_matches(named, KINDS, n=1)
        raise ConfigError(
            f"there is no fault of kind {named!r}" + (f"; {near[0]}?" if near else ""),
            why=f"the kinds are {', '.join(KINDS)}",
            fix=f"{_SEE} (what each one is), or --faults none",
            code="E-FAULT",
        )
    found = _FAULT.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{text!r} is no fault",
            why="a fault reads KIND:TARGET@ITERATION[/PHASE[/DONE]], "
            "such as worker:n2/1@8/forward/2",
            fix=_SEE,
            code="E-FAULT",
        )
    phases = [p.label for p in Phase]
    if (found["phase"] or "forward") not in phases:
        raise ConfigError(
            f"{text!r}: there is no phase {found['phase']!r}",
            why=f"the phases are {', '.join(phases)}",
            fix=_SEE,
            code="E-FAULT",
        )
    if ("/" in found["target"]) == KINDS[named].whole_node:
        raise ConfigError(
            f"{text!r}: a worker is named node/device (n2/1), a node by its name (n2)",
            fix=_SEE,
            code="E-FAULT",
        )
    return Fault(
        kind=named,
        target=found["target"],
        iteration=int(found["iteration"]),
        phase=Phase[(found["phase"] or "forward").upper()],
        done=int(found["done"]) if found["done"] else -1,
    )


def listed() -> list[str]:
    """The kinds, a line each of at most 78 columns, and the default."""
    default = parse_faults(DEFAULT_FAULTS)
    usual = {fault.kind for fault in default}
    size = max(map(len, KINDS))
    lines = [
        f"{name:<{size}} {'*' if name in usual else ' '} {kind.about}"
        for name, kind in KINDS.items()
    ]
    return [*lines, "", "* in the default, which is", *(f"    {fault}" for fault in default)]
