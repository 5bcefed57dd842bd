"""The algorithm of `marl`: Dr.MAS and the methods it is compared with, for several models.

Source: Feng et al. 2026, Dr.MAS (arXiv 2602.08847), algorithm 1, and its published code. An
iteration

1. runs `group` episodes on each of `problems` problems with the present weights;
2. estimates the advantage of every call t of agent k, with R the reward of its episode:

       A_t = (R - mu_k) / sigma_k - penalty_t    (equation 5, over the agent's calls on the problem)

3. takes `updates` steps of AdamW with each model on the tokens of all calls that it answered:

       rho = p(token now) / p(token when it was sampled)
       L = mean of max(-rho A, -clip(rho, 1 - clip_low, 1 + clip_high) A)    (equation 3)
           + kl.weight * KL(model, model at the start) - entropy * H

The other estimators, with their sources, are in `advantages`. Deviations from the paper and code:

- sigma has the sample form (N - 1), as in the code; the paper has the population form
  (`advantage.std`);
- equal rewards give an advantage of exactly 0, where the code divides by sigma + 1e-6;
- an agent that was called once in a group has advantage 0; the code gives it its reward
  (`advantage.single: raw`);
- penalties of unreadable responses are subtracted after the normalisation; the code subtracts
  them from the reward (`advantage.fined: inside`);
- responses that were cut have the same penalty; the code treats them as any other (`truncated`);
- the loss averages over all tokens of a model (`aggregation`), also where agents share it;
- "when it was sampled" is the log-probability that was recorded at that moment, by a server if
  one samples; only with `importance_cap` it is computed again before the first step;
- the values of `gae` come from one ridge regression for each agent instead of a trained network;
- a step whose gradient is not finite is skipped and counted;
- episodes that failed are left out of their group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Literal

import numpy as np
import torch
from attrs import Factory, define, evolve, frozen
from orchestrion_local import (
    WeightOptimizer,
    check_memory,
    micro_batches,
    settings_by_model,
)
from orchestrion_local.interfaces import Generation, Trainable, generations_of

from orchestrion import (
    JSON,
    Array,
    Episode,
    Job,
    Key,
    Metrics,
    OpenContext,
    Saved,
    Session,
    Status,
)
from orchestrion.runs import mean
from orchestrion_marl.advantages import (
    Cells,
    Floats,
    Integers,
    Rows,
    amplification,
    estimate,
    overlong,
)
from orchestrion_marl.settings import AgentSettings, Kl, MarlSettings, Planned

__all__ = ["Batch", "Call", "MarlTrainer", "UpdateStatistics", "update"]

Sums = dict[str, dict[str, float]]

RIDGE = 1.0
"""Added to the squared features of the value regression."""
MEMORY = 0.9
"""Share of earlier iterations that the value regression keeps."""
K3_BOUND = 10.0
"""Bound of |k3|, whose exponential overflows on a token of probability near 0."""


@frozen
class Call:
    """One completion of an agent in an episode.

    Args:
        agent: name of the agent in the team.
        episode: number of the episode in this iteration.
        group: number of the problem in this iteration.
        turn: index of the turn.
        outcome: reward of the episode, or of this agent in it if the reward function gives one.
        generation: the tokens that were sampled.
        valid: whether the agent could read the response.
        penalty: subtracted for an unreadable, cut or overlong response and for the divergence.
    """

    agent: str
    episode: int
    group: int
    turn: int
    outcome: float
    generation: Generation
    valid: bool
    penalty: float = 0.0

    @property
    def is_truncated(self) -> bool:
        """Whether the response was cut at its maximal length."""
        return self.generation.stop == "length"


@frozen
class Batch:
    """Calls of one model's agents; advantages and references have a number for each token.

    Args:
        calls: the calls.
        advantages: one array for each call.
        references: log-probabilities by the weights with which training began, one array for each
            call; empty without a divergence in the loss.
        before: log-probabilities by the weights before the first step, one array for each call;
            empty without `importance_cap`.
    """

    calls: Sequence[Call]
    advantages: Sequence[Floats]
    references: Sequence[Floats] = ()
    before: Sequence[Floats] = ()

    def take(self, places: Sequence[int] | Integers) -> Batch:
        """Return the calls at some places."""
        return Batch(
            [self.calls[i] for i in places],
            [self.advantages[i] for i in places],
            [self.references[i] for i in places] if self.references else (),
            [self.before[i] for i in places] if self.before else (),
        )


@define
class UpdateStatistics:
    """What is measured during a model's optimizer steps.

    Args:
        norms: gradient norm of each step before clipping.
        skipped: steps without effect, since their gradient was not finite.
        sums: by agent and name, sums over tokens; "tokens" is their number.
        micro_batch: tokens in a forward pass.
    """

    norms: list[float] = Factory(list)
    skipped: int = 0
    sums: Sums = Factory(lambda: defaultdict(lambda: defaultdict(float)))
    micro_batch: int = 0

    def add(self, sums: Sums) -> None:
        """Add the sums of a micro-batch."""
        for agent, values in sums.items():
            for name, value in values.items():
                self.sums[agent][name] += value

    def metrics(self, model: str) -> dict[str, float]:
        """Return `model/NAME` of the steps and `agent/NAME`, means over tokens."""
        metrics = {
            f"{model}/skipped": float(self.skipped),
            f"{model}/steps": float(len(self.norms)),
            f"{model}/micro_batch": float(self.micro_batch),
        }
        if self.norms:
            metrics[f"{model}/norm_median"] = float(np.median(self.norms))
            metrics[f"{model}/norm_max"] = max(self.norms)
        for agent, sums in self.sums.items():
            tokens = max(1.0, sums["tokens"])
            metrics |= {f"{agent}/{k}": v / tokens for k, v in sums.items() if k != "tokens"}
        return metrics


class MarlTrainer(Planned):
    """Runs the iterations. See `Marl` for the settings.

    Raises:
        UsageError: two names of the same weights have different optimizers.
        RunError: weights, gradients and moments of a model do not fit its device.
    """

    def __init__(self, settings: MarlSettings, ctx: OpenContext) -> None:
        super().__init__(settings)
        models = [model for model in settings.models if isinstance(model, Trainable)]
        self.models = {model.name: model for model in models}
        self.team = tuple(member.name for member in ctx.roster)
        self.agents = {name: settings.of(name) for name in self.team}
        self.advantages = [agent.advantage for agent in self.agents.values() if agent.advantage]
        own = settings_by_model(
            settings.optimizers, ctx.names["models"], models, f"{ctx.path}.optimizers"
        )
        steps = settings.iterations * settings.updates * settings.epochs
        self.optimizers = {
            name: WeightOptimizer(
                model, own.get(name, settings.optimizer), steps, settings.micro_batch
            )
            for name, model in self.models.items()
        }
        check_memory(self.optimizers.values())
        self.moving: dict[str, float] = {}
        """Running mean of each agent's rewards."""
        uses_values = any(advantage.estimator == "gae" for advantage in self.advantages)
        self.critic = Critic() if uses_values else None

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Run one iteration: episodes, advantages, and the steps of every model."""
        if i == 0 and self.settings.kl.weight:
            for model in self.models.values():
                model.anchor()
        episodes, groups = await self._rollout(session)
        all_calls, counted = calls_of(episodes, groups)
        calls, stale = self._learnable(all_calls)
        metrics = {"stale": float(stale)}
        if calls:
            values = self._values(calls) if self.critic is not None else None
            calls, references = self._with_penalties(calls)
            rows, lengths = rows_of(calls, self.team), lengths_of(calls)
            moving = {k: self.moving.get(agent, 0.0) for k, agent in enumerate(self.team)}
            tokens = estimate(rows, lengths, self.advantages, moving, values)
            metrics["lost"] = float(len(episodes) - len(counted))
            metrics["groups"] = float(len(set(counted)))
            metrics |= describe(calls, rows, self.team, len(counted), tokens)
            self._update_moving(rows)
            before = self._scores(calls, "now") if self.settings.importance_cap else ()
            parts = np.split(tokens, np.cumsum(lengths)[:-1])
            batch = Batch(calls, parts, references, before)
            for name, places in self._places_by_model(calls).items():
                with self.optimizers[name].pinned():
                    statistics = update(
                        self.models[name],
                        self.optimizers[name],
                        batch.take(places),
                        self.settings,
                        self.agents,
                        session.key.child("update").child(name),
                    )
                metrics |= statistics.metrics(name)
        if self.settings.validates_after(i):
            validated = await session.evaluate("validation")
            successes = [float(episode.success) for episode in validated]
            metrics["validation_success"] = mean(successes)
        return metrics

    # ------------------------------------------------------------------ episodes

    async def _rollout(self, session: Session) -> tuple[list[Episode], list[int]]:
        """Return episodes and the group of each; with `dynamic`, of groups that differ in reward.

        Dynamic sampling is DAPO's (Yu et al. 2025, arXiv 2503.14476, section 3.2): groups whose
        episodes have equal rewards are replaced, in at most `dynamic` batches. The last batch is
        used as it is.
        """
        settings, key = self.settings, session.key
        problems = session.problems("train")
        draws = key.child("problems").uniforms(len(problems))
        order = sorted(range(len(problems)), key=draws.__getitem__)
        episodes: list[Episode] = []
        groups: list[int] = []
        first, wanted = 0, settings.problems
        batches = settings.dynamic or 1
        for batch in range(batches):
            numbers = [n for n in range(first, first + wanted) for _ in range(settings.group)]
            jobs = [
                Job(problems[order[n % len(problems)]], key.child("episode", n, j % settings.group))
                for j, n in enumerate(numbers)
            ]
            sampled = await session.rollout(jobs)
            kept = set(numbers)
            if batch < batches - 1:
                kept = groups_that_differ(sampled, numbers)
            for episode, number in zip(sampled, numbers, strict=True):
                if number in kept:
                    episodes.append(episode)
                    groups.append(number)
            first += wanted
            wanted -= len(kept)
            if not wanted:
                break
        return episodes, groups

    def _learnable(self, calls: Sequence[Call]) -> tuple[list[Call], int]:
        """Return the calls that may be learned from, and how many others were too old."""
        learnable, stale = [], 0
        for call in calls:
            model = self.models.get(call.generation.model)
            if model is None or not self.agents[call.agent].train:
                continue
            if model.version - call.generation.version > self.settings.max_staleness:
                stale += 1
            elif not (call.is_truncated and self.settings.truncated == "drop"):
                learnable.append(call)
        return learnable, stale

    def _places_by_model(self, calls: Sequence[Call]) -> dict[str, list[int]]:
        """Return the places of each model's calls."""
        return {
            name: [i for i, call in enumerate(calls) if call.generation.model == name]
            for name in self.models
        }

    # ------------------------------------------------------------------ penalties and baselines

    def _with_penalties(self, calls: list[Call]) -> tuple[list[Call], list[Floats]]:
        """Return the calls with their penalties, and the references that the loss needs."""
        settings, kl = self.settings, self.settings.kl
        penalties = np.zeros(len(calls))
        for i, call in enumerate(calls):
            if not call.valid or (call.is_truncated and settings.truncated == "fine"):
                penalties[i] = self.agents[call.agent].penalty or 0.0
        if settings.overlong is not None:
            soft = settings.overlong
            penalties -= overlong(lengths_of(calls), soft.longest, soft.buffer, soft.factor)
        references: list[Floats] = []
        if kl.weight:
            references = self._scores(calls, "reference")
            if kl.where == "reward":
                for i, call in enumerate(calls):
                    logprobs = torch.tensor(call.generation.logprobs, dtype=torch.float64)
                    tokens = divergence(logprobs, torch.from_numpy(references[i]), kl.form)
                    penalties[i] += self._kl_weight(call) * float(tokens.sum())
        penalised = [
            evolve(call, penalty=float(penalty))
            for call, penalty in zip(calls, penalties, strict=True)
        ]
        return penalised, references if kl.where == "loss" else []

    def _kl_weight(self, call: Call) -> float:
        return self.agents[call.agent].kl_weight or 0.0

    def _values(self, calls: Sequence[Call]) -> Floats:
        """Return the value of each call's prompt, shape [B]; then learn from these calls."""
        assert self.critic is not None
        features = self._scores(calls, "hidden")
        values = np.zeros(len(calls))
        for agent in self.team:
            places = [i for i, call in enumerate(calls) if call.agent == agent]
            if places:
                x = np.stack([np.append(features[i], 1.0) for i in places])
                y = np.array([calls[i].outcome for i in places])
                values[places] = self.critic.values(agent, x, y)
        return values

    def _scores(
        self, calls: Sequence[Call], what: Literal["reference", "now", "hidden"]
    ) -> list[Floats]:
        """Return each response's log-probabilities, or the last layer before it ("hidden").

        By the present weights, or those with which training began ("reference").
        """
        hidden = what == "hidden"
        rows: list[Floats] = [np.zeros(0)] * len(calls)
        for name, places in self._places_by_model(calls).items():
            model, budget = self.models[name], self.optimizers[name].micro_batch
            if not places:
                continue
            weights = model.reference() if what == "reference" else nullcontext()
            with weights, torch.no_grad():
                for part in micro_batches(sizes_of([calls[i] for i in places]), budget):
                    generations = [calls[places[k]].generation for k in part]
                    scored = model.score(generations, hidden=hidden)
                    tensor = scored.hidden if hidden else scored.logprobs
                    assert tensor is not None
                    for k, row in zip(part, tensor.double().cpu().numpy(), strict=True):
                        i = places[k]
                        rows[i] = row if hidden else row[: len(calls[i].generation.response)]
        return rows

    def _update_moving(self, rows: Rows) -> None:
        for k, (name, advantage) in enumerate(zip(self.team, self.advantages, strict=True)):
            rewards = rows.outcome[rows.agent == k]
            if len(rewards):
                memory, fresh = advantage.memory, float(rewards.mean())
                self.moving[name] = memory * self.moving.get(name, fresh) + (1 - memory) * fresh

    # ------------------------------------------------------------------ checkpoints

    def save(self) -> Saved:
        """Return the state of optimizers, running means and critic; models save their weights."""
        arrays: dict[str, Array] = {}
        optimizers: dict[str, JSON] = {}
        for name, optimizer in self.optimizers.items():
            saved = optimizer.save(f"{name}/")
            arrays.update(saved.arrays)
            optimizers[name] = saved.data
        data: dict[str, JSON] = {"optimizers": optimizers, "moving": self.moving}
        if self.critic is not None:
            saved = self.critic.save()
            arrays.update(saved.arrays)
            data["critic"] = saved.data
        return Saved(arrays, data)

    def load(self, saved: Saved) -> None:
        """See `Stateful.load`."""
        for name, optimizer in self.optimizers.items():
            optimizer.load(Saved(saved.arrays, saved.data["optimizers"][name]), f"{name}/")
        self.moving = dict(saved.data["moving"])
        if self.critic is not None:
            self.critic.load(Saved(saved.arrays, saved.data["critic"]))


