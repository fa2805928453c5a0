"""The third phase of a run: its log, replayed and judged.

In another process under another PYTHONHASHSEED the log is folded from its first event on, every
decision is decided again, and the digests must be those of the live run; here: every order has a
cause, and every incident ends once.
"""

import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Self

import msgspec

from unicron.controlplane.core.digest import digest
from unicron.controlplane.replay import Replayer
from unicron.controlplane.testing.outcome import Outcome
from unicron.events import Recorded, record

_LENGTH = struct.Struct(">I")
#: (subject, bytes, time it was stored) of each entry.
_Entries = list[tuple[str, bytes, int]]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay of a log gave. `divergence`: the first difference, or ""."""

    events: int
    digest: str
    chain: str
    divergence: str
    hash_seed: str


def mismatches(outcome: Outcome, judgement: Judgement) -> tuple[str, ...]:
    """Where the replayed log and the live run differ, and what its causes and incidents lack."""
    found: list[str] = []
    if judgement.divergence:
        found.append(judgement.divergence)
    if judgement.digest != digest(outcome.state):
        found.append(
            f"the live state has digest {digest(outcome.state)}, replayed under PYTHONHASHSEED "
            f"{judgement.hash_seed} {judgement.digest}"
        )
    found += _without_cause(outcome.log)
    found += _incident_ends(outcome)
    return tuple(found)


def _without_cause(log: tuple[Recorded, ...]) -> Iterator[str]:
    """Decisions that name nothing before them that led to them."""
    for recorded in log:
        envelope = recorded.envelope
        if envelope is None or envelope.basis is None:
            continue
        name = f"#{recorded.seq} {type(envelope.body).__name__}"
        if not envelope.cause:
            yield f"{name} has no cause"
        elif max(envelope.cause) >= recorded.seq or min(envelope.cause) < 1:
            yield f"{name} names {envelope.cause} as its cause"


def _incident_ends(outcome: Outcome) -> Iterator[str]:
    """Every incident is opened, and ended exactly once by an event that took effect."""
    for name, incident in outcome.state.incidents.items():
        wanted, ends = 1 if incident.resolved else 0, outcome.ends.get(name, 0)
        if ends != wanted or (not incident.resolved and not outcome.stuck):
            yield f"incident {name} ended {ends} times"


# --- The other process ----------------------------------------------------------------------------


class Auditor:
    """A process under another PYTHONHASHSEED that judges one log after the other."""

    def __init__(self) -> None:
        self._seed = str(random.Random(os.environ.get("PYTHONHASHSEED", "0")).randrange(1, 1 << 30))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def judge(self, outcome: Outcome) -> Judgement:
        """Replay the log of a run there."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONHASHSEED": self._seed},
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        entries: _Entries = [(r.subject, r.data, r.at_ns) for r in outcome.log]
        _send(process.stdin, msgspec.msgpack.encode(entries))
        answer = _receive(process.stdout)
        if answer is None:
            raise RuntimeError(f"the auditing process ended with code {process.wait(10)}")
        return msgspec.msgpack.decode(answer, type=Judgement)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(_LENGTH.pack(len(message)) + message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return pipe.read(_LENGTH.unpack(head)[0])


def judge(entries: _Entries) -> Judgement:
    """Fold the log from its first event on and decide every decision again."""
    log = [record(n, *entry) for n, entry in enumerate(entries, 1)]
    report = Replayer(log).verify()
    found = report.divergence
    return Judgement(
        events=report.events,
        digest=report.digest,
        chain=report.chain,
        divergence=f"#{found.seq}: {found.message} {found.why}".strip() if found else "",
        hash_seed=os.environ.get("PYTHONHASHSEED", "random"),
    )


def main() -> None:
    """Judge logs from stdin until it ends."""
    while (message := _receive(sys.stdin.buffer)) is not None:
        entries = msgspec.msgpack.decode(message, type=_Entries)
        _send(sys.stdout.buffer, msgspec.msgpack.encode(judge(entries)))


if __name__ == "__main__":
    main()
