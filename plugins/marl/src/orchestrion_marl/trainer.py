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

The steps and their loss are in `updating`, the other estimators, with their sources, in
`advantages`. Deviations from the paper and code:

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
- the values of `gae` come from one ridge regression for each agent on states of its own model,
  instead of a network that is trained beside it;
- a step whose gradient is not finite is skipped and counted;
- episodes that failed are left out of their group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from typing import Any

import msgspec
import numpy as np
from orchestrion_local import settings_by_model
from orchestrion_local.interfaces import Scored, Trainable

from orchestrion import (
    JSON,
    Episode,
    Job,
    Key,
    Metrics,
    OpenContext,
    Plan,
    Saved,
    Session,
    Split,
    Trainer,
    UsageError,
)
from orchestrion.runs import mean
from orchestrion_marl.advantages import estimate, overlong
from orchestrion_marl.calls import (
    Call,
    Sampled,
    describe,
    groups_that_differ,
    lengths_of,
    rows_of,
    sampled_of,
    sizes_of,
)
from orchestrion_marl.critic import Critic
from orchestrion_marl.rows import Floats, Rows
from orchestrion_marl.settings import MarlSettings


class MarlTrainer(Trainer):
    """Runs the iterations. See `Marl` for the settings; in a dry run it has no models.

    Raises:
        UsageError: two names of the same weights have different optimizers.
        RunError: weights, gradients and moments of a model do not fit its device.
    """

    def __init__(self, settings: MarlSettings, ctx: OpenContext) -> None:
        self.settings = settings
        if ctx.trial:
            return
        # Not above: a dry run must not load torch.
        from orchestrion_local import WeightOptimizer, check_memory

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
        self.waiting: Sampled | None = None
        """What the last iteration sampled and nothing has learned from; see `lag`."""
        uses_values = any(advantage.estimator == "gae" for advantage in self.advantages)
        self.critic = Critic() if uses_values else None

    @property
    def iterations(self) -> int:
        return self.settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        settings = self.settings
        episodes = settings.problems * settings.group * (settings.dynamic or 1)
        if settings.validates_after(i):
            episodes += sizes["validation"]
        return Plan(episodes)

    def check(self, session: Session) -> None:
        if not len(session.problems("train")):
            raise UsageError("the task has no training problems")

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Run one iteration: episodes, advantages, and the steps of every model."""
        if i == 0 and self.settings.kl.weight:
            for model in self.models.values():
                model.anchor()
        key = session.key.child("update")
        metrics: dict[str, float] = {}
        if self.settings.lag:
            sampled, metrics = await self._sample_and_learn(session, key.child("waiting"))
            self.waiting = None if i == self.iterations - 1 else sampled
        else:
            sampled = await self._sample(session)
        if self.waiting is None:
            metrics |= self._learn(sampled, key)
        if self.settings.validates_after(i):
            validated = await session.evaluate("validation")
            successes = [float(episode.success) for episode in validated]
            metrics["validation_success"] = mean(successes)
        return metrics

    async def _sample_and_learn(
        self, session: Session, key: Key
    ) -> tuple[Sampled, dict[str, float]]:
        """Sample with the present weights, and learn from what was sampled before.

        At the same time, if servers sample for all models; in this process a model cannot sample
        while it learns, so it does one after the other, with the same result.
        """
        waiting = self.waiting
        if waiting is None:
            return await self._sample(session), {}
        async with AsyncExitStack() as stack:
            held = [
                await stack.enter_async_context(model.holding()) for model in self.models.values()
            ]
            if not all(held):
                return await self._sample(session), self._learn(waiting, key)
            import torch

            threads = torch.get_num_threads()

            def learn() -> dict[str, float]:
                # Another thread would have the machine's number, on which sums depend.
                torch.set_num_threads(threads)
                return self._learn(waiting, key)

            learning = asyncio.create_task(asyncio.to_thread(learn))
            try:
                sampled = await self._sample(session)
            finally:  # also when that failed: models are closed then, and must not be learning
                metrics = await finish(learning)
            return sampled, metrics

    def _learn(self, sampled: Sampled, key: Key) -> dict[str, float]:
        """Take the steps of every model; return metrics."""
        from orchestrion_marl.updating import Batch, update

        calls, stale = self._learnable(sampled.calls)
        metrics = {"stale": float(stale)}
        if not calls:
            return metrics
        metrics["staleness"] = mean([float(self._staleness(call)) for call in calls])
        values = self._values(calls) if self.critic is not None else None
        penalties, references = self._penalties(calls)
        rows, lengths = rows_of(calls, penalties, self.team), lengths_of(calls)
        moving = {k: self.moving.get(agent, 0.0) for k, agent in enumerate(self.team)}
        tokens = estimate(rows, lengths, self.advantages, moving, values)
        metrics["lost"] = float(sampled.lost)
        metrics["groups"] = float(len(set(sampled.groups)))
        metrics |= describe(calls, rows, self.team, len(sampled.groups), tokens)
        self._update_moving(rows)
        before = self._scores(calls) if self.settings.importance_cap else ()
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
                    key.child(name),
                )
            metrics |= statistics.metrics(name)
        return metrics

    # ------------------------------------------------------------------ episodes

    async def _sample(self, session: Session) -> Sampled:
        """Run episodes; with `dynamic`, keep those of groups that differ in reward.

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
            is_last = batch == batches - 1
            kept = set(numbers) if is_last else groups_that_differ(sampled, numbers)
            for episode, number in zip(sampled, numbers, strict=True):
                if number in kept:
                    episodes.append(episode)
                    groups.append(number)
            first += wanted
            wanted -= len(kept)
            if not wanted:
                break
        return sampled_of(episodes, groups)

    def _staleness(self, call: Call) -> int:
        """Return by how many versions the weights that sampled a call are behind."""
        return self.models[call.generation.model].version - call.generation.version

    def _learnable(self, calls: Sequence[Call]) -> tuple[list[Call], int]:
        """Return the calls that may be learned from, and how many others were too old."""
        maximum = max(self.settings.max_staleness, self.settings.lag)
        drops = self.settings.truncated == "drop"
        trained = [
            call
            for call in calls
            if call.generation.model in self.models and self.agents[call.agent].train
        ]
        recent = [call for call in trained if self._staleness(call) <= maximum]
        learnable = [call for call in recent if not (drops and call.is_truncated)]
        return learnable, len(trained) - len(recent)

    def _places_by_model(self, calls: Sequence[Call]) -> dict[str, list[int]]:
        """Return the places of each model's calls."""
        return {
            name: [i for i, call in enumerate(calls) if call.generation.model == name]
            for name in self.models
        }

    # ------------------------------------------------------------------ penalties and baselines

    def _penalties(self, calls: Sequence[Call]) -> tuple[Floats, list[Floats]]:
        """Return what is subtracted from the reward of each call, and references for the loss.

        Penalties are for unreadable, cut and overlong responses, and for the divergence.
        """
        import torch

        from orchestrion_marl.updating import divergence

        settings, kl = self.settings, self.settings.kl
        penalties = np.zeros(len(calls))
        for i, call in enumerate(calls):
            if not call.valid or (call.is_truncated and settings.truncated == "fine"):
                penalties[i] = self.agents[call.agent].penalty or 0.0
        if settings.overlong is not None:
            penalties -= overlong(lengths_of(calls), settings.overlong)
        references: list[Floats] = []
        if kl.weight:
            references = self._scores(calls, reference=True)
            if kl.where == "reward":
                for i, call in enumerate(calls):
                    logprobs = torch.tensor(call.generation.logprobs, dtype=torch.float64)
                    tokens = divergence(logprobs, torch.from_numpy(references[i]), kl.form)
                    penalties[i] += (self.agents[call.agent].kl_weight or 0.0) * float(tokens.sum())
        return penalties, references if kl.where == "loss" else []

    def _values(self, calls: Sequence[Call]) -> Floats:
        """Return the value before each token, shape [sum of lengths]; then learn from these calls.

        Of a call whose actions are not tokens, all tokens have the value of its prompt. Where
        nothing is known of an agent yet, values are the mean of its rewards.
        """
        assert self.critic is not None
        critic = self.critic
        values: list[Any] = [None] * len(calls)
        for i, scored, row in self._score(calls, hidden=True):
            call, advantage = calls[i], self.agents[calls[i].agent].advantage
            assert scored.hidden is not None
            assert advantage is not None
            length = len(call.generation.response)
            actions = length if advantage.actions == "tokens" else 1
            states = scored.hidden[row, :actions].double().cpu().numpy()
            known = critic.values(call.agent, states, call.outcome)
            values[i] = known if known is None else np.repeat(known, length // actions)
        critic.learn()
        means = {
            agent: mean([call.outcome for call in calls if call.agent == agent])
            for agent in self.team
        }
        for i, call in enumerate(calls):
            if values[i] is None:
                values[i] = np.full(len(call.generation.response), means[call.agent])
        return np.concatenate(values)

    def _scores(self, calls: Sequence[Call], reference: bool = False) -> list[Floats]:
        """Return the log-probabilities of tokens, by the present weights or those at the start."""
        rows: list[Floats] = [np.zeros(0)] * len(calls)
        for i, scored, row in self._score(calls, reference=reference):
            length = len(calls[i].generation.response)
            rows[i] = scored.logprobs[row, :length].double().cpu().numpy()
        return rows

    def _score(
        self, calls: Sequence[Call], *, hidden: bool = False, reference: bool = False
    ) -> Iterator[tuple[int, Scored, int]]:
        """Score calls in micro-batches; yield the place of each call, its batch, and its row."""
        import torch
        from orchestrion_local import micro_batches

        for name, places in self._places_by_model(calls).items():
            model, budget = self.models[name], self.optimizers[name].micro_batch
            if not places:
                continue
            with model.reference() if reference else nullcontext(), torch.no_grad():
                for part in micro_batches(sizes_of([calls[i] for i in places]), budget):
                    generations = [calls[places[k]].generation for k in part]
                    scored = model.score(generations, hidden=hidden)
                    for row, k in enumerate(part):
                        yield places[k], scored, row

    def _update_moving(self, rows: Rows) -> None:
        for k, (name, advantage) in enumerate(zip(self.team, self.advantages, strict=True)):
            rewards = rows.outcome[rows.agent == k]
            if len(rewards):
                memory, fresh = advantage.memory, float(rewards.mean())
                self.moving[name] = memory * self.moving.get(name, fresh) + (1 - memory) * fresh

    # ------------------------------------------------------------------ checkpoints

    def save(self) -> Saved:
        """Return the state of optimizers, running means and critic; models save their weights."""
        saved = {name: optimizer.save(f"{name}/") for name, optimizer in self.optimizers.items()}
        arrays = {name: array for part in saved.values() for name, array in part.arrays.items()}
        optimizers = {name: part.data for name, part in saved.items()}
        data: dict[str, JSON] = {"optimizers": optimizers, "moving": self.moving}
        if self.waiting is not None:
            data["waiting"] = msgspec.to_builtins(self.waiting)
        if self.critic is not None:
            critic = self.critic.save()
            arrays |= critic.arrays
            data["critic"] = critic.data
        return Saved(arrays, data)

    def load(self, saved: Saved) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.load(Saved(saved.arrays, saved.data["optimizers"][name]), f"{name}/")
        self.moving = dict(saved.data["moving"])
        waiting = saved.data.get("waiting")
        self.waiting = msgspec.convert(waiting, Sampled | None)
        if self.critic is not None:
            self.critic.load(Saved(saved.arrays, saved.data["critic"]))


async def finish(task: asyncio.Task[dict[str, float]]) -> dict[str, float]:
    """Return the result of a task. If this is cancelled, wait for its end first."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