# ---------------------------------------------------------------------- from episodes to arrays


def calls_of(episodes: Sequence[Episode], groups: Sequence[int]) -> tuple[list[Call], list[int]]:
    """Return the completions of all episodes that have a reward, and the groups of these episodes.

    An episode that a limit ended counts with its reward; one that failed is left out.
    """
    calls: list[Call] = []
    counted: list[int] = []
    for episode, group in zip(episodes, groups, strict=True):
        if episode.reward is None or episode.status in (Status.FAILED, Status.CANCELLED):
            continue
        rewards = episode.reward.agents or {}
        for turn in episode.turns:
            outcome = rewards.get(turn.agent, episode.reward.total)
            metadata = turn.output.metadata
            valid = bool(metadata.get("valid", True))
            calls += [
                Call(turn.agent, len(counted), group, turn.index, outcome, generation, valid)
                for generation in generations_of(metadata)
            ]
        counted.append(group)
    return calls, counted


def groups_that_differ(episodes: Sequence[Episode], groups: Sequence[int]) -> set[int]:
    """Return the groups whose rewarded episodes have different rewards."""
    rewards: dict[int, set[float]] = defaultdict(set)
    for episode, group in zip(episodes, groups, strict=True):
        if episode.reward is not None:
            rewards[group].add(episode.reward.total)
    return {group for group, different in rewards.items() if len(different) > 1}


