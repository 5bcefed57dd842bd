"""Code review as a task: teams write, review and refactor functions; hidden tests judge them.

Public for agents: the problems that come with the task, and the versions of a program that a
team's turns hold. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_code_review.challenge import Challenge as Challenge
    from orchestrion_code_review.generator import challenge_in as challenge_in
    from orchestrion_code_review.generator import challenge_of as challenge_of
    from orchestrion_code_review.versions import Version as Version
    from orchestrion_code_review.versions import versions_of as versions_of

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
