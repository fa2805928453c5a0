"""A log as a history file with digests of the state, so that a later fold can be compared."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from unicron.controlplane.core.configuration import digest_of
from unicron.controlplane.core.digest import digest
from unicron.controlplane.core.state import FOLD_VERSION
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.controlplane.replay.folding import Folding
from unicron.events import HistoryHeader, Recorded, Seal, write_history, write_history_to

#: Events from one digest to the next. Each costs an encoding of the whole state.
DIGEST_EVERY: Final = 1000


def export_history(
    target: Path | IO[bytes],
    events: Iterable[Recorded],
    *,
    cluster: str,
    birth: str,
    version: str,
    digest_every: int = DIGEST_EVERY,
) -> Seal:
    """Write a whole log, or its beginning. A path is written whole or not at all, replaced if it
    exists, and compressed if it ends in .zst. `birth`: of the stream; `version`: of the software
    that writes. Returns the seal.

    Raises:
        LogBroken: the events aren't #1, #2, … without a hole.
        ReplayDivergence: the fold can't take an event.
        OSError: as it comes.
    """
    header = HistoryHeader(
        cluster=cluster,
        birth=birth,
        version=version,
        fold_version=FOLD_VERSION,
        logic_version=LOGIC_VERSION,
        digest_every=digest_every,
    )
    folding = Folding()

    def folded() -> Iterator[Recorded]:
        for recorded in events:
            folding.step(recorded)
            yield recorded

    def state_digest() -> str:
        return digest(folding.state)

    def configuration() -> str:
        return digest_of(folding.state.planning)

    if isinstance(target, Path):
        return write_history(target, header, folded(), state_digest, configuration)
    return write_history_to(target, header, folded(), state_digest, configuration)
