"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrion import Component, hookimpl

HERE = "orchestrion_code_review_agents"
_TASK = {"task": {"use": "code-review", "max_problems": 2, "measures": []}}


@hookimpl
def orchestrion_agents() -> Iterable[Component]:
    """Return the three roles of a code review."""
    yield Component(
        "play-writer",
        f"{HERE}.players:PlayWriter",
        "plays a writer: right, wrong or untidy code, by stated skill; needs no model",
        around=_TASK,
    )
    yield Component(
        "play-reviewer",
        f"{HERE}.players:PlayReviewer",
        "plays a reviewer: says whether it sees a defect, by stated skill; needs no model",
        around=_TASK,
    )
    yield Component(
        "play-refactorer",
        f"{HERE}.players:PlayRefactorer",
        "plays a refactorer: tidies, and mends what a review named, by stated skill",
        around=_TASK,
    )
