"""Four source roots, one namespace: nothing of ours may claim the name `unicron` for itself."""

import importlib

import pytest

import unicron
from tests.architecture.sources import REPO, ROOTS


def test_unicron_is_a_namespace_and_no_package():
    assert getattr(unicron, "__file__", None) is None
    assert not list(REPO.glob("*/unicron/__init__.py"))


@pytest.mark.parametrize("root", ROOTS)
def test_each_root_holds_one_typed_package(root):
    package = REPO / root / "unicron" / root
    assert (package / "__init__.py").is_file()
    assert (package / "py.typed").is_file()
    beside = {p.name for p in (REPO / root / "unicron").iterdir()} - {"__pycache__"}
    assert beside == {root}


@pytest.mark.parametrize("root", ROOTS)
def test_public_names_exist_and_are_listed_once(root):
    package = importlib.import_module(f"unicron.{root}")
    names = list(getattr(package, "__all__", ()))
    assert len(names) == len(set(names))
    assert all(hasattr(package, name) for name in names)


@pytest.mark.parametrize("root", ROOTS)
def test_no_top_level_module_of_an_ordinary_name(root):
    """`events` or `planner` at top level would shadow a host's module of that name."""
    assert not list((REPO / root).glob("*.py"))
