"""Every component of every member keeps the contract of its kind.

That none imports heavy libraries before `open` is seen in one process for all of them, in
`tests/repository/test_imports.py`. Those of other frameworks, which take seconds to import, are
checked where their other tests are.
"""

from __future__ import annotations

import pytest

from orchestrion._discovery import installed
from orchestrion.testing._kit import Check, checks

ELSEWHERE = {"langgraph", "openai-agents", "pydantic-ai"}
CASES = [
    pytest.param(check, id=f"{plugin.name}-{check.component}: {check.name}")
    for plugin in installed()
    if plugin.distribution.startswith("orchestrion-") and plugin.name not in ELSEWHERE
    for check in checks(plugin.name)
    if check.name != "is light"
]


@pytest.mark.parametrize("check", CASES)
def test_conformance(check: Check) -> None:
    assert check.run() >= 0
