"""Gradient steps on one model's weights, micro-batch by micro-batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from orchestrion import RunError, Saved
from orchestrion_local.interfaces import Trainable
from orchestrion_local.memory import REMEDIES
from orchestrion_local.settings import Optimizer
from orchestrion_local.steps import Stepped, Steps

if TYPE_CHECKING:
    from orchestrion_local.ranks import RankedSteps

SIMILAR_LENGTH, SMALL_BATCH = 0.7, 32
"""Rows shorter than this share of the longest form another micro-batch, unless it has few rows."""

Integers = npt.NDArray[np.int64]
M = TypeVar("M")


def micro_batches(sizes: Integers, budget: int, ranks: int = 1) -> Iterator[Integers]:
    """Yield places of rows, the longest first; rows times longest row is at most `budget`.

    A row longer than that is alone. Much shorter rows form another micro-batch, since they would
    be mostly padding. It is the budget of each rank, and each gets as many rows.
    """
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(sizes[order[start]]))
        fitting = order[start : start + ranks * max(1, budget // longest)]
        similar = int((sizes[fitting] >= SIMILAR_LENGTH * longest).sum())
        count = min(len(fitting), max(similar, SMALL_BATCH))
        yield order[start : start + count]
        start += count


class WeightOptimizer:
    """Gradient steps over what a model trains, in this process or on the model's ranks.

    Args:
        model: the model with the weights.
        settings: of AdamW.
        total: number of planned steps, for schedules that end.
        micro_batch: tokens, padding included, in one forward pass of a process; None for as many
            as there is memory for.

    Raises:
        RunError: masters, gradients and moments do not fit the device beside the model; or the
            weights are float16, whose gradients need a scaled loss.
    """

    def __init__(
        self, model: Trainable, settings: Optimizer, total: int, micro_batch: int | None = None
    ) -> None:
        self.model = model
        self._micro_batch, self._is_halved = micro_batch, False
        named = list(model.parameters())
        if any(parameter.dtype == torch.float16 for _, parameter in named):
            raise RunError(
                f"model {model.name}: float16 weights cannot be trained, small gradients would "
                "become 0; set `dtype: bfloat16` or `dtype: float32`"
            )
        self._ranks = model.ranks.count if model.ranks is not None else 1
        self._steps: Steps | RankedSteps = (
            Steps(named, settings, total)
            if model.ranks is None
            else model.ranks.steps(model, settings, total)
        )
        self._size = self._steps.size
        self._resident = model.resident.beside(
            f"{model.name}'s optimizer", self._steps.tensors, self._size
        )

    def pinned(self) -> AbstractContextManager[None]:
        """Keep weights and moments on their device, and room for a micro-batch; see `Trainable`."""
        return self.model.working(self.model.training(self.micro_batch), self._resident)

    @property
    def micro_batch(self) -> int:
        """Tokens in one forward pass: as given, or as many as there is memory for at first use.

        Raises:
            RunError: there is no room for a single row; says which settings help.
        """
        if self._micro_batch is None:
            self._micro_batch = self.fitting()
        return self._micro_batch

    def fitting(self) -> int:
        """Return the tokens in a forward pass that there is memory for now; see `micro_batch`."""
        return self.model.fitting(self._size)

    def zero(self) -> None:
        """Set the gradients to zero."""
        self._steps.zero()

    def accumulate(
        self, sizes: Integers, loss: Callable[[Integers], tuple[torch.Tensor, M]]
    ) -> list[M]:
        """Set the gradients to those of all rows, micro-batch by micro-batch.

        If memory runs out, micro-batches are halved once, for good, and all rows are computed
        again.

        Args:
            sizes: number of tokens of each row, shape [B].
            loss: returns the part of the loss of the rows at some places, with gradient, and what
                was measured. Parts add up to the loss, however the rows are split.

        Returns:
            What was measured of each micro-batch.

        Raises:
            RunError: memory runs out again; says which settings help.
        """
        try:
            return self._accumulated(sizes, loss)
        except torch.OutOfMemoryError as error:
            # The error holds all tensors of the pass: let go of it before the next one.
            reason = next(iter(str(error).splitlines()), "")
        self.zero()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        tokens = max(
            len(rows) * int(sizes[rows].max()) for rows in micro_batches(sizes, self.micro_batch)
        )
        if self._is_halved or tokens <= int(sizes.max()):
            raise RunError(
                f"model {self.model.name}: memory ran out with a micro-batch of {tokens} tokens "
                f"({reason}); {REMEDIES}"
            )
        self._micro_batch, self._is_halved = tokens // 2, True
        logging.getLogger("orchestrion").warning(
            "model %s: memory ran out with a micro-batch of %d tokens; it goes on with %d",
            self.model.name,
            tokens,
            tokens // 2,
        )
        return self.accumulate(sizes, loss)

    def _accumulated(
        self, sizes: Integers, loss: Callable[[Integers], tuple[torch.Tensor, M]]
    ) -> list[M]:
        self.zero()
        measured = []
        for rows in micro_batches(sizes, self.micro_batch, self._ranks):
            part, what = loss(rows)
            self.backward(part)
            measured.append(what)
        return measured

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss to those since `zero`, in float32 or more."""
        self._steps.backward(loss)

    def step(self) -> Stepped:
        """Take a step with the sum of the gradients since `zero`."""
        with self.model.resident.pinned(self._resident):
            return self._steps.step()

    def save(self, prefix: str = "") -> Saved:
        """Return moments, masters and step count of all weights that had a gradient."""
        saved = self._steps.save(prefix)
        batch = [self._micro_batch, self._is_halved]
        return Saved(saved.arrays, {**saved.data, "micro_batch": batch})

    def load(self, saved: Saved, prefix: str = "") -> None:
        """Continue from what `save` returned, on any number of ranks.

        Raises:
            CheckpointError: it is another model's.
        """
        # What memory there is now must not change what is computed.
        self._micro_batch, self._is_halved = saved.data["micro_batch"]
        self._steps.load(saved, prefix)
        self._resident.settle()


def check_memory(optimizers: Iterable[WeightOptimizer]) -> None:
    """Raise RunError if there is no room for a single row of a model; say what helps.

    Before the first episode, when all models and optimizers have their places.
    """
    for optimizer in optimizers:
        optimizer.fitting()
