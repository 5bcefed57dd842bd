"""What several runs of one process may spend together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion._engine.budget import Budget
from orchestrion._engine.limiter import ServiceLimiter
from orchestrion._records import NO_USAGE, Usage

if TYPE_CHECKING:
    from orchestrion.config import Budget as BudgetCaps


class Allowance:
    """One budget and one limiter a service, for all runs that are given it.

    Usage that turns state and that costs nothing may be booked with another of these runs.

    Args:
        caps: of all runs together; None means no cap.
        spent: what these runs spent before this process.
        elapsed: seconds that they took before.
    """

    def __init__(
        self, caps: BudgetCaps | None = None, spent: Usage = NO_USAGE, elapsed: float = 0.0
    ) -> None:
        self.budget = Budget(caps, spent, elapsed)
        self.limiters: dict[str, ServiceLimiter] = {}
        """By service."""

    @property
    def elapsed(self) -> float:
        """Return how many seconds all of it has taken."""
        return self.budget.elapsed