def rows_of(calls: Sequence[Call], team: Sequence[str]) -> Rows:
    """Return the calls as arrays; an agent's id is its place in `team`, a situation is a prompt."""
    ids = {name: i for i, name in enumerate(team)}
    prompts: dict[tuple[int, ...], int] = {}
    return Rows(
        [call.outcome for call in calls],
        [call.group for call in calls],
        [call.episode for call in calls],
        [ids[call.agent] for call in calls],
        [call.penalty for call in calls],
        [call.turn for call in calls],
        [prompts.setdefault(call.generation.prompt, len(prompts)) for call in calls],
    )


def lengths_of(calls: Sequence[Call]) -> Integers:
    """Return the number of tokens of each response, shape [B]."""
    return np.array([len(call.generation.response) for call in calls], np.int64)


def sizes_of(calls: Sequence[Call]) -> Integers:
    """Return the number of tokens of each prompt with its response, shape [B]."""
    prompts = np.array([len(call.generation.prompt) for call in calls], np.int64)
    return prompts + lengths_of(calls)


def describe(
    calls: Sequence[Call], rows: Rows, team: Sequence[str], episodes: int, tokens: Floats
) -> dict[str, float]:
    """Return the metrics of each agent before the update.

    `AGENT/dead` is the share of its groups whose calls all have the same reward: nothing can be
    learned from them. `tokens` are the advantages of all tokens.
    """
    lengths = lengths_of(calls)
    # Only reinforce++ gives tokens of one call different advantages; here a call has their mean.
    advantages = np.add.reduceat(tokens, np.cumsum(lengths) - lengths) / lengths
    valid = np.array([call.valid for call in calls])
    truncated = np.array([call.is_truncated for call in calls])
    metrics: dict[str, float] = {}
    for k, name in enumerate(team):
        mine = np.flatnonzero(rows.agent == k)
        metrics[f"{name}/calls"] = len(mine) / max(1, episodes)
        if not len(mine):
            continue
        rewards = rows.outcome[mine]
        own = {
            "valid": valid[mine].mean(),
            "truncated": truncated[mine].mean(),
            "reward": rewards.mean(),
            "reward_std": rewards.std(),
            "dead": (Cells(rows.group[mine]).std(rewards, 0) == 0).mean(),
            "advantage": advantages[mine].mean(),
            "advantage_rms": np.sqrt((advantages[mine] ** 2).mean()),
            "f": amplification(rows, k),
            "tokens": lengths[mine].mean(),
        }
        metrics |= {f"{name}/{key}": float(value) for key, value in own.items()}
    return metrics


