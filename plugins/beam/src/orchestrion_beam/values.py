"""Estimators of unfinished trajectories that come with the search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from attrs import Attribute, Factory, field, frozen

from orchestrion import Branch, Key, Meta, Session, Usage, no_calls
from orchestrion_beam.interfaces import Valued, ValueEstimator

__all__ = ["Combined", "Noise", "TaskValue"]

BOUND = "bound"


@frozen
class TaskValue(ValueEstimator):
    """The task's own partial score: `verify` with `final=False`.

    A task that knows how good a trajectory can still become says so in its partial score, as the
    part `bound`.
    """

    ceiling = no_calls

    @property
    def label(self) -> str:
        """Its name."""
        return "task"

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """What the task says."""
        scores = await session.score(branch)
        return Valued(scores.value, bound=scores.parts.get(BOUND, 1.0))


@frozen
class Noise(ValueEstimator):
    """A number that has nothing to do with the trajectory: shows what a search is worth without."""

    ceiling = no_calls

    @property
    def label(self) -> str:
        """Its name."""
        return "noise"

    @property
    def scores(self) -> int:
        """None."""
        return 0

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """Uniform on [0, 1); equal for equal content."""
        return Valued(key.child("noise").uniform())


@frozen
class Combined(ValueEstimator):
    """The weighted mean of several estimates.

    Args:
        parts: at least one.
        weights: one for each; all equal by default.
    """

    parts: Annotated[Sequence[ValueEstimator], Meta(min_length=1)]
    weights: Sequence[Annotated[float, Meta(gt=0)]] = field(default=Factory(tuple))

    @weights.validator
    def _check_weights(self, attribute: Attribute[Any], value: Sequence[float]) -> None:
        if value and len(value) != len(self.parts):
            raise ValueError(f"weights: got {len(value)} for {len(self.parts)} parts")

    @property
    def label(self) -> str:
        """The names of all parts."""
        return " and ".join(one.label for one in self.parts)

    @property
    def scores(self) -> int:
        """Of all parts."""
        return sum(one.scores for one in self.parts)

    def ceiling(self, tokens: int) -> Usage | None:
        """Of all parts."""
        total = Usage()
        for one in self.parts:
            say = getattr(one, "ceiling", None)
            most = None if say is None else say(tokens)
            if most is None:
                return None
            total += most
        return total

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """All parts; without those that can say nothing."""
        from orchestrion_beam.together import together

        found = await together(
            [one.estimate(branch, session, key.child(n)) for n, one in enumerate(self.parts)]
        )
        weights = self.weights or (1.0,) * len(found)
        pairs = [
            (one.value, weight)
            for one, weight in zip(found, weights, strict=True)
            if one.value is not None
        ]
        usage = sum((one.usage for one in found), Usage())
        bound = min(one.bound for one in found)
        if not pairs:
            return Valued(None, usage, bound)
        total = sum(weight for _, weight in pairs)
        return Valued(sum(value * weight for value, weight in pairs) / total, usage, bound)
