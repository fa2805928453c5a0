"""Who imports whom: the contracts in pyproject.toml, and what they can't say module by module."""

import subprocess
import sys

import pytest

from tests.architecture.sources import REPO, imports, is_within, modules

PURE_PLANNER = tuple(
    f"unicron.planner.{name}"
    for name in (
        *("problem", "validation", "plan", "local", "sources", "check", "cost", "pricing"),
        *("whatif", "errors"),
    )
)

VIEWS = ("story", "summary", "steps", "phrases.names", "units")

# Longest matching prefix wins. What a module may import of ours, besides its own package.
OURS = {
    "unicron.events": (),
    "unicron.planner": ("unicron.events",),
    "unicron.worker_shim": ("unicron.events",),
    "unicron.controlplane.core": ("unicron.events", *PURE_PLANNER),
    "unicron.controlplane.replay": (
        "unicron.events",
        *PURE_PLANNER,
        *(f"unicron.planner.{name}" for name in ("assemble", "dynamic", "strategies")),
        "unicron.controlplane.core",
        "unicron.controlplane.errors",
    ),
    # A page is made from the views, never from the log itself.
    "unicron.controlplane.replay.page": (
        *(f"unicron.events.{name}" for name in ("WorkerId", "node_of")),
        *(f"unicron.controlplane.replay.{name}" for name in VIEWS),
    ),
    "unicron.controlplane": ("unicron",),
}

# Outside libraries that any module below the prefix may import.
OUTSIDE = {
    "unicron.events": {"msgspec"},
    "unicron.planner": {"msgspec"},
    "unicron.worker_shim": {"msgspec", "torch", "megatron", "numpy", "setproctitle"},
    "unicron.controlplane": {"msgspec"},
    "unicron.controlplane.core": {"msgspec"},
    "unicron.controlplane.replay": {"msgspec"},
    "unicron.controlplane.runtime": {"msgspec", "anyio", "setproctitle"},
    "unicron.controlplane.testing": {"msgspec", "anyio", "hypothesis"},
    "unicron.controlplane.embed": {"msgspec", "anyio"},
    "unicron.controlplane.cli": {"msgspec", "anyio", "click", "rich", "setproctitle"},
}

# One adapter for each outside dependency: imported there and nowhere else.
ADAPTERS = {
    "nats": {
        "unicron.controlplane.runtime.jetstream",
        "unicron.controlplane.runtime.natsbus",
        "unicron.worker_shim.transport",
    },
    "ortools": {"unicron.planner.cpsat"},
    "zstandard": {"unicron.events.compressed"},
    "opentelemetry": {"unicron.controlplane.runtime.telemetry"},
}

# Standard library that a part must not touch: clocks, chance, the outside world.
WORLD = {"asyncio", "concurrent", "logging", "multiprocessing", "os", "random", "secrets", "select"}
WORLD |= {"selectors", "signal", "socket", "ssl", "subprocess", "threading", "time", "uuid"}
NETWORK = {"asyncio", "http", "random", "secrets", "socket", "ssl", "time", "urllib", "uuid"}
STDLIB_FORBIDDEN = {
    "unicron.events": {"asyncio", "random", "socket", "subprocess", "threading"},
    "unicron.controlplane.core": WORLD | {"pathlib", "shutil", "tempfile", "urllib", "http"},
    "unicron.controlplane.replay": NETWORK,
    "unicron.controlplane.replay.page": WORLD | NETWORK | {"pathlib", "shutil", "tempfile"},
}


def rule(table, module):
    """The entry of the longest prefix of the module's name."""
    prefix = max((key for key in table if is_within(module, key)), key=len, default=None)
    return prefix, table.get(prefix, ())


