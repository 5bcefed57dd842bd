"""UCB1 in every state: the outside reference of `efficiency.py`, as a policy and its trainer.

Source: Auer, Cesa-Bianchi, Fischer 2002, "Finite-time analysis of the multiarmed bandit problem",
UCB1, one bandit in each state. As in services that serve such bandits to agent frameworks, a
decision is credited with the quality at the end minus its own cost, c is 1.41, and a choice that
was never tried comes first. After training the highest mean is taken; a state that was never seen,
or a choice that was never tried there, counts as 0.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import log
from typing import Any

import numpy as np
from attrs import frozen

from orchestrion import (
    Activation,
    Decision,
    Episode,
    Job,
    Key,
    Metrics,
    OpenContext,
    Policy,
    Saved,
    Session,
    Situation,
    Trainer,
    choices,
    is_blocked,
)

C = 1.41
AT_ONCE = 8  # episodes between two updates


@frozen
class UcbTable:
    """A bandit in every state.

    Args:
        keys: what of the observation's data makes a state; none stands for its features.
    """

    keys: tuple[str, ...] = ()

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        known: list[Activation | None] = list(choices(ctx.roster))
        if not any(member.ends for member in ctx.roster):
            known.append(None)
        yield Bandits(known, self.keys)


class Bandits(Policy):
    """Tries [k] and summed credit [k] by state."""

    def __init__(self, known: Sequence[Activation | None], keys: Sequence[str]) -> None:
        self.known = self.choices = known
        self.keys = keys
        self.table: dict[str, tuple[list[float], list[float]]] = {}

    def state(self, situation: Situation) -> str:
        """Return what a situation is looked up by."""
        seen = situation.observation
        if seen is None:
            return situation.problem.category
        data: Any = seen.data
        shown = [data[key] for key in self.keys] if self.keys else np.round(seen.features, 1)
        return json.dumps([situation.problem.category, list(shown)])

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        return [self._one(one, key) for one, key in zip(situations, keys, strict=True)]

    def _one(self, situation: Situation, key: Key) -> Decision:
        state = self.state(situation)
        values = self._values(situation, state, C if situation.training else 0.0)
        best = np.flatnonzero(values == values.max())
        place = int(best[int(key.uniform() * len(best))] if situation.training else best[0])
        choice = self.known[place]
        record = (state, place)
        if choice is None:
            return Decision(stop=True, record=record)
        return Decision((choice,), record=record)

    def _values(self, situation: Situation, state: str, c: float) -> Any:
        zeros = [0.0] * len(self.known)
        tries, sums = map(np.array, self.table.get(state, (zeros, zeros)))
        means = np.divide(sums, tries, out=np.zeros(len(tries)), where=tries > 0)
        if c:
            bonus = c * np.sqrt(log(max(1.0, tries.sum())) / np.maximum(tries, 1))
            means = np.where(tries > 0, means + bonus, np.inf)
        blocked = [c is not None and is_blocked(c, situation.observation) for c in self.known]
        return np.where(blocked, -np.inf, means)

    def probabilities(self, situations: Sequence[Situation]) -> Any:
        """1 for the choice of the highest mean [n, k]."""
        result = np.zeros((len(situations), len(self.known)))
        for i, one in enumerate(situations):
            result[i, int(self._values(one, self.state(one), 0.0).argmax())] = 1.0
        return result

    def credit(self, episode: Episode, cost_weight: float) -> None:
        """Book an episode's quality minus the cost of each decision."""
        quality = 0.0 if episode.scores is None else episode.scores.value
        for i, decision in enumerate(episode.decisions):
            state, place = decision.record
            empty = ([0.0] * len(self.known), [0.0] * len(self.known))
            tries, sums = self.table.setdefault(state, empty)
            own = sum(t.usage.cost for t in episode.turns if t.decision == i)
            tries[place] += 1
            sums[place] += quality - cost_weight * own

    def save(self) -> Saved:
        return Saved(data={"table": {state: list(rows) for state, rows in self.table.items()}})

    def load(self, saved: Saved) -> None:
        data: Any = saved.data
        self.table = {state: (list(t), list(s)) for state, (t, s) in data["table"].items()}


@frozen
class UcbTrainer(Trainer):
    """Plays and books.

    Args:
        episodes: in all.
        cost_weight: of a decision's own cost.
    """

    episodes: int
    cost_weight: float

    @property
    def iterations(self) -> int:
        return 1

    async def iterate(self, i: int, session: Session) -> Metrics:
        problems = list(session.problems("train"))
        for first in range(0, self.episodes, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, self.episodes))
            jobs = [Job(problems[n % len(problems)], session.key.child(n)) for n in numbers]
            for episode in await session.rollout(jobs):
                session.policy.credit(episode, self.cost_weight)
        return {}
