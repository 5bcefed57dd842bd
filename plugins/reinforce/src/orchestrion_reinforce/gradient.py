"""What a policy offers so that the trainer `reinforce` can teach it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion import Activation

__all__ = ["Batch", "Evaluation", "GradientPolicy"]

Floats = NDArray[np.float64]


@frozen(eq=False)
class Batch:
    """Recorded decisions as arrays.

    Args:
        inputs: what the policy saw, as numbers [n, width]; learned baselines read it as well.
        masks: what was allowed [n, choices]; None where everything was.
        actions: what was chosen [n].
        hints: what the task said of each choice [n, choices, k]; None where it says nothing.
    """

    inputs: Floats
    masks: NDArray[np.bool_] | None
    actions: NDArray[np.int64]
    hints: Floats | None = None

    def __len__(self) -> int:
        return len(self.actions)

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """These rows."""
        masks = None if self.masks is None else self.masks[rows]
        hints = None if self.hints is None else self.hints[rows]
        return Batch(self.inputs[rows], masks, self.actions[rows], hints)


@frozen(eq=False)
class Evaluation:
    """Decisions under the present weights.

    Args:
        logp: log-probability of what was chosen [n].
        entropy: of the distribution it was chosen from, divided by the logarithm of the number
            of allowed choices [n]: 1 is uniform, 0 certain; 0 where only one was allowed.
        tape: the policy's own, for `gradient`.
    """

    logp: Floats
    entropy: Floats
    tape: Any


@runtime_checkable
class GradientPolicy(Protocol):
    """A policy runtime that learns by gradient; its decisions carry a `record`.

    A policy built on another library implements the same four: `evaluate` runs its graph,
    `gradient` goes back over it.
    """

    @property
    def parameters(self) -> Floats:
        """All weights, flat; the trainer changes this array in place."""
        ...

    @property
    def choices(self) -> Sequence[Activation | None]:
        """What it chooses from; None is stopping."""
        ...

    def collect(self, records: Sequence[Any]) -> Batch:
        """The records of decisions as arrays."""
        ...

    def evaluate(self, batch: Batch) -> Evaluation:
        """Log-probabilities and entropies of decisions under the present weights."""
        ...

    def gradient(self, evaluation: Evaluation, by_logp: Floats, by_entropy: Floats) -> Floats:
        """The flat gradient of a loss, given its gradients by `logp` and `entropy`."""
        ...
