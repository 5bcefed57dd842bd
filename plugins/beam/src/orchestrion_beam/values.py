"""Estimate the value of unfinished trajectories: by the task, by noise, by several estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from attrs import Attribute, Factory, field, frozen

from orchestrion import Branch, Key, Meta, Session, Usage, ceiling_of, no_calls
from orchestrion_beam.interfaces import Valued, ValueEstimator
from orchestrion_beam.search import run_all


@frozen
class TaskValue(ValueEstimator):
    """The task's own partial score: `verify` with `final=False`.

    A task that knows the best score that a trajectory can still reach gives it as the part `bound`
    of its partial score.
    """

    label = "task"
    ceiling = no_calls

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """Return the partial score and its bound."""
        scores = await session.score(branch)
        return Valued(scores.value, bound=scores.parts.get("bound", 1.0))


@frozen
class Noise(ValueEstimator):
    """A random number, independent of the trajectory: shows the search without a value."""

    label = "noise"
    scores = 0
    ceiling = no_calls

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """Return a number uniform on [0, 1); equal for equal content."""
        return Valued(key.child("noise").uniform())


@frozen
class Combined(ValueEstimator):
    """The weighted mean of several estimates.

    Args:
        parts: at least one estimator.
        weights: one for each part; equal weights by default.
    """

    parts: Annotated[Sequence[ValueEstimator], Meta(min_length=1)]
    weights: Sequence[Annotated[float, Meta(gt=0)]] = field(default=Factory(tuple))

    @weights.validator
    def _check_weights(self, attribute: Attribute[Any], value: Sequence[float]) -> None:
        if value and len(value) != len(self.parts):
            raise ValueError(f"weights: got {len(value)} for {len(self.parts)} parts")

    @property
    def label(self) -> str:
        """Return the names of all parts."""
        return " and ".join(part.label for part in self.parts)

    @property
    def scores(self) -> int:
        """Return how many partial scores all parts ask for."""
        return sum(part.scores for part in self.parts)

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that all parts use together; None if a part has no bound."""
        usages = [ceiling_of(part, tokens) for part in self.parts]
        bounds = [usage for usage in usages if usage is not None]
        return sum(bounds, Usage()) if len(bounds) == len(usages) else None

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """Return the weighted mean of the parts that have a value."""
        estimates = await run_all(
            [part.estimate(branch, session, key.child(n)) for n, part in enumerate(self.parts)]
        )
        weights = self.weights or (1.0,) * len(estimates)
        weighted = [
            (valued.value, weight)
            for valued, weight in zip(estimates, weights, strict=True)
            if valued.value is not None
        ]
        usage = sum((valued.usage for valued in estimates), Usage())
        bound = min(valued.bound for valued in estimates)
        if not weighted:
            return Valued(None, usage, bound)
        total = sum(weight for _, weight in weighted)
        return Valued(sum(value * weight for value, weight in weighted) / total, usage, bound)