# ---------------------------------------------------------------------- the update of a model


def update(
    model: Trainable,
    optimizer: WeightOptimizer,
    batch: Batch,
    settings: MarlSettings,
    agents: Mapping[str, AgentSettings],
    key: Key,
) -> UpdateStatistics:
    """Take an iteration's steps with one model: `updates` in each of `epochs` passes.

    Without calls nothing changes, not even the model's version.
    """
    statistics = UpdateStatistics()
    if not batch.calls:
        return statistics
    for epoch in range(settings.epochs):
        draws = key.child(epoch).uniforms(len(batch.calls))
        order = np.array(sorted(range(len(batch.calls)), key=draws.__getitem__))
        for places in np.array_split(order, min(settings.updates, len(order))):
            part = batch.take(places)
            lengths = lengths_of(part.calls)
            weights = row_weights(
                lengths,
                np.array([agents[call.agent].weight for call in part.calls]),
                [agents[call.agent].aggregation or "" for call in part.calls],
                model.max_tokens,
            )

            def loss_of(
                rows: Integers, part: Batch = part, weights: Floats = weights
            ) -> tuple[torch.Tensor, Sums]:
                return _loss(model, part.take(rows), weights[rows], settings, agents)

            for sums in optimizer.accumulate(sizes_of(part.calls), loss_of):
                statistics.add(sums)
            step = optimizer.step()
            if step.skipped:
                statistics.skipped += 1
            else:
                statistics.norms.append(step.norm)
    model.updated()
    statistics.micro_batch = optimizer.micro_batch
    return statistics


