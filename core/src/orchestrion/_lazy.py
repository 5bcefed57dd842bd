"""Lets a module import its public names on first use, so that importing the module is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any


def names_on_first_use(
    module: str, homes: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a module.

    Args:
        module: its name.
        homes: by module, the names it supplies, with spaces between them. Left out, they are what
            the module imports for type checkers, each in a line `from home import name as name`.
    """
    if homes is None:
        home = dict(_imported_for_types(module))
    else:
        home = {name: where for where, names in homes.items() for name in names.split()}

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


def _imported_for_types(module: str) -> Iterator[tuple[str, str]]:
    loader: Any = sys.modules[module].__loader__  # reads archives too
    for line in loader.get_source(module).splitlines():
        if line.startswith("    from ") and " as " in line:
            _, where, _, name, *_ = line.split()
            yield name, where
