"""Gymnasium environments as tasks for Orchestrion.

For packages with environments of another kind, this module exports what such tasks share: `Live`
(environments behind immutable states), spaces for agents and policies (`Features`, `described`,
`in_words`, `plain`, `to_action`), and common settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_gymnasium.live import Live as Live
    from orchestrion_gymnasium.outcome import Counts as Counts
    from orchestrion_gymnasium.outcome import OpenedSeeds as OpenedSeeds
    from orchestrion_gymnasium.outcome import Returns as Returns
    from orchestrion_gymnasium.outcome import Seeds as Seeds
    from orchestrion_gymnasium.outcome import action_of as action_of
    from orchestrion_gymnasium.spaces import Features as Features
    from orchestrion_gymnasium.spaces import described as described
    from orchestrion_gymnasium.spaces import in_words as in_words
    from orchestrion_gymnasium.spaces import plain as plain
    from orchestrion_gymnasium.spaces import to_action as to_action

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
