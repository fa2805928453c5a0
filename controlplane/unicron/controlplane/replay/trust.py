"""How far a record holds, for those who must rely on it."""

from unicron.controlplane.core.digest import digest
from unicron.controlplane.replay.phrases import one_line
from unicron.controlplane.replay.reading import Reading
from unicron.controlplane.replay.replayer import ReplayReport
from unicron.controlplane.replay.story import Leader, Trust
from unicron.events import Sequence


def trust_of(reading: Reading, report: ReplayReport | None, first: int, last: int) -> Trust:
    """Of what stands from `first` to `last`. `report`: of a verification of the whole log, None if
    nobody made one."""
    found = report.divergence if report is not None else None
    return Trust(
        verified=report.verified if report is not None else None,
        from_seq=Sequence(min(1, len(reading.log))),
        to_seq=report.last_seq if report is not None else reading.state.seq,
        first_wrong_seq=found.seq if found is not None else None,
        message=one_line(found.message) if found is not None else "",
        redecided=report.redecided if report is not None else 0,
        other_versions=report.other_versions if report is not None else 0,
        state_digest=report.digest if report is not None else digest(reading.state),
        chain=report.chain if report is not None else reading.chain.hex(),
        leaders=_leaders(reading, first, last),
    )


def _leaders(reading: Reading, first: int, last: int) -> tuple[Leader, ...]:
    """Who led while it happened."""
    before = [leader for leader in reading.leaders if leader.term <= first]
    during = [leader for leader in reading.leaders if first < leader.term <= last]
    return (*before[-1:], *during)
