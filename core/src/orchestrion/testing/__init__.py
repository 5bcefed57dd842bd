"""For people who write plugins and test them: fakes and the conformance kit.

    from orchestrion.testing import parametrize_with_checks   # pytest
    orchestrion check my-plugin                                # the same checks, without pytest

The first needs pytest, which the extra `orchestrion[testing]` installs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrion.testing._fakes import (
    Fixed,
    ListTask,
    ScriptedAgent,
    ScriptedModel,
    engine_for,
    opened_engine,
)

__all__ = [
    "Fixed",
    "ListTask",
    "ScriptedAgent",
    "ScriptedModel",
    "engine_for",
    "opened_engine",
    "parametrize_with_checks",
]


def parametrize_with_checks(
    plugin: str, expected_failures: Mapping[str, str] | None = None
) -> Callable[[Any], Any]:
    """Return a pytest decorator: one test for each conformance check of a plugin."""
    from orchestrion.testing import _kit as kit

    return kit.parametrize_with_checks(plugin, expected_failures)
