"""The wheel, installed into new environments and used from an empty folder: the whole product
beside other people's packages, and the base alone, as in an image for training."""

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
HEAVY = {"ortools", "torch", "megatron", "numpy", "opentelemetry", "anyio", "click", "rich"}

# Runs a file, then says where our modules came from.
PROBE = """
import runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
print("from:", *{m.__file__ for n, m in sys.modules.items() if n.startswith("unicron.")}, sep="\\n")
"""

# Embeds a control plane, trains something on it, and leaves its history.
TRIAL = """
import asyncio
from pathlib import Path
from unicron.controlplane import ControlPlane, MemoryLog, MemoryStream, NodeOffered, Scheduler
from unicron.controlplane.local.spec import demo_task
from unicron.controlplane.testing.crew import PretendedCrew
from unicron.events import HistoryHeader, write_history

class Host(PretendedCrew, Scheduler):
    async def nodes(self):
        yield NodeOffered(node="n1", devices=2)

async def main():
    stream = MemoryStream("lab")
    async with ControlPlane("lab", log=MemoryLog(stream), scheduler=Host()) as plane:
        await plane.submit(demo_task(iterations=5, seed=1))
        await plane.until(lambda s: s.tasks["gpt"].phase == "completed")
        header = HistoryHeader(cluster="lab", birth=stream.birth, version="test")
        write_history(Path("lab.ndjson"), header, await plane.history())

asyncio.run(main())
"""


def _use(python, *command, cwd, code=0):
    """What the command prints, in an environment that knows nothing of the checkout."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={"PATH": f"{python.parent}:{os.defpath}", "HOME": str(cwd)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def _ours(python, said):
    """The modules named by PROBE all come from the environment; what was printed before."""
    before, _, files = said.partition("from:\n")
    loaded = files.split()
    assert len(loaded) > 20
    assert all(Path(file).is_relative_to(python.parents[1]) for file in loaded), loaded
    return before


# --- The whole product ------------------------------------------------------------------------


def test_the_command_says_its_version_and_how_to_use_it(full, tmp_path):
    said = _use(full, "unicron", "--version", cwd=tmp_path)
    assert said == f"unicron {metadata.version('unicron-controlplane')}\n"
    assert "--faults" in _use(full, "unicron", "demo", "--help", cwd=tmp_path)


def test_an_example_runs(full, tmp_path):
    shutil.copy(REPO / "examples" / "embed_scheduler.py", tmp_path)
    said = _use(full, "python", "-c", PROBE, "embed_scheduler.py", cwd=tmp_path)
    lines = _ours(full, said).splitlines()
    assert "completed gpt" in lines
    assert lines[-1].endswith(": True")


def test_a_history_is_replayed(full, tmp_path):
    (tmp_path / "trial.py").write_text(TRIAL)
    _ours(full, _use(full, "python", "-c", PROBE, "trial.py", cwd=tmp_path))
    command = ("unicron", "replay", "--log", "lab.ndjson", "--verify", "--json")
    report = json.loads(_use(full, *command, cwd=tmp_path))
    assert report["verified"] is True
    assert report["redecided"] > 3
    history = (tmp_path / "lab.ndjson").read_text()
    (tmp_path / "lab.ndjson").write_text(history.replace("embedder", "embezzle", 1))
    assert "E-LOG-CHANGED" in _use(full, *command[:-1], cwd=tmp_path, code=1)


# --- The base alone ---------------------------------------------------------------------------


def test_the_base_is_complete_and_small(base, tmp_path):
    check = ("-m", "pip", "--python", str(base), "check", "--disable-pip-version-check")
    assert "No broken requirements" in _use(base, sys.executable, *check, cwd=tmp_path)
    (packages,) = base.parents[1].glob("lib/python3*/site-packages")
    there = {path.name for path in packages.iterdir()}
    assert not HEAVY & there
    assert {"unicron", "msgspec", "nats"} <= there


@pytest.mark.parametrize(
    "module",
    [
        "unicron.events",
        "unicron.worker_shim",
        "unicron.worker_shim.core",
        "unicron.worker_shim.launch",
        "unicron.worker_shim.supervision",
        "unicron.worker_shim.transport",
        "unicron.planner",
        "unicron.controlplane",
        "unicron.controlplane.replay",
    ],
)
def test_a_training_image_can_import_it(base, module, tmp_path):
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = {*_use(base, "python", "-W", "error", "-c", code, cwd=tmp_path).split()}
    assert module in loaded
    assert not HEAVY & loaded


def test_what_the_base_lacks_is_said_with_what_to_do(base, tmp_path):
    assert "pip install 'unicron-controlplane[controlplane]'" in _use(
        base, "unicron", "--version", cwd=tmp_path, code=2
    )
    code = "import unicron.controlplane as c; c.ControlPlane"
    said = _use(base, "python", "-c", code, cwd=tmp_path, code=1)
    assert said.splitlines()[-1] == (
        "ImportError: unicron.controlplane.ControlPlane needs anyio, which isn't installed: "
        "pip install 'unicron-controlplane[controlplane]'"
    )
    code = "from unicron.planner import Planner; Planner()"
    said = _use(base, "python", "-c", code, cwd=tmp_path, code=1)
    assert "or use 'dp'" in said