def complaints(module, source, *, is_package=False):
    """What the source of that module imports against the rules, one sentence each."""
    for line, name in imports(source, module, is_package=is_package):
        top = name.partition(".")[0]
        if top == "unicron":
            own, allowed = rule(OURS, module)
            if not any(is_within(name, package) for package in (own, *allowed)):
                yield f"{module}:{line} imports {name}"
            parts, mine = name.split("."), module.split(".")
            private = any(part.startswith("_") and part != "__version__" for part in parts)
            if private and parts[:2] != mine[:2]:
                yield f"{module}:{line} imports {name}, which is private to {parts[1]}"
        elif top in sys.stdlib_module_names:
            if top in rule(STDLIB_FORBIDDEN, module)[1]:
                yield f"{module}:{line} imports {name}: not in a pure module"
        elif top in ADAPTERS:
            if not any(is_within(module, adapter) for adapter in ADAPTERS[top]):
                yield f"{module}:{line} imports {name}: only {sorted(ADAPTERS[top])} may"
        elif top not in rule(OUTSIDE, module)[1]:
            yield f"{module}:{line} imports {name}: not among this part's dependencies"


def test_every_module_keeps_the_import_rules():
    found = [
        complaint
        for module, path in modules()
        for complaint in complaints(
            module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py"
        )
    ]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(
    "module,source",
    [
        ("unicron.events.node", "from unicron.planner import plan"),
        ("unicron.events.codec", "import torch"),
        ("unicron.planner.plan", "from unicron.controlplane.core import state"),
        ("unicron.planner.local", "from ortools.sat.python import cp_model"),
        ("unicron.worker_shim.agent", "def f():\n    import unicron.planner.problem"),
        ("unicron.worker_shim.agent", "import nats"),
        ("unicron.controlplane.core.fold", "import time"),
        ("unicron.controlplane.core.fold", "from os import path"),
        ("unicron.controlplane.core.fold", "from ..runtime import engine"),
        ("unicron.controlplane.core.fold", "from unicron.planner import cpsat"),
        ("unicron.controlplane.core.fold", "from unicron.planner import Plan"),
        ("unicron.controlplane.core.fold", "import importlib\nimportlib.import_module('nats')"),
        ("unicron.controlplane.replay.replayer", "import asyncio"),
        ("unicron.controlplane.replay.replayer", "from unicron.controlplane import runtime"),
        ("unicron.controlplane.replay.page.telling", "import os"),
        ("unicron.controlplane.replay.page.telling", "from unicron.events import Recorded"),
        (
            "unicron.controlplane.replay.page.telling",
            "from unicron.controlplane.replay import views",
        ),
        ("unicron.controlplane.runtime.engine", "import nats.js"),
        ("unicron.controlplane.runtime.engine", "from opentelemetry import trace"),
        ("unicron.controlplane.runtime.engine", "from unicron.events._canonical import encode"),
        ("unicron.controlplane.runtime.engine", "import requests"),
    ],
)
def test_a_forbidden_import_is_noticed(module, source):
    assert list(complaints(module, source))


@pytest.mark.parametrize(
    "module,source",
    [
        ("unicron.planner.cpsat", "from ortools.sat.python import cp_model"),
        ("unicron.worker_shim.transport", "import nats"),
        ("unicron.controlplane.core.fold", "from unicron.planner.plan import Plan"),
        ("unicron.controlplane.core.fold", "from . import state\nimport hashlib, msgspec"),
        ("unicron.controlplane.replay.replayer", "from unicron.controlplane.core import fold"),
        ("unicron.controlplane.runtime.engine", "import anyio, asyncio, time"),
    ],
)
def test_an_allowed_import_passes(module, source):
    assert not list(complaints(module, source))


def test_import_contracts_hold():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


HEAVY = {"torch", "megatron", "numpy", "ortools", "opentelemetry", "nats", "anyio", "rich"}


@pytest.mark.parametrize(
    "package,never",
    [
        ("unicron.events", HEAVY | {"asyncio", "unicron.planner", "unicron.worker_shim"}),
        ("unicron.planner", HEAVY | {"asyncio"}),
        ("unicron.worker_shim", HEAVY - {"nats"} | {"unicron.controlplane", "unicron.planner"}),
        ("unicron.controlplane.core", HEAVY | {"asyncio", "unicron.planner.cpsat"}),
        ("unicron.controlplane.replay", HEAVY | {"asyncio", "unicron.controlplane.runtime"}),
    ],
)
def test_importing_a_part_brings_only_what_it_needs(package, never):
    code = f"import sys, {package}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert package in done.stdout.split()
    assert not never & {*done.stdout.split()}
