"""The trainer `reinforce`: settings and plan; `ppo` has the algorithm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

from attrs import Attribute, Factory, field, frozen

from orchestrion import (
    JSON,
    Episode,
    Meta,
    Metrics,
    OpenContext,
    Plan,
    Session,
    Split,
    Trainer,
    UsageError,
    refuse_idle,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from orchestrion_reinforce.neural_policy import Batch


@frozen
class Reinforce:
    """Trains a policy by the gradient of its expected reward.

    An iteration plays `episodes` episodes with the current policy, estimates the advantage A of
    each decision, and takes some steps of Adam on

        L = - mean min(rho A, clip(rho, 1 - clip, 1 + clip) A) - c mean(H / ln n)

    with rho the ratio of the new to the old probability of the decision, H the entropy of its
    distribution and n the number of allowed choices. The defaults are PPO with a
    learned value; plain REINFORCE is `baseline: none, normalize: false, clip: null, epochs: 1,
    entropy: 0, novelty: 0`.

    Args:
        iterations: their number.
        episodes: per iteration; rounded up to whole groups.
        baseline: subtracted from returns: nothing, the running mean of the problem's category, the
            mean of the other episodes of its group, or a learned value of the situation.
        group: episodes on one problem; leave-one-out needs at least 2.
        learning_rate: of Adam, for policy and value.
        learning_rate_end: share of it at the end; linear in between.
        gamma: discount per decision.
        gae_lambda: with `value`, 1 uses returns alone, 0 the error of one step, r + gamma V' - V.
        running_rate: with `running`, the weight of an iteration's mean.
        normalize: scale an iteration's advantages to mean 0 and standard deviation 1.
        entropy: c at the start.
        entropy_end: c at the end.
        entropy_power: c_i = end + (start - end) (1 - i / iterations) ^ power; 1 is linear.
        novelty: bonus for entering a situation for the n-th time, divided by sqrt(n), in units of
            the rewards' standard deviation; 0 for none.
        novelty_share: the share of iterations after which the bonus is 0.
        clip: the change of rho beyond which a decision has no gradient; null for no limit.
        epochs: passes over an iteration's decisions.
        minibatches: steps per pass.
        max_gradient_norm: larger gradients are scaled down to it; null for no limit.
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
    novelty: Annotated[float, Meta(ge=0)] = 1.5
    novelty_share: Annotated[float, Meta(gt=0, le=1)] = 0.5
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
            raise ValueError(f"group: is {value}; the baseline leave-one-out needs at least 2")

    def __attrs_post_init__(self) -> None:
        if self.baseline != "value":
            refuse_idle(self, ("gae_lambda", "value_hidden"), f"with `baseline: {self.baseline}`")
        if self.baseline != "running":
            refuse_idle(self, ("running_rate",), f"with `baseline: {self.baseline}`")
        if not self.novelty:
            refuse_idle(self, ("novelty_share",), "with `novelty: 0`")
        if self.entropy == self.entropy_end:
            refuse_idle(self, ("entropy_power",), "with `entropy` equal to `entropy_end`")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Yield the trainer; in a trial without torch, which takes a second to load."""
        if ctx.trial:
            yield Planned(self, ctx.path)
            return
        from orchestrion_reinforce.ppo import Learner

        yield Learner(self, ctx)


@runtime_checkable
class TorchPolicy(Protocol):
    """A policy runtime that learns by gradient; its decisions carry a `record`.

    Attributes:
        network: the trained network; None before the first decision.
    """

    network: nn.Module | None

    def collect(self, records: Sequence[Any]) -> Batch:
        """Return records of decisions as tensors, in order."""

    def log_probabilities(self, batch: Batch) -> Tensor:
        """Return log-probabilities of k choices in m situations [m, k]; 0 if not allowed."""

    def learn(self, episodes: Sequence[Episode]) -> None:
        """Receive the episodes of an update, after it."""


class Planned(Trainer):
    """What is known of a training before it begins: its plan."""

    iterations: int = 0

    def __init__(self, settings: Reinforce, path: str) -> None:
        self.settings, self.path, self.iterations = settings, path, settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Return the bounds of an iteration: whole groups of episodes."""
        s = self.settings
        return Plan(-(-s.episodes // s.group) * s.group)

    async def iterate(self, i: int, session: Session) -> Metrics:
        raise NotImplementedError

    def check(self, session: Session) -> None:
        """Raise `UsageError` if the policy does not learn by gradient."""
        if not isinstance(session.policy, TorchPolicy):
            raise UsageError(
                f"{self.path}: reinforce trains policies that learn by gradient, such as "
                "neural; the policy of this team does not"
            )
