"""Snapshots on disk: whole or not there, whatever happens to their writer or the disk."""

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from unicron.controlplane.core.snapshot import SnapshotUnusable
from unicron.controlplane.runtime.snapshot_folder import SnapshotFolder
from unicron.events import ConfigError

OLD, NEW = b"old" * 40_000, b"new" * 40_000

#: Saves #2 and kills itself at the N-th line of the module that it comes to, for N = 1, 2, … until
#: it gets through; says after each what is there.
_KILLED = """
import os, signal, sys
from pathlib import Path
from unicron.controlplane.runtime import snapshot_folder

def attempt(limit):
    lines = 0
    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != snapshot_folder.__file__:
            return None
        lines += event == "line"
        if lines == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    folder = snapshot_folder.SnapshotFolder(Path(sys.argv[1]), "c", keep=1)
    sys.settrace(trace)
    folder._save(2, b"new" * 40_000)
    sys.settrace(None)
    os._exit(0)

for limit in range(1, 1000):
    child = os.fork()
    if not child:
        attempt(limit)
    _, status = os.waitpid(child, 0)
    folder = snapshot_folder.SnapshotFolder(Path(sys.argv[1]), "c", keep=1)
    found = {seq: folder._load(seq)[:3].decode() for seq in folder._known()}
    sizes = {len(folder._load(seq)) for seq in found}
    beside = len([name for name in os.listdir(sys.argv[1]) if name.startswith(".")])
    print(os.WIFSIGNALED(status), sorted(found.items()), sorted(sizes), beside)
    if not os.WIFSIGNALED(status):
        break
    for path in Path(sys.argv[1]).glob("c-000000000002.snapshot"):
        path.unlink()
    folder._save(1, b"old" * 40_000)
"""


@pytest.fixture
def folder(tmp_path):
    return SnapshotFolder(tmp_path / "kept", "c")


def files(folder):
    return sorted(path.name for path in Path(folder.where).iterdir())


async def test_it_is_for_its_owner_alone_and_made_when_needed(folder):
    assert await folder.known() == []
    assert await folder.load(3) is None
    await folder.save(3, OLD)
    assert stat.S_IMODE(folder.path(3).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(folder.where).stat().st_mode) == 0o700
    assert await folder.load(3) == OLD
    assert files(folder) == ["c-000000000003.snapshot"]


async def test_clusters_may_share_a_folder(folder):
    other = SnapshotFolder(Path(folder.where), "c-1", keep=1)
    for seq in range(1, 6):
        await folder.save(seq, OLD)
        await other.save(seq, NEW)
    assert (sorted(await folder.known()), await other.known()) == ([3, 4, 5], [5])
    assert (await folder.load(5), await other.load(5)) == (OLD, NEW)
    with pytest.raises(ConfigError):
        SnapshotFolder(Path(folder.where), "../c")


async def test_what_else_lies_there_stays_and_is_no_snapshot(folder):
    await folder.save(1, OLD)
    strange = [
        "c-1.snapshot",
        "c-000000000002.snapshot.bak",
        "notes.txt",
        "d-000000000009.snapshot",
    ]
    for name in strange:
        (Path(folder.where) / name).write_text("x")
    for seq in range(2, 8):
        await folder.save(seq, NEW)
    assert sorted(await folder.known()) == [5, 6, 7]
    assert set(strange) < set(files(folder))


async def test_what_calls_itself_newer_does_not_push_out_what_is_written(folder):
    for seq in range(91, 95):
        await folder.save(seq, OLD)
    for seq in range(1, 6):
        await folder.save(seq, NEW)
    assert sorted(await folder.known()) == [3, 4, 5, 92, 93, 94]


async def test_a_folder_in_the_place_of_an_old_one_is_left_alone(folder):
    folder.path(1).mkdir(parents=True)
    for seq in range(2, 8):
        await folder.save(seq, NEW)
    assert sorted(await folder.known()) == [1, 5, 6, 7]


@pytest.mark.parametrize("strange", ["folder", "pipe", "device", "huge"])
async def test_what_is_no_file_or_too_large_is_not_read(folder, strange):
    await folder.save(1, OLD)
    path = folder.path(1)
    if strange == "huge":
        os.truncate(path, 1 << 40)
    else:
        path.unlink()
        make = {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}
        make.get(strange, lambda: path.symlink_to("/dev/zero"))()
    with pytest.raises(SnapshotUnusable):
        await folder.load(1)


def test_a_writer_that_is_killed_at_any_line_leaves_whole_snapshots_only(tmp_path):
    SnapshotFolder(tmp_path, "c")._save(1, OLD)
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *killed, last = done.stdout.splitlines()
    assert len(killed) > 20
    assert all(line.startswith("True") for line in killed)
    assert {line.split(" ", 1)[1] for line in killed} == {
        "[(1, 'old')] [120000] 0",
        "[(1, 'old')] [120000] 1",
        "[(1, 'old'), (2, 'new')] [120000] 0",
        "[(2, 'new')] [120000] 0",
    }
    assert last == "False [(2, 'new')] [120000] 0"


async def test_leftovers_go_unless_somebody_still_writes_them(folder):
    await folder.save(1, OLD)
    left, written = (Path(folder.where) / f".c-000000000002.snapshot.{n}" for n in "ab")
    left.write_bytes(NEW)
    with written.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await folder.save(3, NEW)
        assert written.exists()
    assert not left.exists()
    await folder.save(4, NEW)
    assert not written.exists()


_FULL = """
import resource, sys
from pathlib import Path
from unicron.controlplane.runtime.snapshot_folder import SnapshotFolder
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    SnapshotFolder(Path(sys.argv[1]), "c")._save(2, b"new" * 40_000)
except OSError as error:
    print(type(error).__name__, error.errno)
"""


async def test_a_disk_that_is_full_changes_nothing(folder):
    await folder.save(1, OLD)
    done = subprocess.run(
        [sys.executable, "-c", _FULL, folder.where], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("OSError"), done
    assert files(folder) == ["c-000000000001.snapshot"]
    assert await folder.load(1) == OLD


async def test_a_folder_that_can_not_be_one_is_an_error_of_the_system(tmp_path):
    (tmp_path / "file").write_text("")
    folder = SnapshotFolder(tmp_path / "file", "c")
    with pytest.raises(OSError):
        await folder.known()
    with pytest.raises(OSError):
        await folder.save(1, NEW)
    os.remove(tmp_path / "file")
    await folder.save(1, NEW)
