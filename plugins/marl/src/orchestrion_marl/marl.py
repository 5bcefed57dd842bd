"""The trainer `marl`: its settings. What it does stands in `learner`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, ClassVar, Literal

from attrs import Factory, evolve, fields, frozen
from orchestrion_local.naming import check_known, names_of, unsynced
from orchestrion_local.settings import Optimizer

from orchestrion import (
    Meta,
    Metrics,
    Model,
    OpenContext,
    Plan,
    Session,
    Split,
    Trainer,
    UsageError,
    refuse_idle,
)

__all__ = ["Advantage", "AgentSettings", "Kl", "Marl", "Overlong"]

Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]
Amount = Annotated[float, Meta(ge=0)]
Aggregation = Literal[
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]
Name = Literal["drmas", "grpo", "global_step", "rloo", "reinforce", "reinforce++", "gigpo", "gae"]
COMPARING = ("drmas", "grpo", "global_step", "rloo", "gigpo")
"""Estimators that compare episodes of one problem."""


@frozen
class Advantage:
    """How much better than expected a call was; see `orchestrion_marl.advantages`.

    Args:
        estimator: its name.
        center: whose mean is subtracted (`drmas`); with `scale`, the cells of its ablation.
        scale: whose deviation divides (`drmas`), or whether one does (`grpo`, `gigpo`: "none").
        std: sample or population form of standard deviations.
        floor: least deviation that divides.
        single: what a call gets that nothing can be compared with (`drmas`, `grpo`,
            `global_step`).
        fined: whether penalties come off after the normalisation or before.
        over: whether `rloo` and `reinforce++` go by agent or by the whole team.
        baseline: of `reinforce`; `moving` is a running mean of each agent's rewards.
        memory: of the running mean: the share that is kept of it.
        centered: whether `reinforce++` subtracts the group's mean first.
        gamma: discount between tokens (`reinforce++`), calls (`gae`) or steps (`gigpo`).
        lam: of `gae`.
        weight: of the part of `gigpo` that compares steps.
    """

    estimator: Name = "drmas"
    center: Literal["agent", "group"] = "agent"
    scale: Literal["agent", "group", "none"] = "agent"
    std: Literal["sample", "population"] = "sample"
    floor: Amount = 0.0
    single: Literal["zero", "raw", "batch"] = "zero"
    fined: Literal["outside", "inside"] = "outside"
    over: Literal["agent", "group"] = "agent"
    baseline: Literal["none", "batch", "agent", "moving"] = "agent"
    memory: Annotated[float, Meta(ge=0, lt=1)] = 0.9
    centered: bool = False
    gamma: Annotated[float, Meta(gt=0, le=1)] = 1.0
    lam: Annotated[float, Meta(ge=0, le=1)] = 0.95
    weight: Amount = 1.0

    def __attrs_post_init__(self) -> None:
        acting = _ACTING[self.estimator]
        refuse_idle(
            self,
            {one.name for one in fields(Advantage)} - {"estimator", *acting},
            f"with `estimator: {self.estimator}`, which has {', '.join(acting)}",
        )
        if self.baseline != "moving":
            refuse_idle(self, {"memory"}, f"with `baseline: {self.baseline}`, but with `moving`")
        if self.scale == "none":
            refuse_idle(self, {"std", "floor"}, "with `scale: none`, where nothing divides")


_ACTING: Mapping[str, tuple[str, ...]] = {
    "drmas": ("center", "scale", "std", "floor", "single", "fined"),
    "grpo": ("scale", "std", "floor", "single", "fined"),
    "global_step": ("std", "floor", "single", "fined"),
    "rloo": ("over", "fined"),
    "reinforce": ("baseline", "memory"),
    "reinforce++": ("gamma", "over", "centered"),
    "gigpo": ("gamma", "weight", "scale", "std", "over"),
    "gae": ("gamma", "lam"),
}


@frozen
class AgentSettings:
    """What is special about one agent.

    Args:
        train: whether its calls are learned from.
        weight: of its calls in the loss of its model.
        advantage: its own estimator, in place of the trainer's.
        penalty: for a call that could not be read, in place of the trainer's.
        aggregation: of its tokens, in place of the trainer's.
    """

    train: bool = True
    weight: Amount = 1.0
    advantage: Advantage | None = None
    penalty: Amount | None = None
    aggregation: Aggregation | None = None


@frozen
class Kl:
    """How the models are kept near where this trainer began with them.

    Args:
        weight: of the divergence; 0 for none.
        form: k1, k2 and k3 of Schulman 2020 (Approximating KL divergence), or the absolute value.
        where: in the loss, token by token, or taken off the reward of a call.
        corrected: whether a token's estimate in the loss is multiplied by rho, which makes its
            gradient unbiased for tokens of an earlier policy (DeepSeek-V3.2, arXiv 2512.02556,
            section 3.1). It can be with `k1` and `k3`, and is there unless set to false.
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
        """Whether `corrected` acts."""
        return self.where == "loss" and self.form in ("k1", "k3") and self.corrected is not False


