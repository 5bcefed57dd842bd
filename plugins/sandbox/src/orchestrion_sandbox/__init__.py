"""Run programs that nobody trusts, and judge what they give.

from orchestrion_sandbox import Program, Profile, choose

async with choose("auto").open(Profile()) as box:
    result = await box.run(Program("print(6 * 7)"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrion_sandbox.errors import ConversationEnded, SandboxError
    from orchestrion_sandbox.interface import (
        Box,
        Limits,
        Profile,
        Program,
        Result,
        Sandbox,
        Status,
    )
    from orchestrion_sandbox.judge import JUDGE_LIMITS, judge_calls, judge_statements
    from orchestrion_sandbox.pytest_profile import pytest_profile
    from orchestrion_sandbox.repository import judge_repository
    from orchestrion_sandbox.sandboxes import choose, require
    from orchestrion_sandbox.split import PYTEST_LIMITS, collect, judge_pytest
    from orchestrion_sandbox.verdict import Case, CaseOutcome, Verdict

# Where each name is; modules are loaded when a name is first used, so that listing plugins and
# checking configs load none of them.
_HOMES = {
    "errors": ("ConversationEnded", "SandboxError"),
    "interface": ("Box", "Limits", "Profile", "Program", "Result", "Sandbox", "Status"),
    "judge": ("JUDGE_LIMITS", "judge_calls", "judge_statements"),
    "pytest_profile": ("pytest_profile",),
    "repository": ("judge_repository",),
    "sandboxes": ("choose", "require"),
    "split": ("PYTEST_LIMITS", "collect", "judge_pytest"),
    "verdict": ("Case", "CaseOutcome", "Verdict"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "JUDGE_LIMITS",
    "PYTEST_LIMITS",
    "Box",
    "Case",
    "CaseOutcome",
    "ConversationEnded",
    "Limits",
    "Profile",
    "Program",
    "Result",
    "Sandbox",
    "SandboxError",
    "Status",
    "Verdict",
    "choose",
    "collect",
    "judge_calls",
    "judge_pytest",
    "judge_repository",
    "judge_statements",
    "pytest_profile",
    "require",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
