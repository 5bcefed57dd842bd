"""Run programs that nobody trusts, and judge their results.

    from orchestrion_sandbox import Program, Profile, choose

    async with choose("auto").open(Profile()) as box:
        result = await box.run(Program("print(6 * 7)"))

Names are imported on first use. Code that runs inside a sandbox uses the module
`orchestrion_sandbox.inside.plain`, since this package is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrion_sandbox.interface import ConversationEnded as ConversationEnded
    from orchestrion_sandbox.interface import Limits as Limits
    from orchestrion_sandbox.interface import Profile as Profile
    from orchestrion_sandbox.interface import Program as Program
    from orchestrion_sandbox.interface import Result as Result
    from orchestrion_sandbox.interface import SandboxError as SandboxError
    from orchestrion_sandbox.interface import Status as Status
    from orchestrion_sandbox.judge import JUDGE_LIMITS as JUDGE_LIMITS
    from orchestrion_sandbox.judge import judge_calls as judge_calls
    from orchestrion_sandbox.judge import judge_statements as judge_statements
    from orchestrion_sandbox.sandboxes import choose as choose
    from orchestrion_sandbox.sandboxes import require as require
    from orchestrion_sandbox.supervising import Box as Box
    from orchestrion_sandbox.supervising import Sandbox as Sandbox
    from orchestrion_sandbox.verdict import Case as Case
    from orchestrion_sandbox.verdict import CaseOutcome as CaseOutcome
    from orchestrion_sandbox.verdict import Equal as Equal
    from orchestrion_sandbox.verdict import Verdict as Verdict

# The interpreter that becomes the sandbox imports this package without site-packages, so neither
# `orchestrion.names_on_first_use` nor anything else beyond the standard library can be used here.
_MODULES = {
    "interface": ("ConversationEnded Limits Profile Program Result SandboxError Status"),
    "judge": "JUDGE_LIMITS judge_calls judge_statements",
    "sandboxes": "choose require",
    "supervising": "Box Sandbox",
    "verdict": "Case CaseOutcome Equal Verdict",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
