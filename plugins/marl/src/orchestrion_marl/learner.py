"""Iterations of `marl`: episodes, advantages, and steps of every model that is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from attrs import evolve
from orchestrion_local.imitation import trainable
from orchestrion_local.naming import settings_by_model
from orchestrion_local.optimizing import WeightOptimizer

from orchestrion import (
    JSON,
    Array,
    Episode,
    Job,
    Key,
    Metrics,
    OpenContext,
    Problem,
    Saved,
    Session,
    Trainer,
)
from orchestrion.runs import mean
from orchestrion_marl import advantages as adv
from orchestrion_marl.calls import Call, Stream, calls_of, lengths_of, rows_of
from orchestrion_marl.critic import Critic
from orchestrion_marl.diagnostics import describe
from orchestrion_marl.estimating import estimate
from orchestrion_marl.loss import divergence
from orchestrion_marl.marl import Advantage, AgentSettings, Marl
from orchestrion_marl.rows import Floats
from orchestrion_marl.updating import Lesson, reference_logprobs, update

__all__ = ["Learner"]


class Learner(Trainer):
    """See `Marl`."""

    def __init__(self, settings: Marl, ctx: OpenContext) -> None:
        self.settings, self._path = settings, ctx.path
        models = trainable(settings.models)
        self.models = {one.name: one for one in models}
        self.team = tuple(member.name for member in ctx.roster)
        self.agents: dict[str, AgentSettings] = {name: settings.of(name) for name in self.team}
        steps = settings.iterations * settings.updates * settings.epochs
        own = settings_by_model(
            settings.optimizers, ctx.names["models"], models, f"{ctx.path}.optimizers"
        )
        self.optimizers = {
            name: WeightOptimizer(model, own.get(name, settings.optimizer), steps)
            for name, model in self.models.items()
        }
        self.moving: dict[str, float] = {}
        """Running mean of each agent's rewards."""
        self.critic = Critic(self.team) if self._uses("gae") else None

    def _uses(self, name: str) -> bool:
        return any(_advantage(one).estimator == name for one in self.agents.values())

    @property
    def iterations(self) -> int:
        """See `Trainer.iterations`."""
        return self.settings.iterations

    def check(self, session: Session) -> None:
        """See `Trainer.check`."""
        self.settings.check(session)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """One round of episodes, and what the models make of it."""
        if i == 0 and self.settings.kl.weight:
            for model in self.models.values():
                model.anchor()
        stream = await self._gather(session)
        calls, stale = self._current(stream)
        metrics: dict[str, float] = {"stale": float(stale)}
        if calls:
            values = self._values(calls)
            calls, references = self._fined(calls)
            settings = {name: _advantage(one) for name, one in self.agents.items()}
            tokens = estimate(calls, self.team, settings, self.moving, values)
            metrics |= describe(evolve(stream, calls=tuple(calls)), self.team, tokens)
            self._remember(calls)
            metrics |= self._learn(calls, tokens, references, session.key.child("update"))
        if self._due(i):
            validated = await session.evaluate("validation")
            metrics["validation_success"] = mean([float(one.success) for one in validated])
        return metrics

    def _due(self, i: int) -> bool:
        every = self.settings.validate_every
        return every is not None and (i + 1) % every == 0

    # ------------------------------------------------------------------ episodes

    async def _gather(self, session: Session) -> Stream:
        """Episodes on as many problems as wanted; with `dynamic`, on those that can teach."""
        settings = self.settings
        episodes: list[Episode] = []
        groups: list[int] = []
        problems = _shuffled(session)
        wanted, first = settings.problems, 0
        for attempt in range(settings.dynamic or 1):
            chosen = [problems[(first + n) % len(problems)] for n in range(wanted)]
            fresh = await self._groups(session, chosen, first)
            numbers = np.repeat(np.arange(first, first + wanted), settings.group)
            keep = set(numbers.tolist())
            last = settings.dynamic is None or attempt == settings.dynamic - 1
            if not last:
                keep = set(_mixed(fresh, numbers.tolist()))
            for episode, number in zip(fresh, numbers.tolist(), strict=True):
                if number in keep:
                    episodes.append(episode)
                    groups.append(number)
            first += wanted
            wanted -= len(keep)
            if not wanted:
                break
        return calls_of(episodes, groups)

    async def _groups(
        self, session: Session, chosen: Sequence[Problem], first: int
    ) -> list[Episode]:
        return await session.rollout(
            [
                Job(problem, session.key.child("episode", first + n, repetition))
                for n, problem in enumerate(chosen)
                for repetition in range(self.settings.group)
            ]
        )

    def _current(self, stream: Stream) -> tuple[list[Call], int]:
        """What may be learned from, and how much of the rest was too old."""
        settings, kept, stale = self.settings, [], 0
        for call in stream.calls:
            model = self.models.get(call.generation.model)
            if model is None or not self.agents[call.agent].train:
                continue
            if model.version - call.generation.version > settings.max_staleness:
                stale += 1
            elif not (call.truncated and settings.truncated == "drop"):
                kept.append(call)
        return kept, stale

    # ------------------------------------------------------------------ rewards

    def _fined(self, calls: list[Call]) -> tuple[list[Call], dict[int, Floats]]:
        """Calls with what is taken off their rewards, and what the reference says of each."""
        settings = self.settings
        fines = np.zeros(len(calls))
        for i, call in enumerate(calls):
            fined = not call.valid or (call.truncated and settings.truncated == "fine")
            fines[i] = (self.agents[call.agent].penalty or 0.0) if fined else 0.0
        if settings.overlong is not None:
            long = settings.overlong
            fines -= adv.overlong(lengths_of(calls), long.longest, long.buffer, long.factor)
        references: dict[int, Floats] = {}
        if settings.kl.weight:
            references = self._references(calls)
            if settings.kl.where == "reward":
                for i, call in enumerate(calls):
                    now = torch.tensor(call.generation.logprobs, dtype=torch.float64)
                    kl = divergence(now, torch.from_numpy(references[i]), settings.kl.form)
                    fines[i] += settings.kl.weight * float(kl.sum())
        return [evolve(call, fine=float(fine)) for call, fine in zip(calls, fines, strict=True)], (
            references
        )

    def _references(self, calls: Sequence[Call]) -> dict[int, Floats]:
        found: dict[int, Floats] = {}
        for name, model in self.models.items():
            places = [i for i, call in enumerate(calls) if call.generation.model == name]
            if places:
                said = [calls[i].generation for i in places]
                rows = reference_logprobs(model, said, self.settings.micro_batch)
                found.update(zip(places, rows, strict=True))
        return found

    def _values(self, calls: Sequence[Call]) -> Floats | None:
        """The critic's values, which then learns from the same calls."""
        if self.critic is None:
            return None
        return self.critic.values(calls, self.models, self.settings.micro_batch)

    def _remember(self, calls: Sequence[Call]) -> None:
        rows = rows_of(calls, self.team)
        for i, name in enumerate(self.team):
            mine = rows.outcome[rows.agent == i]
            if len(mine):
                memory = _advantage(self.agents[name]).memory
                known = self.moving.get(name, float(mine.mean()))
                self.moving[name] = memory * known + (1 - memory) * float(mine.mean())

    # ------------------------------------------------------------------ steps

    def _learn(
        self, calls: Sequence[Call], tokens: Floats, references: Mapping[int, Floats], key: Key
    ) -> dict[str, float]:
        bounds = np.cumsum(lengths_of(calls))[:-1]
        advantages = np.split(tokens, bounds)
        metrics: dict[str, float] = {}
        for name, model in self.models.items():
            places = [i for i, call in enumerate(calls) if call.generation.model == name]
            in_loss = references if self.settings.kl.where == "loss" else {}
            lesson = Lesson(
                [calls[i] for i in places],
                [advantages[i] for i in places],
                [in_loss[i] for i in places] if in_loss else [],
            )
            optimizer, own = self.optimizers[name], key.child(name)
            with optimizer.pinned():
                progress = update(model, optimizer, lesson, self.settings, self.agents, own)
            metrics |= progress.metrics(name)
        return metrics

    # ------------------------------------------------------------------ being kept

    def save(self) -> Saved:
        """Optimizers, running means, the critic. Weights are the models' own to keep."""
        arrays: dict[str, Array] = {}
        data: dict[str, JSON] = {}
        for name, optimizer in self.optimizers.items():
            saved = optimizer.save(f"{name}/")
            arrays.update(saved.arrays)
            data[name] = saved.data
        state: dict[str, JSON] = {"optimizers": data, "moving": self.moving}
        if self.critic is not None:
            kept = self.critic.save()
            arrays.update(kept.arrays)
            state["critic"] = kept.data
        return Saved(arrays, state)

    def load(self, saved: Saved) -> None:
        """See `Stateful.load`."""
        for name, optimizer in self.optimizers.items():
            optimizer.load(Saved(saved.arrays, saved.data["optimizers"][name]), f"{name}/")
        self.moving = dict(saved.data["moving"])
        if self.critic is not None:
            self.critic.load(Saved(saved.arrays, saved.data["critic"]))


def _advantage(agent: AgentSettings) -> Advantage:
    assert agent.advantage is not None
    return agent.advantage


def _shuffled(session: Session) -> list[Problem]:
    """All training problems in this iteration's order."""
    problems = list(session.problems("train"))
    draws = session.key.child("problems").uniforms(len(problems))
    return [problems[i] for i in sorted(range(len(problems)), key=draws.__getitem__)]


def _mixed(episodes: Sequence[Episode], groups: Sequence[int]) -> list[int]:
    """Groups whose rewarded episodes do not all end alike."""
    totals: dict[int, set[float]] = {}
    for episode, group in zip(episodes, groups, strict=True):
        if episode.reward is not None:
            totals.setdefault(group, set()).add(episode.reward.total)
    return [group for group, seen in totals.items() if len(seen) > 1]
