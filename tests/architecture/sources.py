"""The files of this house and what each of its modules imports, read without importing anything."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
ROOTS = ("events", "planner", "controlplane", "worker_shim")
SKIPPED = {".git", ".venv", "shared", "build", "dist", "__pycache__"}


def files() -> list[Path]:
    """What is tracked or about to be; outside a git checkout, whatever lies here."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = [REPO / name for name in listed.stdout.split("\0") if name]
    else:
        found = list(REPO.rglob("*"))
    return sorted(p for p in found if p.is_file() and not SKIPPED & {*p.relative_to(REPO).parts})


def modules(*roots: str) -> Iterator[tuple[str, Path]]:
    """Dotted name and file of each product module, in the given roots or in all."""
    for root in roots or ROOTS:
        for path in sorted((REPO / root).rglob("*.py")):
            parts = path.relative_to(REPO / root).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(source: str, module: str, *, is_package: bool = False) -> list[tuple[int, str]]:
    """Line and absolute name of everything the source imports, wherever in the file.

    ``from a import b`` gives ``a.b``: whether b is a module or a name in it can't be seen here.
    """
    package = module.split(".") if is_package else module.split(".")[:-1]
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, alias.name) for alias in names]
            case ast.ImportFrom(module=target, names=names, level=level):
                base = package[: len(package) - level + 1] if level else []
                base = [*base, *(target.split(".") if target else [])]
                found += [(node.lineno, ".".join([*base, alias.name])) for alias in names]
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                found.append((node.lineno, name))
    return found


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")
