"""Words of decisions' reasons."""


def devices(count: int) -> str:
    """``1 device``, ``2 devices``."""
    return f"{count} device{'' if count == 1 else 's'}"
