"""Errors that say whose fault it is, what happened, why, and what to do about it.

Every message has those three parts and a code that stays the same over versions
(``E-LOG-SHORT``), so that a person can look it up and a program can match it.
"""

from typing import ClassVar


class UnicronError(Exception):
    """Base of all errors of ours. `code` names the exact case; `fix` is one thing to try."""

    default_code: ClassVar[str] = "E-UNICRON"

    def __init__(self, what: str, *, why: str = "", fix: str = "", code: str = "") -> None:
        self.code = code or self.default_code
        self.what = what
        self.why = why
        self.fix = fix
        lines = [f"{what} ({self.code})"]
        if why:
            lines.append(f"  why: {why}")
        if fix:
            lines.append(f"  fix: {fix}")
        super().__init__("\n".join(lines))


class ConfigError(UnicronError):
    """The operator's to mend: a wrong address, a missing file, a port in use."""

    default_code = "E-CONFIG"


class LogError(UnicronError):
    """Something about the event log. Nothing was folded past the point that is named."""

    default_code = "E-LOG"


class LogUnreachable(LogError):
    """No answer from the log within the limit. Nothing is known about its content."""

    default_code = "E-LOG-UNREACHABLE"


class LogTooOld(LogError):
    """The server lacks what the log's guarantees need."""

    default_code = "E-LOG-SERVER-OLD"


class LogMismatch(LogError):
    """The log belongs to another cluster, was born anew, or is configured otherwise."""

    default_code = "E-LOG-MISMATCH"


class LogBroken(LogError):
    """A gap, a cut-off, a changed or misplaced event. `first_wrong` is the first sequence that
    isn't what it must be; 0 when the header is."""

    default_code = "E-LOG-BROKEN"

    def __init__(
        self, what: str, *, first_wrong: int, why: str = "", fix: str = "", code: str = ""
    ) -> None:
        super().__init__(what, why=why, fix=fix, code=code)
        self.first_wrong = first_wrong


class DecodeError(LogError):
    """Bytes that are not an event, met where strictness was asked for."""

    default_code = "E-DECODE"
