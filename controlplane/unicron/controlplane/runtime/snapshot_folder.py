"""Snapshots in a folder: files for their owner alone, each there whole or not at all."""

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio.to_thread

from unicron.controlplane.core.snapshot import SnapshotUnusable
from unicron.events import Sequence, subjects

_SUFFIX: Final = ".snapshot"
#: More than any snapshot has.
_MAX_BYTES: Final = 1 << 30


def read_file(path: Path) -> bytes:
    """The bytes of a snapshot. Doesn't wait for whoever writes into a pipe. OSError if it can't be
    read, SnapshotUnusable if it is no file or larger than any snapshot."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise SnapshotUnusable("it is no file")
        if about.st_size > _MAX_BYTES:
            raise SnapshotUnusable(f"it has {about.st_size:,} bytes, which no snapshot has")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


class SnapshotFolder:
    """Snapshots of `cluster` in `folder`, which others may use for theirs; the newest `keep`."""

    name = "disk"

    def __init__(self, folder: Path, cluster: str, *, keep: int = 3) -> None:
        subjects.check_cluster(cluster)
        self._folder = folder
        self._cluster = cluster
        self._keep = keep
        self._file = re.compile(rf"{re.escape(cluster)}-(\d{{12,18}}){re.escape(_SUFFIX)}")

    @property
    def where(self) -> str:
        return str(self._folder)

    def path(self, seq: Sequence) -> Path:
        """Where the snapshot of this entry is kept."""
        return self._folder / f"{self._cluster}-{seq:012d}{_SUFFIX}"

    async def known(self) -> list[Sequence]:
        return await anyio.to_thread.run_sync(self._known)

    async def load(self, seq: Sequence) -> bytes | None:
        return await anyio.to_thread.run_sync(self._load, seq)

    async def save(self, seq: Sequence, data: bytes) -> None:
        await anyio.to_thread.run_sync(self._save, seq, data)

    def _known(self) -> list[Sequence]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        found = (self._file.fullmatch(name) for name in names)
        return [Sequence(int(match[1])) for match in found if match]

    def _load(self, seq: Sequence) -> bytes | None:
        try:
            return read_file(self.path(seq))
        except FileNotFoundError:
            return None

    def _save(self, seq: Sequence, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_leftovers()
        with self._beside(seq) as (descriptor, beside):
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(descriptor)
            os.replace(beside, self.path(seq))
        self._sync_folder()
        # What calls itself newer isn't ours to judge, and doesn't push out what was just written.
        for old in sorted(one for one in self._known() if one <= seq)[: -self._keep]:
            with contextlib.suppress(IsADirectoryError):  # somebody's, and no snapshot
                self.path(old).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _beside(self, seq: Sequence) -> Iterator[tuple[int, str]]:
        """A new file (mode 0600), locked as long as somebody writes it; gone if that fails."""
        prefix = f".{self.path(seq).name}."
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=prefix)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor, name
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        finally:
            os.close(descriptor)

    def _remove_leftovers(self) -> None:
        """Of writers that were killed: nobody holds their lock."""
        for path in self._folder.glob(f".{self._cluster}-*{_SUFFIX}.*"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
