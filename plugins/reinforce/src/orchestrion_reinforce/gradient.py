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
Ints = NDArray[np.int64]


@frozen(eq=False)
class Batch:
    """Recorded decisions as arrays: situations, and what was chosen in which of them.

    Situations that are equal are kept once: whatever is computed of them is equal as well, and
    where a task has few states, that saves most of the work.

    Args:
        inputs: what the policy saw, as numbers [m, width]; learned baselines read it as well.
        masks: what was allowed [m, choices]; None where everything was.
        hints: what `Encoder.hinted` gives [m, choices, k + 1]; None where the task says nothing.
        rows: the situation each decision was taken in [n].
        actions: what was chosen [n].
    """

    inputs: Floats
    masks: NDArray[np.bool_] | None
    hints: Floats | None
    rows: Ints
    actions: Ints

    def __len__(self) -> int:
        return len(self.actions)

    def take(self, decisions: Ints) -> Batch:
        """These decisions, with no other situations than theirs."""
        kept, rows = np.unique(self.rows[decisions], return_inverse=True)
        return Batch(
            self.inputs[kept],
            None if self.masks is None else self.masks[kept],
            None if self.hints is None else self.hints[kept],
            rows.astype(np.int64),
            self.actions[decisions],
        )


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
        """The records of decisions as arrays, in their order."""
        ...

    def evaluate(self, batch: Batch) -> Evaluation:
        """Log-probabilities and entropies of decisions under the present weights."""
        ...

    def gradient(self, evaluation: Evaluation, by_logp: Floats, by_entropy: Floats) -> Floats:
        """The flat gradient of a loss, given its gradients by `logp` and `entropy`."""
        ...
