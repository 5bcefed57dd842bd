"""What a network makes of one situation, and the decisions that come of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from orchestrion import Activation, Decision
from orchestrion_reinforce.encoder import Floats, Mask

__all__ = ["Distribution", "Recorded"]

STUCK = Decision(stop=True, logp=0.0)
"""Where the task blocks everything there is nothing to learn."""


class Recorded(NamedTuple):
    """What a decision was taken on, and the choice."""

    inputs: Floats
    mask: Mask | None
    action: int
    hints: Floats | None = None

    @property
    def content(self) -> tuple[bytes, bytes | None, bytes | None]:
        """All but the choice, so that equal situations can be told."""
        mask, hints = self.mask, self.hints
        return (
            self.inputs.tobytes(),
            None if mask is None else mask.tobytes(),
            None if hints is None else hints.tobytes(),
        )


class Distribution:
    """How likely each choice is in one situation.

    Decisions are made once for each choice and shared: they are equal.

    Args:
        starts: what each choice starts; nothing is stopping.
        inputs: the situation as numbers [width].
        mask: what is allowed [choices]; None for everything.
        hints: what `Encoder.hinted` gives for it [choices, k + 1].
        below: cumulated weights of the choices; all 0 where nothing is allowed.
        logp: logarithms of their probabilities.
    """

    __slots__ = ("_decisions", "_starts", "below", "hints", "inputs", "logp", "mask")

    def __init__(
        self,
        starts: Sequence[tuple[Activation, ...]],
        inputs: Floats,
        mask: Mask | None,
        hints: Floats | None,
        below: list[float],
        logp: list[float],
    ) -> None:
        self._starts, self._decisions = starts, dict[int, Decision]()
        self.inputs, self.mask, self.hints = inputs, mask, hints
        self.below, self.logp = below, logp

    def draw(self, uniform: float) -> Decision:
        """The decision that a number in [0, 1) stands for."""
        total = self.below[-1]
        # Strictly below the last sum, so that a choice of weight 0 is never hit.
        return self._decision(bisect_right(self.below, uniform * total)) if total else STUCK

    def best(self) -> Decision:
        """The likeliest choice; of equals the first."""
        return self._decision(self.logp.index(max(self.logp))) if self.below[-1] else STUCK

    def _decision(self, choice: int) -> Decision:
        found = self._decisions.get(choice)
        if found is None:
            start = self._starts[choice]
            record = Recorded(self.inputs, self.mask, choice, self.hints)
            found = Decision(start, not start, "all", self.logp[choice], record)
            self._decisions[choice] = found
        return found
