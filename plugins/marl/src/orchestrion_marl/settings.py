"""Settings of the trainer `marl`. Importing this module loads neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from attrs import Factory, evolve, fields, frozen
from orchestrion_local import Optimizer

from orchestrion import (
    Meta,
    Model,
    refuse_idle,
)

Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]
Amount = Annotated[float, Meta(ge=0)]
Aggregation = Literal[
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]
Estimator = Literal[
    "drmas", "grpo", "global_step", "rloo", "reinforce", "reinforce++", "gigpo", "gae"
]
Over = Literal["agent", "group"]
Single = Literal["zero", "raw", "batch"]
Fined = Literal["outside", "inside"]

_COMPARES_EPISODES = ("drmas", "grpo", "global_step", "rloo", "gigpo")
_SETTINGS_OF: Mapping[str, tuple[str, ...]] = {
    "drmas": ("center", "scale", "std", "floor", "single", "fined"),
    "grpo": ("scale", "std", "floor", "single", "fined"),
    "global_step": ("std", "floor", "single", "fined"),
    "rloo": ("over", "fined"),
    "reinforce": ("baseline", "memory"),
    "reinforce++": ("gamma", "over", "centered"),
    "gigpo": ("gamma", "weight", "scale", "std", "over"),
    "gae": ("gamma", "lam", "actions"),
}


@frozen
class Advantage:
    """How the advantage of a call is estimated; see `orchestrion_marl.advantages`.

    Args:
        estimator: name of the estimator.
        center: whose mean is subtracted (`drmas`): the agent's calls or the group's episodes.
        scale: whose standard deviation divides (`drmas`); `grpo` and `gigpo` divide unless it is
            "none".
        std: sample (N - 1) or population (N) form of standard deviations.
        floor: smallest divisor.
        single: advantage of a call that no other call is compared with (`drmas`, `grpo`,
            `global_step`): 0, its reward, or its reward minus the batch mean.
        fined: whether penalties are subtracted after ("outside") or before ("inside") the
            normalisation.
        over: whether `rloo`, `reinforce++` and the steps of `gigpo` compare calls of one agent or
            of the whole team.
        baseline: baseline of `reinforce`; "moving" is a running mean of each agent's rewards.
        memory: share of the running mean that an iteration keeps.
        centered: whether `reinforce++` subtracts the group's mean reward first.
        gamma: discount between tokens (`reinforce++`), actions (`gae`) or steps (`gigpo`).
        lam: lambda of `gae`.
        actions: whether an action of `gae` is a call, with a value of its prompt, or a token, with
            a value of what stands before it.
        weight: weight of the step advantage in `gigpo`.
    """

    estimator: Estimator = "drmas"
    center: Over = "agent"
    scale: Literal["agent", "group", "none"] = "agent"
    std: Literal["sample", "population"] = "sample"
    floor: Amount = 0.0
    single: Single = "zero"
    fined: Fined = "outside"
    over: Over = "agent"
    baseline: Literal["none", "batch", "agent", "moving"] = "agent"
    memory: Annotated[float, Meta(ge=0, lt=1)] = 0.9
    centered: bool = False
    gamma: Annotated[float, Meta(gt=0, le=1)] = 1.0
    lam: Annotated[float, Meta(ge=0, le=1)] = 0.95
    actions: Literal["calls", "tokens"] = "calls"
    weight: Amount = 1.0

    def __attrs_post_init__(self) -> None:
        used = _SETTINGS_OF[self.estimator]
        refuse_idle(
            self,
            {setting.name for setting in fields(Advantage)} - {"estimator", *used},
            f"with `estimator: {self.estimator}`, which uses {', '.join(used)}",
        )
        if self.baseline != "moving":
            refuse_idle(
                self, {"memory"}, f"with `baseline: {self.baseline}`; only `moving` uses it"
            )
        if self.scale == "none":
            refuse_idle(self, {"std", "floor"}, "with `scale: none`, which does not divide")

    @property
    def ddof(self) -> int:
        """Return what standard deviations subtract from the number of values."""
        return 1 if self.std == "sample" else 0


@frozen
class AgentSettings:
    """Settings of one agent, in place of the trainer's.

    Args:
        train: whether the models learn from this agent's calls.
        weight: weight of its calls in the loss of its model.
        advantage: estimator of its advantages; by default the trainer's.
        penalty: penalty of a response that could not be read; by default the trainer's.
        aggregation: aggregation of its tokens; by default the trainer's.
        clip_low: see the trainer's, which is the default.
        clip_high: see the trainer's, which is the default.
        kl_weight: weight of the divergence; by default the trainer's `kl.weight`.
    """

    train: bool = True
    weight: Amount = 1.0
    advantage: Advantage | None = None
    penalty: Amount | None = None
    aggregation: Aggregation | None = None
    clip_low: Annotated[float, Meta(gt=0, lt=1)] | None = None
    clip_high: Positive | None = None
    kl_weight: Amount | None = None


@frozen
class Kl:
    """Penalty for the divergence from the models with which this trainer began.

    Args:
        weight: weight of the divergence; 0 switches it off.
        form: the estimator k1, k2 or k3 of Schulman 2020 (Approximating KL divergence), or |k1|.
        where: added to the loss of each token, or subtracted from the reward of each call.
        corrected: whether a token's estimate in the loss is multiplied by rho, which makes its
            gradient unbiased for tokens of an earlier policy (DeepSeek-V3.2, arXiv 2512.02556,
            section 3.1). Possible with `k1` and `k3`, and the default there.
    """

    weight: Amount = 0.0
    form: Literal["k1", "k2", "k3", "abs"] = "k3"
    where: Literal["loss", "reward"] = "loss"
    corrected: bool | None = None

    def __attrs_post_init__(self) -> None:
        if not self.weight:
            refuse_idle(self, {"form", "where", "corrected"}, "without a `weight`")
        if self.where == "reward":
            refuse_idle(self, {"corrected"}, "with `where: reward`, which has no gradient")
        if self.form in ("k2", "abs"):
            refuse_idle(self, {"corrected"}, f"with `form: {self.form}`")

    @property
    def is_corrected(self) -> bool:
        """Whether estimates in the loss are multiplied by rho."""
        return self.where == "loss" and self.form in ("k1", "k3") and self.corrected is not False


@frozen
class Overlong:
    """DAPO's soft penalty of long responses.

    Args:
        longest: length in tokens from which the full penalty applies.
        buffer: number of tokens before `longest` over which the penalty grows linearly.
        factor: the full penalty.
    """

    longest: Count
    buffer: Count
    factor: Positive = 1.0

    def __attrs_post_init__(self) -> None:
        if self.buffer > self.longest:
            raise ValueError(
                f"buffer: {self.buffer} is more than longest: {self.longest}; give at most "
                f"{self.longest}"
            )


@frozen
class MarlSettings:
    """Settings of the trainer `marl`.

    Args:
        models: the models that are trained; all other models stay as they are.
        iterations: number of iterations.
        problems: problems in an iteration.
        group: episodes on each problem.
        advantage: estimator of advantages.
        agents: settings of single agents, by name.
        penalty: penalty of a response that could not be read; see `advantage.fined`.
        truncated: how responses that were cut at their maximal length are treated: as any other,
            with the penalty of unreadable ones, or left out.
        overlong: a penalty that grows with the length of a response.
        updates: optimizer steps on an iteration's calls, each on an equal part of them.
        epochs: passes over an iteration's calls.
        clip_low: how far rho may fall below 1 before a token has no gradient.
        clip_high: how far rho may rise above 1; more than `clip_low` is DAPO's clip-higher.
        importance_cap: bound of the weights that make up for a sampler, such as a server, whose
            probabilities differ from the trainer's: rho is then the probability now divided by that
            before the first step, and a token's loss is multiplied by the latter divided by that
            when it was sampled, or by the bound if that is less (truncated importance sampling, Yao
            et al. 2025). Null has rho make up for both.
        dual_clip: bound of the loss for A < 0, in units of |A|; null for no bound.
        aggregation: mean of the loss over all tokens; or over responses, of the sums of their
            tokens, of the means, or of the sums divided by the model's `max_tokens` (Dr. GRPO).
        entropy: weight of the entropy.
        kl: divergence from the models with which this trainer began.
        dynamic: maximal number of batches that are sampled until `problems` groups have episodes
            with different rewards (DAPO's dynamic sampling); null uses the first batch as it is.
        lag: iterations between sampling and learning. With 1, an iteration samples while the models
            learn from the calls of the iteration before, which the version before sampled; the last
            iteration learns from both. The two overlap if a `server` samples for every model.
        max_staleness: number of versions by which the weights that sampled a call may be behind;
            older calls are left out. It is at least `lag`.
        optimizer: optimizer of every model.
        optimizers: optimizers of single models, by name.
        micro_batch: tokens, padding included, in one forward pass; by default as many as there is
            memory for.
        validate_every: iterations between two evaluations on the validation split; null for none.
    """

    models: Annotated[Sequence[Model], Meta(min_length=1)]
    iterations: Count = 100
    problems: Count = 16
    group: Count = 8
    advantage: Advantage = Factory(Advantage)
    agents: Mapping[str, AgentSettings] = Factory(dict)
    penalty: Amount = 0.01
    truncated: Literal["learn", "fine", "drop"] = "fine"
    overlong: Overlong | None = None
    updates: Count = 1
    epochs: Count = 1
    clip_low: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    clip_high: Positive = 0.2
    importance_cap: Annotated[float, Meta(ge=1)] | None = None
    dual_clip: Annotated[float, Meta(gt=1)] | None = 3.0
    aggregation: Aggregation = "token-mean"
    entropy: Amount = 0.0
    kl: Kl = Factory(Kl)
    dynamic: Count | None = None
    lag: Literal[0, 1] = 0
    max_staleness: Annotated[int, Meta(ge=0)] = 0
    optimizer: Optimizer = Factory(Optimizer)
    optimizers: Mapping[str, Optimizer] = Factory(dict)
    micro_batch: Count | None = None
    validate_every: Count | None = None

    def __attrs_post_init__(self) -> None:
        if not self.kl.weight and any(agent.kl_weight for agent in self.agents.values()):
            raise ValueError("agents: `kl_weight` needs a `kl.weight` of the trainer")
        own = [agent.advantage for agent in self.agents.values() if agent.advantage]
        for advantage in (self.advantage, *own):
            if advantage.estimator in _COMPARES_EPISODES and self.group < 2:
                raise ValueError(
                    f"group: {advantage.estimator} compares episodes of one problem and needs at "
                    "least 2; with 1 every advantage would be 0"
                )

    def of(self, agent: str) -> AgentSettings:
        """Return the settings of an agent, with the trainer's where it has none of its own."""
        own = self.agents.get(agent, AgentSettings())
        return evolve(
            own,
            advantage=own.advantage or self.advantage,
            penalty=self.penalty if own.penalty is None else own.penalty,
            aggregation=own.aggregation or self.aggregation,
            clip_low=own.clip_low or self.clip_low,
            clip_high=own.clip_high or self.clip_high,
            kl_weight=self.kl.weight if own.kl_weight is None else own.kl_weight,
        )

    def validates_after(self, i: int) -> bool:
        """Return whether iteration `i`, from 0, ends with an evaluation on the validation split."""
        return self.validate_every is not None and (i + 1) % self.validate_every == 0
