"""Gradient steps on one model's weights: clipped, never with a number that is not finite, kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen

from orchestrion import Array, CheckpointError, Saved
from orchestrion_local.interfaces import Trainable
from orchestrion_local.offloading import size_of
from orchestrion_local.runtime import pack, unpack
from orchestrion_local.settings import Optimizer

__all__ = ["Stepped", "WeightOptimizer"]

_MOMENTS = ("exp_avg", "exp_avg_sq")


@frozen
class Stepped:
    """One optimizer step.

    Args:
        norm: of the gradient over all weights, before clipping.
        skipped: whether the norm was not finite, and nothing was changed.
    """

    norm: float
    skipped: bool


class WeightOptimizer:
    """AdamW (Loshchilov and Hutter 2019) over what a model trains.

    Args:
        model: whose weights.
        settings: learning rate and the rest.
        total: steps that are planned, for schedules that end.

    Raises:
        RunError: gradients and moments do not fit the device beside the model.
    """

    def __init__(self, model: Trainable, settings: Optimizer, total: int) -> None:
        self.model, self.settings, self.total = model, settings, max(1, total)
        self.steps = 0
        """Steps that were taken; skipped ones are not among them."""
        self._named = list(model.parameters())
        self._adam = torch.optim.AdamW(
            [parameter for _, parameter in self._named],
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
        )
        # A gradient and two moments.
        size = 3 * size_of(one for _, one in self._named)
        self._resident = model.resident.beside(f"{model.name}'s optimizer", self._moments, size)

    def _moments(self) -> Iterator[torch.Tensor]:
        for state in self._adam.state.values():
            yield from (state[moment] for moment in _MOMENTS)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """While it lasts, weights and moments are where they compute: see `Trainable.resident`."""
        with self.model.resident.pinned(self._resident):
            yield

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
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
        """Forget the gradients."""
        self._adam.zero_grad(set_to_none=True)

    def step(self) -> Stepped:
        """Take a step by the gradients that were gathered since `zero`."""
        gradients = [one.grad for _, one in self._named if one.grad is not None]
        if not gradients:
            return Stepped(0.0, False)
        # In one order and in full precision, so that a norm is the same in every run.
        squares = sum(float(one.detach().double().square().sum()) for one in gradients)
        norm = math.sqrt(squares) if math.isfinite(squares) else math.inf
        if not math.isfinite(norm):
            self.zero()
            return Stepped(norm, True)
        limit = self.settings.max_gradient_norm
        if limit is not None and norm > limit:
            for one in gradients:
                one.mul_(limit / norm)
        for group in self._adam.param_groups:
            group["lr"] = self.learning_rate
        with self.pinned():
            self._adam.step()
        self.steps += 1
        self.zero()
        return Stepped(norm, False)

    def save(self, prefix: str = "") -> Saved:
        """Moments and step count; nothing of a weight that had no gradient yet."""
        arrays: dict[str, Array] = {}
        taken: dict[str, float] = {}
        for name, parameter in self._named:
            state: Mapping[str, Any] = self._adam.state.get(parameter, {})
            if state:
                taken[name] = float(state["step"])
                for moment in _MOMENTS:
                    arrays[f"{prefix}{name}.{moment}"] = pack(state[moment])
        return Saved(arrays, {"steps": self.steps, "taken": taken})

    def load(self, saved: Saved, prefix: str = "") -> None:
        """Go on where `save` was.

        Raises:
            CheckpointError: it is another model's.
        """
        self.steps = int(saved.data["steps"])
        self._adam.state.clear()
        known = dict(self._named)
        for name, taken in saved.data["taken"].items():
            if name not in known:
                raise CheckpointError(f"the model has no weight {name} as the saved optimizer has")
            parameter = known[name]
            state: dict[str, Any] = {"step": torch.tensor(taken)}
            for moment in _MOMENTS:
                found = saved.arrays.get(f"{prefix}{name}.{moment}")
                if found is None or tuple(found.shape) != tuple(parameter.shape):
                    raise CheckpointError(f"the saved optimizer does not fit weight {name}")
                state[moment] = unpack(found)
            self._adam.state[parameter] = state
        self._resident.settle()