@frozen
class Overlong:
    """DAPO's soft punishment of long responses.

    Args:
        longest: tokens from which on the punishment is full.
        buffer: tokens before that over which it grows.
        factor: the full punishment.
    """

    longest: Count
    buffer: Count
    factor: Positive = 1.0

    def __attrs_post_init__(self) -> None:
        if self.buffer > self.longest:
            raise ValueError(f"buffer: {self.buffer} is more than longest: {self.longest}")


@frozen
class Marl(Trainer):
    """Trains the models behind a team by what the team achieves.

    An iteration runs `group` episodes on each of some problems, estimates how much better than
    expected every call was, and takes some steps with the optimizer of each model on

        L = - mean min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) + kl KL - entropy H

    with rho the probability of a token now over that when it was sampled, A the advantage and H
    the entropy; for A < 0 the term is cut at `dual_clip` A. Agents that name the same model train
    it together. The default estimator is Dr.MAS (Feng et al. 2026, arXiv 2602.08847): an agent's
    calls are compared with that agent's calls alone.

    Args:
        models: that are trained; what agents say by other models is left as it is.
        iterations: how many.
        problems: in an iteration.
        group: episodes on each.
        advantage: the estimator.
        agents: what is special about single agents, by name.
        penalty: taken off the reward of a call that could not be read.
        truncated: what becomes of responses that were cut: learned from as they are, fined as
            unreadable, or left out.
        overlong: a softer punishment of long responses.
        updates: optimizer steps on an iteration's calls; the calls are dealt out among them.
        epochs: how often the calls are gone through.
        clip_low: how far rho may fall before a call stops pushing.
        clip_high: how far it may rise; more than `clip_low` is DAPO's clip-higher.
        dual_clip: see above; null for no cut.
        aggregation: mean over all tokens; or over responses, of their sums, of their means, or of
            their sums divided by the model's `max_tokens` (Dr. GRPO).
        entropy: weight of the entropy.
        kl: divergence from where the models were when this trainer began.
        dynamic: batches at most that are sampled until `problems` groups are found whose episodes
            do not all end alike (DAPO's dynamic sampling); null takes the first as it comes.
        max_staleness: how many versions old what is learned from may be; older is left out.
        optimizer: of every model.
        optimizers: of single models, by name.
        micro_batch: tokens, padding included, computed at once.
        validate_every: iterations between two looks at the validation split; null for none.
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
    dual_clip: Annotated[float, Meta(gt=1)] | None = 3.0
    aggregation: Aggregation = "token-mean"
    entropy: Amount = 0.0
    kl: Kl = Factory(Kl)
    dynamic: Count | None = None
    max_staleness: Annotated[int, Meta(ge=0)] = 0
    optimizer: Optimizer = Factory(Optimizer)
    optimizers: Mapping[str, Optimizer] = Factory(dict)
    micro_batch: Count = 16_384
    validate_every: Count | None = None

    def __attrs_post_init__(self) -> None:
        used = [self.advantage, *(one.advantage for one in self.agents.values() if one.advantage)]
        for one in used:
            if one.estimator in COMPARING and self.group < 2:
                raise ValueError(
                    f"group: {one.estimator} compares episodes of one problem and needs at least "
                    "2; with 1 every advantage would be 0"
                )

    smoke: ClassVar[Mapping[str, int]] = {"iterations": 1, "problems": 2, "group": 2}

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """See `Trainer.plan`."""
        if turns is None:
            return None
        episodes = self.problems * self.group * (self.dynamic or 1)
        if self.validate_every is not None and (i + 1) % self.validate_every == 0:
            episodes += sizes["validation"]
        return Plan(activations=episodes * turns, verdicts=episodes, forked=False)

    def of(self, agent: str) -> AgentSettings:
        """The settings of an agent, the trainer's own filled in."""
        own = self.agents.get(agent, AgentSettings())
        return evolve(
            own,
            advantage=own.advantage or self.advantage,
            penalty=self.penalty if own.penalty is None else own.penalty,
            aggregation=own.aggregation or self.aggregation,
        )

    def check(self, session: Session) -> None:
        """See `Trainer.check`."""
        if not len(session.problems("train")):
            raise UsageError("the task has no training problems")

    async def iterate(self, i: int, session: Session) -> Metrics:
        """See `Trainer.iterate`; the open trainer does it."""
        raise NotImplementedError("a trainer of weights must be opened")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The trainer at work; for a trial, its settings alone."""
        names = names_of(self.models, ctx)
        team = tuple(member.name for member in ctx.roster)
        check_known(self.agents, team, f"{ctx.path}.agents")
        check_known(self.optimizers, names, f"{ctx.path}.optimizers")
        oldest, fixed = self.iterations - 1, unsynced(names, self.models)
        if fixed and self.max_staleness < oldest:
            raise UsageError(
                f"{ctx.path}.max_staleness: {fixed[0]} is sampled by a server with `sync: none`; "
                f"in the last of {self.iterations} iterations what it says is {oldest} versions "
                f"old, and with {self.max_staleness} it would be left out; give the server a "
                f"`sync`, or allow {oldest}"
            )
        if ctx.trial:
            yield self
            return
        from orchestrion_marl.learner import Learner

        yield Learner(self, ctx)
