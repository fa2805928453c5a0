"""What an embedded control plane raises: the one error that ended it, not the group around it."""

from asyncio import CancelledError


def surfaced(error: BaseException | None, raised: BaseException | None) -> BaseException | None:
    """The error to raise for `error`, which may be a group of several. `raised` is what the host's
    own block raised: it comes first if it is among them. Others are named in notes."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [leaf for leaf in leaves(error) if not isinstance(leaf, CancelledError)]
    if not found:
        return raised if raised is not None else error
    first = next((leaf for leaf in found if leaf is raised), found[0])
    for other in found:
        if other is not first and str(other) != str(first):
            first.add_note(f"besides: {type(other).__name__}: {other}")
    return first


def leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group of groups, in order."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]
