"""AdamW on tensors of this process: clipped, and skipped if a gradient is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen

from orchestrion import Array, CheckpointError, Saved
from orchestrion_local.offloading import size_of
from orchestrion_local.settings import Optimizer
from orchestrion_local.weights import pack, unpack

MOMENTS = ("exp_avg", "exp_avg_sq")
MASTER = "master"
_PIECE = 2**24
"""Numbers whose squares are summed at once."""


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
        """Bytes of the gradient, two moments and, if it has one, the master of each weight."""
        size = 3 * size_of(self._stepped(name, weight) for name, weight in self._named)
        return size + size_of(self._masters.values())

    def _stepped(self, name: str, parameter: torch.nn.Parameter) -> torch.nn.Parameter:
        """Return what AdamW steps on: the weight, or its master."""
        return self._masters.get(name, parameter)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield masters and moments."""
        yield from self._masters.values()
        yield from (state[name] for state in self._adam.state.values() for name in MOMENTS)

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

    @property
    def data(self) -> dict[str, Any]:
        """Return the number of steps, and of those of each weight that had a gradient."""
        states = [
            (name, self._adam.state.get(self._stepped(name, weight)))
            for name, weight in self._named
        ]
        taken = {name: float(state["step"]) for name, state in states if state}
        return {"steps": self.steps, "taken": taken}

    def parts(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Yield moments and masters of all weights that had a gradient."""
        for name, parameter in self._named:
            state: Mapping[str, Any] = self._adam.state.get(self._stepped(name, parameter), {})
            if state:
                yield from ((name, moment, state[moment]) for moment in MOMENTS)
                if name in self._masters:
                    yield name, MASTER, self._masters[name]

    def save(self, prefix: str = "") -> Saved:
        """Return `parts` and `data`."""
        arrays = {f"{prefix}{name}.{part}": pack(value) for name, part, value in self.parts()}
        return Saved(arrays, self.data)

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


def is_low(dtype: torch.dtype) -> bool:
    """Return whether weights are trained through masters."""
    return dtype.is_floating_point and dtype.itemsize < 4


def _master(weight: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(weight.detach().to(torch.float32, copy=True))
