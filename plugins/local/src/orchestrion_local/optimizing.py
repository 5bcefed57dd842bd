"""Gradient steps on one model's weights: clipped, and skipped if a gradient is not finite."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from attrs import frozen

from orchestrion import Array, CheckpointError, RunError, Saved
from orchestrion_local.interfaces import Trainable
from orchestrion_local.offloading import size_of
from orchestrion_local.settings import Optimizer
from orchestrion_local.weights import pack, unpack

if TYPE_CHECKING:
    from orchestrion_local.ranks import RankedSteps

__all__ = ["Steps", "WeightOptimizer", "check_memory", "micro_batches"]

MOMENTS = ("exp_avg", "exp_avg_sq")
MASTER = "master"
_PIECE = 2**24
"""Numbers whose squares are summed at once."""
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


@frozen
class Stepped:
    """The norm of a step's gradient before clipping, and whether it was skipped as not finite."""

    norm: float
    skipped: bool


class Steps:
    """AdamW (Loshchilov and Hutter 2019) over tensors of this process.

    Weights of lower precision than float32 are trained through float32 masters (Micikevicius et
    al. 2018, arXiv 1710.03740, section 3.1): gradients are summed and steps are taken in float32,
    and each step's result is rounded into the weights. A step of bfloat16 weights themselves
    would mostly be rounded away.

    Args:
        named: the weights, by name, in a fixed order.
        settings: of AdamW.
        total: number of planned steps, for schedules that end.
        of_all: returns the sum of a number over all processes that have a part of the weights.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, torch.nn.Parameter]],
        settings: Optimizer,
        total: int,
        of_all: Callable[[float], float] = float,
    ) -> None:
        self.settings, self.total, self._of_all = settings, max(1, total), of_all
        self.steps = 0
        """Number of steps taken, without skipped ones."""
        self._named = named
        self._masters = {name: _master(weight) for name, weight in named if is_low(weight.dtype)}
        self._adam = torch.optim.AdamW(
            [self._stepped(name, parameter) for name, parameter in named],
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            # All weights at once would need a third moment's memory.
            foreach=False,
        )

    @property
    def size(self) -> int:
        """Bytes of a gradient and two moments of each weight; a master beside those of low precision."""
        size = 3 * size_of(self._stepped(name, weight) for name, weight in self._named)
        return size + size_of(self._masters.values())

    def _stepped(self, name: str, parameter: torch.nn.Parameter) -> torch.nn.Parameter:
        """Return what AdamW steps on: the weight, or its master."""
        return self._masters.get(name, parameter)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield masters and moments."""
        yield from self._masters.values()
        for state in self._adam.state.values():
            yield from (state[moment] for moment in MOMENTS)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        settings = self.settings
        factor = 1.0
        if self.steps < settings.warmup:
            factor = (self.steps + 1) / (settings.warmup + 1)
        elif settings.schedule != "constant":
            left = max(
                0.0, 1 - (self.steps - settings.warmup) / max(1, self.total - settings.warmup)
            )
            factor = left if settings.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2
        return settings.learning_rate * factor

    def zero(self) -> None:
        """Set the gradients to zero."""
        self._adam.zero_grad(set_to_none=True)
        for _, parameter in self._named:
            parameter.grad = None

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss to those since `zero`, in float32 or more."""

        def adding_to(master: torch.nn.Parameter) -> Callable[[torch.Tensor], None]:
            def add(weight: torch.Tensor) -> None:
                assert weight.grad is not None
                gradient = weight.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                weight.grad = None

            return add

        # At once: together, the gradients of all weights of low precision would take memory.
        hooks = [
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                adding_to(self._masters[name])
            )
            for name, parameter in self._named
            if name in self._masters
        ]
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            for hook in hooks:
                hook.remove()

    def step(self) -> Stepped:
        """Take a step with the sum of the gradients since `zero`."""
        gradients = [
            gradient
            for name, parameter in self._named
            if (gradient := self._stepped(name, parameter).grad) is not None
        ]
        if not gradients:
            return Stepped(0.0, False)
        # In one order and in full precision, so that a norm is the same in every run.
        squares = self._of_all(
            sum(
                float(piece.double().square().sum())
                for gradient in gradients
                for piece in torch.split(gradient.detach().reshape(-1), _PIECE)
            )
        )
        norm = math.sqrt(squares) if math.isfinite(squares) else math.inf
        if not math.isfinite(norm):
            self.zero()
            return Stepped(norm, True)
        limit = self.settings.max_gradient_norm
        if limit is not None and norm > limit:
            for gradient in gradients:
                gradient.mul_(limit / norm)
        for group in self._adam.param_groups:
            group["lr"] = self.learning_rate
        with torch.no_grad():
            self._fill_masters()
            self._adam.step()
            for name, parameter in self._named:
                if name in self._masters:
                    parameter.copy_(self._masters[name])
        self.steps += 1
        self.zero()
        return Stepped(norm, False)

    def _fill_masters(self) -> None:
        """Copy weights into masters that have not stepped yet; `load` may have changed those."""
        for name, parameter in self._named:
            if name in self._masters and self._masters[name] not in self._adam.state:
                self._masters[name].copy_(parameter)

    def save(self, prefix: str = "") -> Saved:
        """Return moments, masters and step count of all weights that had a gradient."""
        arrays: dict[str, Array] = {}
        taken: dict[str, float] = {}
        for name, parameter in self._named:
            state: Mapping[str, Any] = self._adam.state.get(self._stepped(name, parameter), {})
            if state:
                taken[name] = float(state["step"])
                for moment in MOMENTS:
                    arrays[f"{prefix}{name}.{moment}"] = pack(state[moment])
                if name in self._masters:
                    arrays[f"{prefix}{name}.{MASTER}"] = pack(self._masters[name])
        return Saved(arrays, {"steps": self.steps, "taken": taken})

    def load(self, saved: Saved, prefix: str = "") -> None:
        """Continue from what `save` returned.

        Raises:
            CheckpointError: it is another model's.
        """
        self.steps = int(saved.data["steps"])
        self._adam.state.clear()
        known = dict(self._named)
        for name, taken in saved.data["taken"].items():
            kept = {part: unpack(array) for part, array in parts_of(saved, prefix, name, known)}
            parameter = self._stepped(name, known[name])
            state = {"step": torch.tensor(taken)}
            self._adam.state[parameter] = state | {moment: kept[moment] for moment in MOMENTS}
            if name in self._masters:
                parameter.data = kept[MASTER]


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

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep weights and moments on their device, and room for a micro-batch; see `Trainable`."""
        with self.model.working(self.model.training(self.micro_batch), self._resident):
            yield

    @property
    def micro_batch(self) -> int:
        """Tokens in one forward pass: as given, or as many as there is memory for at first use.

        Raises:
            RunError: there is no room for a single row; says which setting would help.
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
            RunError: memory runs out again; says which setting would help.
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
                f"({reason}); {self.model.remedy(self._size)}"
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


def parts_of(
    saved: Saved, prefix: str, name: str, known: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, Array]]:
    """Yield what an optimizer saved of a weight: moments, and a master of one of low precision.

    Raises:
        CheckpointError: it is another model's.
    """
    if name not in known:
        raise CheckpointError(f"the model has no weight {name} as the saved optimizer has")
    for part in (*MOMENTS, *([MASTER] if is_low(known[name].dtype) else [])):
        array = saved.arrays.get(f"{prefix}{name}.{part}")
        if array is None or array.shape != tuple(known[name].shape):
            raise CheckpointError(f"the saved optimizer does not fit weight {name}")
        yield part, array


def check_memory(optimizers: Iterable[WeightOptimizer]) -> None:
    """Raise RunError if there is no room for a single row of a model; say what would help.

    Before the first episode, when all models and optimizers have their places.
    """
    for optimizer in optimizers:
        optimizer.fitting()


def is_low(dtype: torch.dtype) -> bool:
    """Return whether weights are trained through masters."""
    return dtype.is_floating_point and dtype.itemsize < 4


def _master(weight: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(weight.detach().to(torch.float32, copy=True))
