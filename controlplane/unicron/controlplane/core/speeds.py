"""What a device of a kind achieves: as it was configured, else as is assumed."""

from typing import Final

from unicron.events import DeviceSpeed, Planning

#: GFLOP/s of one device, not its peak. Assumed.
_GFLOPS: Final[dict[str, int]] = {
    "cpu": 20,
    "a100": 140_000,
    "a800": 140_000,
    "h100": 400_000,
    "h800": 400_000,
    "h200": 420_000,
    "b200": 900_000,
}
#: Usable bytes per second between devices: loopback for "cpu", one 200 Gb/s card otherwise.
_LINKS: Final[dict[str, int]] = {"cpu": 1_000_000_000}
_LINK: Final = 20_000_000_000


def gflops_of(planning: Planning, kind: str) -> int:
    """What one device achieves, in GFLOP/s. One that nobody knows is as slow as the slowest."""
    return _said(planning, kind).gflops or _GFLOPS.get(kind, _GFLOPS["cpu"])


def link_of(planning: Planning, kind: str) -> int:
    """Usable bytes per second from one device to another."""
    return _said(planning, kind).link_bytes_per_s or _LINKS.get(kind, _LINK)


def known_kinds(planning: Planning) -> tuple[str, ...]:
    """Kinds of which something is assumed or configured."""
    return tuple(sorted({*_GFLOPS, *(device.kind for device in planning.devices)}))


def _said(planning: Planning, kind: str) -> DeviceSpeed:
    found = (device for device in planning.devices if device.kind == kind)
    return next(found, DeviceSpeed(kind=kind))
