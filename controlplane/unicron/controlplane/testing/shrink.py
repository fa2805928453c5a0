"""Of a run that fails, the faults that matter: leave out whatever it fails without, too."""

from collections.abc import Callable, Iterator

from unicron.controlplane.testing.options import Fault, Options

#: Whether a run still fails in the same way.
Fails = Callable[[Options], bool]


def shrink(options: Options, fails: Fails, tries: int) -> Options:
    """The options with as few faults as could be found in so many tries (delta debugging, Zeller
    and Hildebrandt 2002). `fails` must hold for the options themselves."""
    from msgspec.structs import replace

    faults, parts = options.faults, 2
    budget = iter(range(tries))
    while faults:
        for rest in _without_one(faults, parts):
            if next(budget, None) is None:
                return replace(options, faults=faults)
            if fails(replace(options, faults=rest)):
                faults, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(faults):
                break
            parts = min(2 * parts, len(faults))
    return replace(options, faults=faults)


def _without_one(faults: tuple[Fault, ...], parts: int) -> Iterator[tuple[Fault, ...]]:
    """The faults without their first part, without their second, and so on."""
    size = max(1, len(faults) // parts)
    for start in range(0, len(faults), size):
        yield faults[:start] + faults[start + size :]
