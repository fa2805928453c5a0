"""Who leads: follower, candidate, leader. Pure, fed with what was seen and the time.

The lease says who should lead, the log says who does. A follower takes the lease when its holder
has been silent for the limit, by the follower's own clock; a candidate holds the lease and writes
`LeadershipTaken`; it leads once it has read that back, in the term that is its sequence. Whoever
sees the lease with another, folds another's term, or is refused by the fence follows again.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from unicron.controlplane.runtime.ports import Hold
from unicron.events import Term

_NO_TERM = Term(0)


class Role(StrEnum):
    """What an instance does."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Move(StrEnum):
    """What to do about the lease."""

    LOOK = "look"
    TAKE = "take"  # or renew: the same request


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One instance between two moves.

    `me`: "<instance>/<life>". `limit_ms`: how long a holder may be silent. `seen`: the lease as it
    was last seen, None if nobody could say since; `since_ms`: when that was first seen in an
    unbroken row of looks. `looked`: it ever was. `term`: ours while we lead.
    """

    me: str
    limit_ms: int
    role: Role = Role.FOLLOWER
    seen: Hold | None = None
    since_ms: int = 0
    looked: bool = False
    term: Term = _NO_TERM


def next_move(at: Standing, now_ms: int) -> Move:
    """What to do now."""
    seen = at.seen
    if seen is None:
        return Move.LOOK
    if seen.holder == at.me:
        return Move.TAKE
    if at.role is not Role.FOLLOWER:  # nobody's: the keeper lost it, or someone let go for us
        return Move.TAKE
    return Move.TAKE if now_ms - at.since_ms >= at.limit_ms else Move.LOOK


def looked(at: Standing, hold: Hold, now_ms: int) -> Standing:
    """The lease was looked at."""
    since_ms = at.since_ms if hold == at.seen else now_ms
    given_back = not hold.holder and hold.revision
    if given_back or (not at.looked and _may_begin(at, hold)):
        since_ms = now_ms - at.limit_ms
    at = replace(at, seen=hold, since_ms=since_ms, looked=True)
    mine = hold.holder in ("", at.me)
    return at if mine or at.role is Role.FOLLOWER else replace(_follows(at), seen=hold)


def _may_begin(at: Standing, hold: Hold) -> bool:
    """Whoever begins waits for nobody if there is no lease, or if its own earlier life has it: a
    service manager started it again."""
    return not hold.holder or _instance(hold.holder) == _instance(at.me)


def _instance(holder: str) -> str:
    return holder.rpartition("/")[0]


def unanswered(at: Standing) -> Standing:
    """Nobody could say: a wait for the holder begins anew, for it could not renew either."""
    return replace(at, seen=None)


def took(at: Standing, hold: Hold | None, now_ms: int) -> Standing:
    """We took it, or renewed it. None: it had changed meanwhile, and a look will tell to whom."""
    if hold is None:
        return replace(at, seen=None)
    role = Role.CANDIDATE if at.role is Role.FOLLOWER else at.role
    return replace(at, role=role, seen=hold, since_ms=now_ms, looked=True)


def leads(at: Standing, term: Term) -> Standing:
    """Our `LeadershipTaken` was read back."""
    return replace(at, role=Role.LEADER, term=term)


def folded(at: Standing, term: Term) -> Standing:
    """This is the newest term in the log. A candidate goes on: it holds the lease."""
    return _follows(at) if at.role is Role.LEADER and term != at.term else at


def refused(at: Standing) -> Standing:
    """The fence refused us: somebody else writes. A candidate reads on and tries again."""
    return _follows(at) if at.role is Role.LEADER else at


def resigned(at: Standing) -> Standing:
    """We end, and lead no more."""
    return _follows(at)


def _follows(at: Standing) -> Standing:
    """Follow; what was seen of the lease may be out of date."""
    return replace(at, role=Role.FOLLOWER, seen=None, term=_NO_TERM)
