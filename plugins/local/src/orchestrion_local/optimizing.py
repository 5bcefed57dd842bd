"""Gradient steps on one model's weights: clipped, and skipped if a gradient is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen

from orchestrion import Array, CheckpointError, RunError, Saved
from orchestrion_local.interfaces import Trainable
from orchestrion_local.offloading import size_of
from orchestrion_local.runtime import pack, unpack
from orchestrion_local.settings import Optimizer

__all__ = ["WeightOptimizer"]

_MOMENTS = ("exp_avg", "exp_avg_sq")
_MASTER = "master"


@frozen
class Stepped:
    """The norm of a step's gradient before clipping, and whether it was skipped as not finite."""

    norm: float
    skipped: bool


class WeightOptimizer:
    """AdamW (Loshchilov and Hutter 2019) over what a model trains.

    Weights of lower precision than float32 are trained through float32 masters (Micikevicius et
    al. 2018, arXiv 1710.03740, section 3.1): gradients are summed and steps are taken in float32,
    and each step's result is rounded into the weights. A step of bfloat16 weights themselves
    would mostly be rounded away.

    Args:
        model: the model with the weights.
        settings: of AdamW.
        total: number of planned steps, for schedules that end.

    Raises:
        RunError: masters, gradients and moments do not fit the device beside the model; or the
            weights are float16, whose gradients need a scaled loss.
    """

    def __init__(self, model: Trainable, settings: Optimizer, total: int) -> None:
        self.model, self.settings, self.total = model, settings, max(1, total)
        self.steps = 0
        """Number of steps taken, without skipped ones."""
        self._named = list(model.parameters())
        if any(parameter.dtype == torch.float16 for _, parameter in self._named):
            raise RunError(
                f"model {model.name}: float16 weights cannot be trained, small gradients would "
                "become 0; set `dtype: bfloat16` or `dtype: float32`"
            )
        self._masters = {name: _master(weight) for name, weight in self._named if _is_low(weight)}
        self._adam = torch.optim.AdamW(
            [self._stepped(name, parameter) for name, parameter in self._named],
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
        )
        # A gradient and two moments of each weight; a master beside those of low precision.
        size = 3 * size_of(self._stepped(name, weight) for name, weight in self._named)
        size += size_of(self._masters.values())
        self._resident = model.resident.beside(f"{model.name}'s optimizer", self._state, size)

    def _stepped(self, name: str, parameter: torch.nn.Parameter) -> torch.nn.Parameter:
        """Return what AdamW steps on: the weight, or its master."""
        return self._masters.get(name, parameter)

    def _state(self) -> Iterator[torch.Tensor]:
        yield from self._masters.values()
        for state in self._adam.state.values():
            yield from (state[moment] for moment in _MOMENTS)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep weights and moments on their device while the context lasts; see `Trainable`."""
        with self.model.resident.pinned(self._resident):
            yield

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
        loss.backward()  # type: ignore[no-untyped-call]
        for name, parameter in self._named:
            if name in self._masters and parameter.grad is not None:
                master, gradient = self._masters[name], parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

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
        squares = sum(float(value.detach().double().square().sum()) for value in gradients)
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
        with self.pinned(), torch.no_grad():
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
                for moment in _MOMENTS:
                    arrays[f"{prefix}{name}.{moment}"] = pack(state[moment])
                if name in self._masters:
                    arrays[f"{prefix}{name}.{_MASTER}"] = pack(self._masters[name])
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
            if name not in known:
                raise CheckpointError(f"the model has no weight {name} as the saved optimizer has")
            parameter = self._stepped(name, known[name])

            def kept(part: str, name: str = name, shape: torch.Size = parameter.shape) -> Any:
                array = saved.arrays.get(f"{prefix}{name}.{part}")
                if array is None or tuple(array.shape) != tuple(shape):
                    raise CheckpointError(f"the saved optimizer does not fit weight {name}")
                return unpack(array)

            state = {"step": torch.tensor(taken)}
            self._adam.state[parameter] = state | {moment: kept(moment) for moment in _MOMENTS}
            if name in self._masters:
                parameter.data = kept(_MASTER)
        self._resident.settle()


def _is_low(weight: torch.Tensor) -> bool:
    return weight.is_floating_point() and weight.element_size() < 4


def _master(weight: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(weight.detach().to(torch.float32, copy=True))
