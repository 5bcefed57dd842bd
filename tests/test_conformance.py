"""Every component of every member keeps the contract of its kind."""

from __future__ import annotations

import pytest

from orchestrion._discovery import installed
from orchestrion.testing._kit import Check, checks

CASES = [
    pytest.param(check, id=f"{plugin.name}-{check.component}: {check.name}")
    for plugin in installed()
    if plugin.distribution.startswith("orchestrion-")
    for check in checks(plugin.name)
]


@pytest.mark.parametrize("check", CASES)
def test_conformance(check: Check) -> None:
    assert check.run() >= 0
