"""The built wheel and sdist, once for all tests here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
