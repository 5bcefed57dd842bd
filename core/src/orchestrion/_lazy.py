"""Import the public names of a module on first use, so that importing the module is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def names_on_first_use(
    module: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a module.

    Its names are those it imports for type checkers, each in a line `from home import name as name`
    below `if TYPE_CHECKING:`.
    """
    home: dict[str, str] = {}
    loader: Any = sys.modules[module].__loader__  # reads archives too
    for line in loader.get_source(module).splitlines():
        if line.startswith("    from ") and " as " in line:
            _, where, _, name, *_ = line.split()
            home[name] = where

    def get(name: str) -> Any:
        where = home.get(name)
        if where is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(where), name)
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *home})

    return get, names, sorted(home)
