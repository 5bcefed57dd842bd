"""The trainer `reinforce`: its settings. What it does stands in `learner`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar, Literal

from attrs import Attribute, Factory, field, frozen

from orchestrion import JSON, Meta, OpenContext, Trainer

__all__ = ["Reinforce"]


@frozen
class Reinforce:
    """Teaches a policy by the gradient of its expected reward.

    An iteration runs `episodes` episodes with the present policy, estimates how much better or
    worse each decision was than expected (its advantage A), and takes some steps of Adam on

        L = - mean min(rho A, clip(rho, 1 - clip, 1 + clip) A) - c mean(H / ln n)

    with rho the probability of the decision now over that when it was taken, H the entropy of
    its distribution and n the number of choices that were allowed. The defaults are PPO
    (Schulman et al. 2017) with a learned value, and an entropy weight c that starts high:
    policies that settle early never try the long ways that pay. Plain REINFORCE (Williams 1992)
    is `baseline: none, normalize: false, clip: null, epochs: 1, entropy: 0`.

    Args:
        iterations: how many.
        episodes: per iteration; rounded up to whole groups.
        group: episodes on one problem. Leave-one-out compares them, so it needs at least 2.
        learning_rate: of Adam, for policy and value.
        learning_rate_end: share of it that is left at the end; linear in between.
        gamma: discount per decision.
        baseline: what a return is compared with: nothing, the running mean of the problem's
            category, the other episodes of its group, or a learned value of what was seen.
        gae_lambda: with `value`, 1 trusts returns alone, 0 the value alone.
        running_rate: with `running`, the weight of an iteration's mean.
        normalize: bring an iteration's advantages to mean 0 and deviation 1.
        entropy: c at the start.
        entropy_end: c at the end.
        entropy_power: c_i = end + (start - end) (1 - i / iterations) ^ power; 1 is linear.
        clip: how far rho may move before a decision stops pushing; null for no limit.
        epochs: passes over an iteration's decisions.
        minibatches: steps per pass.
        max_gradient_norm: gradients are scaled down to it; null for no limit.
        value_hidden: widths of the value network's hidden layers.
    """

    iterations: Annotated[int, Meta(ge=1)] = 100
    episodes: Annotated[int, Meta(ge=1)] = 64
    baseline: Literal["none", "running", "leave-one-out", "value"] = "value"
    group: Annotated[int, Meta(ge=1)] = field(default=1)
    learning_rate: Annotated[float, Meta(gt=0)] = 3e-3
    learning_rate_end: Annotated[float, Meta(ge=0, le=1)] = 0.3
    gamma: Annotated[float, Meta(gt=0, le=1)] = 1.0
    gae_lambda: Annotated[float, Meta(ge=0, le=1)] = 0.95
    running_rate: Annotated[float, Meta(gt=0, le=1)] = 0.1
    normalize: bool = True
    entropy: Annotated[float, Meta(ge=0)] = 2.0
    entropy_end: Annotated[float, Meta(ge=0)] = 0.0
    entropy_power: Annotated[float, Meta(gt=0)] = 3.0
    clip: Annotated[float, Meta(gt=0)] | None = 0.2
    epochs: Annotated[int, Meta(ge=1)] = 4
    minibatches: Annotated[int, Meta(ge=1)] = 1
    max_gradient_norm: Annotated[float, Meta(gt=0)] | None = 1.0
    value_hidden: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1)] = Factory(
        lambda: [64, 64]
    )

    smoke: ClassVar[Mapping[str, JSON]] = {"iterations": 2, "episodes": 5}

    @group.validator
    def _check_group(self, attribute: Attribute[Any], value: int) -> None:
        if self.baseline == "leave-one-out" and value < 2:
            raise ValueError(
                f"group: got {value}, the baseline leave-one-out compares episodes of one "
                "problem and needs at least 2"
            )

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The trainer at work."""
        from orchestrion_reinforce.learner import Learner

        yield Learner(self, ctx)
