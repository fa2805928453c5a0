"""The configuration file of a control plane, in TOML: see docs/configuration.md."""

from pathlib import Path

import msgspec

from unicron.controlplane.core.configuration import fault_of
from unicron.controlplane.runtime.strictfile import read_strictly
from unicron.events import ConfigError, Planning

_CODE = "E-CONFIG-FILE"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """All that the file may say; a key that is left out has its default."""

    planning: Planning = Planning()


def read_configuration(path: Path | str) -> Configuration:
    """What the file says. Raises ConfigError that names the file, the key and the fix."""
    path = Path(path)
    found = read_strictly(
        path, Configuration, what="configuration", see="see docs/configuration.md", code=_CODE
    )
    if fault := fault_of(found.planning):
        raise ConfigError(
            f"{path}: the configuration makes no sense", why=f"planning.{fault}", code=_CODE
        )
    return found
