"""Importing the control plane starts nothing and loads only what is used."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "megatron", "ortools", "nats", "opentelemetry", "rich", "click", "numpy"}

PROBE = """
import sys, threading
{code}
import os
children = open(f"/proc/{{os.getpid()}}/task/{{os.getpid()}}/children").read().split()
assert threading.active_count() == 1 and not children
print(*sys.modules)
"""


def _loaded(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE.format(code=code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return {*done.stdout.split()}


def test_the_package_alone_loads_nothing():
    loaded = _loaded("import unicron.controlplane")
    assert not loaded & (HEAVY | {"asyncio", "anyio", "msgspec"})


@pytest.mark.parametrize(
    "code",
    [
        "from unicron.controlplane import ControlPlane; ControlPlane('c')",
        "from unicron.controlplane import *",
        "from unicron.controlplane.replay import Replayer",
        "from unicron.planner import Planner; Planner('dp')",
    ],
)
def test_names_load_neither_server_nor_solver_nor_training(code):
    assert not _loaded(code) & HEAVY


def test_an_unknown_name_is_none():
    code = "import unicron.controlplane as c\ntry: c.Plan\nexcept AttributeError as e: print(e)"
    assert {"'unicron.controlplane'", "'Plan'"} <= _loaded(code)


def test_without_the_extra_the_message_says_what_to_install():
    code = """
sys.modules["anyio"] = None
try:
    from unicron.controlplane import ControlPlane
except ImportError as error:
    print(str(error).replace(" ", "_"))
"""
    said = " ".join(_loaded(code))
    assert "ControlPlane_needs_anyio,_which_isn't_installed" in said
    assert "pip_install_'unicron-controlplane[controlplane]'" in said
