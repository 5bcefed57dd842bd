"""Every component of every member keeps the contract of its kind.

That none imports heavy libraries before `open` is seen in one process for all of them, in
`tests/repository/test_imports.py`. Those of other frameworks, which take seconds to import, are
checked where their other tests are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pytest

from orchestrion._discovery import installed
from orchestrion.testing._kit import Check, checks

ELSEWHERE = {"langgraph", "openai-agents", "pydantic-ai"}


def components() -> Iterator[object]:
    """Yield the checks of each component: there are too many for a test each."""
    for plugin in installed():
        if plugin.distribution.startswith("orchestrion-") and plugin.name not in ELSEWHERE:
            wanted = (check for check in checks(plugin.name) if check.name != "is light")
            for name, its in groupby(wanted, key=lambda check: check.component):
                yield pytest.param(list(its), id=f"{plugin.name}-{name}")


@pytest.mark.parametrize("its_checks", list(components()))
def test_conformance(its_checks: list[Check]) -> None:
    errors = []
    for check in its_checks:
        try:
            assert check.run() >= 0
        except Exception as error:
            error.add_note(f"in the check that it {check.name}")
            errors.append(error)
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(its_checks)} checks failed", errors)
