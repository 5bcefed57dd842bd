"""Every exception Orchestrion raises on purpose.

OrchestrionError
├── UsageError            what the user asked for cannot be done as asked (exit code 2)
│   ├── ConfigError       one or more problems in a config, each with its place
│   └── PluginError       a plugin or a component that is needed cannot be had
├── RunError              a run failed (exit code 1)
│   ├── StoreError        the run directory cannot be read, written or locked
│   ├── CheckpointError   a checkpoint is damaged or does not fit
│   └── ReplayError       a recorded call is missing or differs
├── CallError             one call to the outside failed; carries its fault class
└── BudgetError           the run's budget is used up (exit code 4, resumable)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from orchestrion._records import Usage

Fault = Literal[
    "rate_limit",  # too many requests: wait, and shrink concurrency
    "overload",  # the service is busy: wait longer, keep concurrency
    "transient",  # network, time-out, 5xx: try again
    "malformed",  # an answer that cannot be used: try again, at most twice
    "quota",  # the account is empty: no retry, the run pauses resumable
    "permanent",  # the request itself is wrong: no retry
]


class OrchestrionError(Exception):
    """Root of all errors raised on purpose; `exit_code` is the command line's."""

    exit_code = 1


class UsageError(OrchestrionError):
    """The request cannot be carried out as stated; nothing was changed."""

    exit_code = 2


class ConfigError(UsageError):
    """One or more problems in a config, all of them reported at once."""

    def __init__(self, problems: Sequence[str], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        count = len(self.problems)
        head = f"{source}: {count} problem{'s' if count != 1 else ''}" if source else ""
        super().__init__("\n".join(([head] if head else []) + [f"  {p}" for p in self.problems]))


class PluginError(UsageError):
    """A plugin or component that is needed is missing, broken, blocked or ambiguous."""


class RunError(OrchestrionError):
    """A run failed."""


class StoreError(RunError):
    """A run directory cannot be read, written or locked."""


class CheckpointError(RunError):
    """A checkpoint is damaged, or was written for another team or config."""


class ReplayError(RunError):
    """Replay met a call that was not recorded, or that differs from the record."""


class CallError(OrchestrionError):
    """One call to the outside failed.

    Args:
        message: what went wrong, in a sentence.
        fault: decides whether the call is tried again, see `Fault`.
        retry_after: seconds the service asked to wait, if it did.
        spent: what the attempt may have taken all the same (an answer that broke off was paid
            for); None means nothing.
    """

    def __init__(
        self,
        message: str,
        fault: Fault = "transient",
        retry_after: float | None = None,
        spent: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.fault: Fault = fault
        self.retry_after = retry_after
        self.spent = spent


class BudgetError(OrchestrionError):
    """The run's budget does not cover the next call; the run ends resumable."""

    exit_code = 4
