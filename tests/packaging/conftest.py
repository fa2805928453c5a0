"""The built wheel and sdist, once for all tests here."""

import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPO = Path(__file__).resolve().parents[2]


def run(*command, cwd):
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(target, folder):
    run("-m", "hatchling", "build", "-t", target, "-d", str(folder), cwd=REPO)
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory):
    return built("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """A folder with nothing but the wheel's content in it."""
    target = tmp_path_factory.mktemp("installed")
    pip = ("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile")
    run(*pip, "--disable-pip-version-check", "--target", str(target), str(wheel), cwd=target)
    shutil.rmtree(target / "bin", ignore_errors=True)
    return target


def new_environment(folder, wheel):
    """A virtual environment with the wheel alone, installed as a person would: its Python."""
    run("-m", "venv", "--without-pip", str(folder), cwd=folder.parent)
    python = folder / "bin" / "python"
    pip = ("-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps")
    run(*pip, "--disable-pip-version-check", str(wheel), cwd=folder.parent)
    return python


def site_packages(python):
    (found,) = python.parents[1].glob("lib/python3*/site-packages")
    return found


@pytest.fixture(scope="session")
def full(wheel, tmp_path_factory):
    """Python of a new environment in which other people's packages are this one's. A path in a
    .pth file is only searched: the editable install there is not seen."""
    python = new_environment(tmp_path_factory.mktemp("full") / "venv", wheel)
    others = sysconfig.get_path("purelib")
    (site_packages(python) / "others.pth").write_text(others + "\n")
    return python


def _needed(name, found):
    """The distribution and all that it needs without extras, by their metadata."""
    if name in found:
        return
    found.add(name)
    for line in metadata.requires(name) or ():
        need = Requirement(line)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            _needed(need.name, found)


@pytest.fixture(scope="session")
def base(wheel, tmp_path_factory):
    """Python of a new environment with the wheel and what its metadata needs without any extra,
    and what that needs: what `pip install unicron-controlplane` gives. No index is asked; the
    packages come from this environment."""
    python = new_environment(tmp_path_factory.mktemp("base") / "venv", wheel)
    target, names = site_packages(python), set()
    (info,) = target.glob("unicron_controlplane-*.dist-info")
    for line in metadata.Distribution.at(info).requires or ():
        need = Requirement(line)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            _needed(need.name, names)
    for name in names:
        for file in metadata.files(name):
            if ".." not in file.parts and file.locate().is_file():
                place = target / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), place)
    return python