def _loss(
    model: Trainable,
    batch: Batch,
    weights: Floats,
    settings: MarlSettings,
    agents: Mapping[str, AgentSettings],
) -> tuple[torch.Tensor, Sums]:
    """Return the loss of a micro-batch, and what was measured: sums over each agent's tokens."""
    scored = model.score(
        [call.generation for call in batch.calls],
        entropy="gradient" if settings.entropy else "value",
    )
    logprobs, mask = scored.logprobs, scored.mask
    assert scored.entropy is not None
    own = [agents[call.agent] for call in batch.calls]
    low, high, kl_weight = (
        torch.tensor([[getattr(agent, name)] for agent in own], device=mask.device)
        for name in ("clip_low", "clip_high", "kl_weight")
    )
    sampled = _padded([call.generation.logprobs for call in batch.calls], mask)
    old = _padded(batch.before, mask) if batch.before else sampled
    advantages = _padded(batch.advantages, mask)
    terms, clipped = policy_terms(logprobs, old, advantages, low, high, settings.dual_clip)
    if batch.before:
        terms = terms * (old - sampled).exp().clamp(max=settings.importance_cap)
    shift = (sampled - logprobs).detach()
    measured = {
        "clipped": clipped.float(),
        "entropy": scored.entropy.detach(),
        "shift": shift,
        "mismatch": shift.abs(),
    }
    if settings.entropy:
        terms = terms - settings.entropy * scored.entropy
    if batch.references:
        reference = _padded(batch.references, mask)
        measured["kl"] = divergence(logprobs, reference, settings.kl.form).detach()
        kl = divergence_in_loss(logprobs, old, reference, settings.kl)
        terms = terms + kl_weight * kl
    measured["tokens"] = torch.ones_like(mask)
    sums: Sums = defaultdict(lambda: defaultdict(float))
    for name, values in measured.items():
        for call, value in zip(batch.calls, (values * mask).sum(1).tolist(), strict=True):
            sums[call.agent][name] += value
    by_row = torch.as_tensor(weights, dtype=terms.dtype, device=terms.device)
    return (terms * mask * by_row[:, None]).sum(), sums


