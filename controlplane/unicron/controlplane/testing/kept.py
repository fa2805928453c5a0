"""Runs that failed once, as files: the whole of their options, so that later versions of the
random choices can't lose them."""

import os

import msgspec

from unicron.controlplane.testing.faults import KINDS
from unicron.controlplane.testing.options import Options, mistake_in
from unicron.events import ConfigError

_BYTES_MAX = 16 * 1024 * 1024


def read(path: str) -> Options:
    """The run that a file holds.

    Raises:
        ConfigError: it can't be read or isn't one.
    """
    try:
        with open(path, "rb") as file:
            options = msgspec.json.decode(file.read(_BYTES_MAX), type=Options)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_run(path, str(error)) from error
    unknown = sorted({fault.kind for fault in options.faults} - set(KINDS))
    wrong = f"there is no kind of fault {unknown[0]!r}" if unknown else mistake_in(options)
    if wrong:
        raise _no_run(path, wrong)
    return options


def _no_run(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"{path} doesn't hold a simulated run",
        why=why,
        fix="give a file that `unicron sim --keep` has written",
    )


def write(folder: str, options: Options) -> str:
    """Keep a run; the path of its file."""
    path = os.path.join(folder, f"seed-{options.seed}.json")
    with open(path, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(options)) + b"\n")
    return path
