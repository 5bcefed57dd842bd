"""Settings that models, or trainers, of weights share. Importing this needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from attrs import frozen

from orchestrion import Meta

__all__ = ["UNSUPPORTED", "Limits", "Optimizer"]

UNSUPPORTED = frozenset(("tools", "schema", "stop"))
"""Fields of a request that sampling from weights cannot honour; see `Model.unsupported`."""

Share = Annotated[float, Meta(ge=0, lt=1)]


@frozen
class Limits:
    """How one response is sampled."""

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0


@frozen
class Optimizer:
    """AdamW.

    Args:
        learning_rate: at its highest.
        schedule: how it goes down from there, over all steps that are planned.
        warmup: steps over which it goes up to there.
        weight_decay: per step, times the learning rate.
        beta1: memory of the gradient's mean.
        beta2: memory of its square.
        epsilon: added to what divides.
        max_gradient_norm: longer gradients are scaled down to it; null for no limit.
    """

    learning_rate: Annotated[float, Meta(gt=0)] = 1e-5
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: Annotated[int, Meta(ge=0)] = 0
    weight_decay: Annotated[float, Meta(ge=0)] = 0.0
    beta1: Share = 0.9
    beta2: Share = 0.999
    epsilon: Annotated[float, Meta(gt=0)] = 1e-8
    max_gradient_norm: Annotated[float, Meta(gt=0)] | None = 1.0
