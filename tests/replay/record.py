"""Records the histories that later versions must replay: ``python -m tests.replay.record``.

Run it after FOLD_VERSION or LOGIC_VERSION has grown, and commit the new files; those of former
versions stay as they are, for ever. `demo` records a real run (a minute, real processes),
`scenarios` incidents of tests/scenarios on virtual time, `touched` what must be refused, from the
oldest real run; without an argument: all that this version lacks.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from unicron.controlplane.core.state import FOLD_VERSION
from unicron.controlplane.core.verdict import LOGIC_VERSION
from unicron.controlplane.replay import export_history
from unicron.controlplane.testing import scenario, scripted
from unicron.events import HistoryHeader, Recorded, WorkerExited, codec, read_history, write_history

TESTS = Path(__file__).resolve().parents[1]
HISTORIES = Path(__file__).parent / "histories"
VERSION = f"logic{LOGIC_VERSION}-fold{FOLD_VERSION}"
#: Short histories with a digest every few events: so the first event that folds otherwise is near.
DIGEST_EVERY = 25

#: Name of a history -> the faults of the demo's run.
DEMOS = {
    "demo-trade-kill-hang-lost-node": "worker:n2/1@4/forward/2,stop:n1/1@10,node:n2@16/backward/1",
    "demo-trade": "node:n2@8/backward/1",
}

#: Name of a history -> the number of the scenario that it tells.
SCENARIOS = {
    "killed-worker": "R-02",
    "sick-node": "S-03",
    "lost-node": "R-08",
    "trade": "T-01",
}


def demo(name: str, faults: str) -> None:
    """A real cluster of processes on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.ndjson"
        command = [sys.executable, "-m", "unicron.controlplane.cli", "demo", "--iterations", "24"]
        subprocess.run([*command, "--faults", faults, "--log", log], check=True, timeout=300)
        history = read_history(log)
    header = history.header
    _keep(name, header.cluster, header.birth, header.version, history.events)


def told(name: str, number: str) -> None:
    """An incident on virtual time."""
    (path,) = (TESTS / "scenarios").glob(f"{number}-*.txt")
    report = scripted.run(scenario.parse(path.read_text(encoding="utf-8"), str(path)))
    assert report.held, report.failures()
    _keep(name, "sim", path.stem, "virtual time", report.outcome.log)


def _keep(name: str, cluster: str, birth: str, version: str, events: Iterable[Recorded]) -> None:
    path = HISTORIES / f"{VERSION}-{name}.ndjson"
    export_history(
        path, events, cluster=cluster, birth=birth, version=version, digest_every=DIGEST_EVERY
    )
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def touched() -> None:
    """Two forgeries of the oldest real run, named after what gives them away. One was edited by
    hand. In the other a kill was made to look like the out-of-memory killer's, and all checks
    and the seal made to fit: the chain in the next decision shows it, whatever decides by then."""
    path = next(HISTORIES.glob("logic1-*.ndjson"))
    history = read_history(path)
    at = next(i for i, r in enumerate(history.events) if _was_killed(r))
    entry = history.events[at]
    lines = path.read_bytes().splitlines(keepends=True)
    lines[entry.seq] = lines[entry.seq].replace(b'\\"signal\\":9', b'\\"signal\\":15')
    folder = HISTORIES / "touched"
    (folder / f"edited-at-{entry.seq}.ndjson").write_bytes(b"".join(lines))

    envelope = entry.envelope
    assert envelope is not None
    body = msgspec.structs.replace(envelope.body, signal=15)
    data = codec.encode(msgspec.structs.replace(envelope, body=body))
    forged = codec.record(entry.seq, entry.subject, data, entry.at_ns)
    events = [*history.events[:at], forged, *history.events[at + 1 :]]
    shown = next(r.seq for r in events[at:] if r.envelope is not None and r.envelope.basis)
    header = HistoryHeader(
        cluster=history.header.cluster, birth=history.header.birth, version=history.header.version
    )
    write_history(folder / f"forged-at-{entry.seq}-shows-at-{shown}.ndjson", header, events)


def _was_killed(recorded: Recorded) -> bool:
    body = recorded.envelope.body if recorded.envelope is not None else None
    return isinstance(body, WorkerExited) and body.signal == 9 and not body.ordered


def main(what: str = "") -> None:
    """Record what is asked for, or all that this version lacks."""
    for name, faults in DEMOS.items():
        if what == "demo" or (not what and not (HISTORIES / f"{VERSION}-{name}.ndjson").exists()):
            demo(name, faults)
    for name, number in SCENARIOS.items():
        lacks = not (HISTORIES / f"{VERSION}-{name}.ndjson").exists()
        if what == "scenarios" or (not what and lacks):
            told(name, number)
    if what == "touched":
        touched()


if __name__ == "__main__":
    main(*sys.argv[1:])
