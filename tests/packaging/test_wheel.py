"""What is built is what we mean to ship, and it works without the checkout."""

import json
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PARTS = {"events", "planner", "controlplane", "worker_shim"}

# Imports one module where only the wheel and other people's packages can be found: no site module,
# so no editable install; no current folder. Prints where things came from and what was loaded.
PROBE = """
import sys
installed, others, name = sys.argv[1:]
sys.path[:] = [installed, *(p for p in sys.path if p), others]
__import__(name)
import json, unicron
ours = {n: m.__file__ for n, m in sys.modules.items() if n.startswith("unicron.")}
files = [getattr(m, "__file__", None) or "" for m in sys.modules.values()]
outside = {f[len(others) + 1:].split("/")[0].split(".")[0] for f in files if f.startswith(others)}
print(json.dumps({"namespace": list(unicron.__path__), "ours": ours, "outside": sorted(outside)}))
"""


def imported(name, installed, empty_folder):
    others = sysconfig.get_path("purelib")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROBE, str(installed), others, name],
        cwd=empty_folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_wheel_holds_the_four_parts_and_metadata_only(wheel):
    names = [Path(name).parts for name in zipfile.ZipFile(wheel).namelist()]
    code = [parts for parts in names if not parts[0].endswith(".dist-info")]
    assert {parts[0] for parts in code} == {"unicron"}
    assert {parts[1] for parts in code} == PARTS
    for part in PARTS:
        assert ("unicron", part, "__init__.py") in code
        assert ("unicron", part, "py.typed") in code
    assert not [parts for parts in code if "tests" in parts or "__pycache__" in parts]


def test_wheel_holds_every_module_of_the_checkout(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    here = {
        path.relative_to(REPO / part).as_posix()
        for part in PARTS
        for path in (REPO / part).rglob("*.py")
    }
    assert inside == here


def test_metadata_says_what_it_needs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
        scripts = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
        assert archive.read(name.replace("METADATA", "licenses/LICENSE"))
    needs = metadata.get_all("Requires-Dist")
    base = {need.split(">")[0] for need in needs if "extra ==" not in need}
    assert metadata["Name"] == "unicron-controlplane"
    assert metadata["Requires-Python"] == ">=3.11"
    assert base == {"msgspec", "nats-py"}
    assert {*metadata.get_all("Provides-Extra")} == {"controlplane", "worker", "zstd", "dev"}
    assert "unicron = unicron.controlplane.cli.main:main" in scripts


@pytest.mark.parametrize(
    "name,outside",
    [
        ("unicron.events", {"msgspec"}),
        ("unicron.worker_shim", {"msgspec", "nats"}),
        ("unicron.planner", {"msgspec"}),
        ("unicron.controlplane.core", {"msgspec"}),
        ("unicron.controlplane.replay", {"msgspec"}),
    ],
)
def test_imports_come_from_the_wheel_and_need_no_extra(name, outside, installed, tmp_path):
    seen = imported(name, installed, tmp_path)
    assert seen["namespace"] == [str(installed / "unicron")]
    assert name in seen["ours"]
    assert all(Path(file).is_relative_to(installed) for file in seen["ours"].values())
    assert {*seen["outside"]} - {"typing_extensions"} <= outside  # msgspec takes it where it is


def test_the_command_starts_from_the_wheel(installed, tmp_path):
    seen = imported("unicron.controlplane.cli.main", installed, tmp_path)
    assert all(Path(file).is_relative_to(installed) for file in seen["ours"].values())
    assert not {"torch", "ortools", "megatron"} & {*seen["outside"]}


def test_sdist_holds_sources_and_nothing_of_this_machine(sdist):
    with tarfile.open(sdist) as archive:
        names = [Path(name).parts[1:] for name in archive.getnames()]
    allowed = PARTS | {"tests", "docs", "benchmarks", "examples"}
    folders = {parts[0] for parts in names if len(parts) > 1}
    assert PARTS | {"tests"} <= folders <= allowed
    assert not [parts for parts in names if {".venv", "__pycache__", "shared"} & {*parts}]