def policy_terms(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    low: float | torch.Tensor,
    high: float | torch.Tensor,
    dual: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each token's loss, and whether its ratio was clipped, both [B, L].

    max(-rho A, -clip(rho, 1 - low, 1 + high) A): Schulman et al. 2017 (arXiv 1707.06347); for A < 0
    at most -`dual` A: Ye et al. 2020 (arXiv 1912.09729).

    Args:
        logprobs: log-probabilities now, with gradients, shape [B, L].
        old: log-probabilities when the tokens were sampled, shape [B, L].
        advantages: shape [B, L].
        low: how far rho may fall below 1; for all, or for each row, shape [B, 1].
        high: how far rho may rise above 1; as `low`.
        dual: bound of the loss for A < 0; None for no bound.
    """
    ratio = (logprobs - old).exp()
    plain = -ratio * advantages
    bounds = (torch.as_tensor(bound).to(ratio) for bound in (1 - low, 1 + high))
    clipped = -ratio.clamp(*bounds) * advantages
    terms = torch.maximum(plain, clipped)
    if dual is not None:
        terms = torch.where(advantages < 0, torch.minimum(terms, -dual * advantages), terms)
    return terms, (clipped > plain).detach()


def divergence(logprobs: torch.Tensor, reference: torch.Tensor, form: str) -> torch.Tensor:
    """Return estimates of the KL divergence from the reference, token by token, [B, L].

    k1 = log p - log q; abs = |k1|; k2 = k1^2 / 2; k3 = q/p - log(q/p) - 1, within +-10: Schulman
    2020, http://joschu.net/blog/kl-approx.html.
    """
    difference = logprobs - reference
    if form == "k1":
        return difference
    if form == "abs":
        return difference.abs()
    if form == "k2":
        return 0.5 * difference.square()
    return ((-difference).exp() + difference - 1).clamp(-K3_BOUND, K3_BOUND)


def divergence_in_loss(
    logprobs: torch.Tensor, old: torch.Tensor, reference: torch.Tensor, settings: Kl
) -> torch.Tensor:
    """Return the divergence as the loss has it, times rho if `corrected`, shape [B, L]."""
    kl = divergence(logprobs, reference, settings.form)
    return kl * (logprobs - old).exp() if settings.is_corrected else kl


def row_weights(
    lengths: Integers, share: Floats, aggregation: Sequence[str], longest: int
) -> Floats:
    """Return the weight of each response's tokens, with which their sum is the mean loss, [B].

    Responses with different aggregations have means of their own, weighted by their numbers.

    Args:
        lengths: tokens of each response, shape [B].
        share: weight of each response, e.g. by its agent, shape [B].
        aggregation: of each response, see `MarlSettings.aggregation`.
        longest: the fixed length of "seq-mean-token-sum-norm".
    """
    weights = np.zeros(len(lengths))
    names = np.array(aggregation)
    for name in np.unique(names):
        mine = names == name
        total = (share[mine] * (lengths[mine] if name == "token-mean" else 1)).sum()
        if not total:
            continue
        each = share[mine] / total
        if name == "seq-mean-token-mean":
            each = each / np.maximum(lengths[mine], 1)
        elif name == "seq-mean-token-sum-norm":
            each = each / longest
        weights[mine] = each * mine.mean()
    return weights


def _padded(rows: Sequence[Sequence[float] | Floats], mask: torch.Tensor) -> torch.Tensor:
    """Return rows of different lengths as one tensor with the shape of `mask`."""
    padded = np.zeros(tuple(mask.shape), np.float32)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded).to(mask.device)


# ---------------------------------------------------------------------- the values of `gae`


class Critic:
    """Value of an agent's prompt: a ridge regression of rewards for each agent.

    Its features are the last layer of the agent's own model before the first token of the
    response, which it does not train. It is solved in closed form from the calls of earlier
    iterations, so that it has no learning rate and cannot diverge.
    """

    def __init__(self) -> None:
        self._products: dict[str, Floats] = {}
        """Sums of x x' and x y by agent, one array of shape [width, width + 1]."""

    def values(self, agent: str, x: Floats, y: Floats) -> Floats:
        """Return the values of prompts with features x, shape [B]; then learn the rewards y.

        Without earlier calls all values are the mean of y.
        """
        fresh = np.concatenate((x.T @ x, (x.T @ y)[:, None]), axis=1)
        before = self._products.get(agent)
        if before is None or before.shape != fresh.shape:
            self._products[agent] = fresh
            return np.full(len(y), y.mean())
        width = x.shape[1]
        weights = np.linalg.solve(before[:, :width] + RIDGE * np.eye(width), before[:, width])
        self._products[agent] = fresh + MEMORY * before
        return np.asarray(x @ weights, np.float64)

    def save(self) -> Saved:
        """Return the sums that were learned."""
        arrays = {
            f"critic/{agent}": Array("F64", sums.shape, np.ascontiguousarray(sums, "<f8").tobytes())
            for agent, sums in self._products.items()
        }
        return Saved(arrays, sorted(self._products))

    def load(self, saved: Saved) -> None:
        """See `Stateful.load`."""
        self._products = {}
        for agent in saved.data:
            array = saved.arrays[f"critic/{agent}"]
            flat = np.frombuffer(array.data, "<f8").astype(np.float64)
            self._products[agent] = flat.reshape(array.shape)
