"""Histories in zstd: recognised by their first bytes, written under names that end in .zst.

Streams both ways, so that neither a long log nor a file that was made to unpack into terabytes
fills the memory: a reader takes one bounded line after the other, and the first wrong one ends it.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from unicron.events.errors import ConfigError

#: How the name of a compressed history ends.
SUFFIX: Final = ".zst"
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_LEVEL: Final = 10
_WINDOW_MAX: Final = 1 << 27  # what the zstd command takes without being asked for more
_BUFFER: Final = 1 << 15  # what is garbled is noticed as early


class Garbled(Exception):
    """Compressed data that can't be unpacked from here on."""


class _Unpacked(io.RawIOBase):
    """What the compressed file holds. An end in the middle of a frame is its end."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._zstd = _library("read")
        unpacker = self._zstd.ZstdDecompressor(max_window_size=_WINDOW_MAX)
        self._reader = unpacker.stream_reader(file, read_across_frames=True, closefd=False)
        self._begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            size: int = self._reader.readinto(buffer)
        except self._zstd.ZstdError as error:
            raise Garbled(str(error)) from None
        if not size and not self._begun:
            raise Garbled("it is cut off")
        self._begun = True
        return size


def unpacked(file: IO[bytes]) -> IO[bytes]:
    """The file, which was just opened and can be peeked into, or what it holds if it is compressed.

    ConfigError if it is and can't be read here. Reading raises Garbled where it is damaged.
    """
    assert isinstance(file, io.BufferedReader)
    if file.peek(len(_MAGIC))[: len(_MAGIC)] != _MAGIC:
        return file
    return io.BufferedReader(_Unpacked(file), _BUFFER)


@contextmanager
def packed(file: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """What to write into so that the file becomes what `path` says. ConfigError if it can't."""
    if path.suffix != SUFFIX:
        yield file
        return
    packer = _library("written").ZstdCompressor(level=_LEVEL, write_checksum=True)
    with packer.stream_writer(file, closefd=False) as writer:
        yield writer


def _library(done: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise ConfigError(
            f"a compressed history can't be {done} here",
            why="the package zstandard isn't installed",
            fix="pip install 'unicron-controlplane[zstd]', or use plain files and the zstd command",
            code="E-CONFIG-ZSTD",
        ) from None
    return zstandard
