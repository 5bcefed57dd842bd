"""Agents that play the roles of a code review, with stated skills and without a model.

Public: `Script`, the right and wrong programs of a problem; `script_in`, which finds it by the
text of the problem; and `untidy`, which takes types out of a program. They are imported on first
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_code_review_agents.players import Script as Script
    from orchestrion_code_review_agents.players import script_in as script_in
    from orchestrion_code_review_agents.players import untidy as untidy

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
