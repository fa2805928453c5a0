"""A mutant's code put where the original's was.

What stands in a function is swapped in the running process: every reference to the function, from
whatever module, then runs the new code. What runs when its module is imported (tables, defaults)
can't be swapped without missing a copy somewhere, so such a mutant is imported afresh.
"""

import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.mutation.source import Mutant


class NotThere(Exception):
    """The function isn't to be found in the running process."""


def swap(mutant: Mutant) -> None:
    """The mutated function's code takes the place of the original's.

    Raises:
        NotThere: it isn't a plain function or method of a loaded module.
    """
    function = _live(_module(mutant), mutant.function)
    compiled = compile(mutant.source(), str(mutant.path), "exec", dont_inherit=True)
    for code in _codes(compiled):
        if code.co_qualname == mutant.function:
            function.__code__ = code
            return
    raise NotThere(mutant.function)


def _module(mutant: Mutant) -> ModuleType:
    path = str(mutant.path)
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == path:
            return module
    raise NotThere(path)


def _live(module: ModuleType, name: str) -> FunctionType:
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part)
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, staticmethod | classmethod):
            found = found.__func__
    if not isinstance(found, FunctionType) or found.__qualname__ != name:
        raise NotThere(name)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def import_instead(mutant: Mutant) -> None:
    """From now on this process imports the mutant in place of its file."""
    original = SourceFileLoader.get_code
    compiled = compile(mutant.source(), str(mutant.path), "exec", dont_inherit=True)

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return compiled if self.path == str(mutant.path) else original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
