"""For people who write plugins and test them: fakes, strategies, and the conformance kit.

    from orchestrion.testing import parametrize_with_checks   # pytest
    orchestrion check my-plugin                                # the same checks, without pytest
"""

from __future__ import annotations

from orchestrion.testing.fakes import (
    Fixed,
    ListTask,
    ScriptedAgent,
    ScriptedModel,
    engine_for,
)

__all__ = ["Fixed", "ListTask", "ScriptedAgent", "ScriptedModel", "engine_for"]
