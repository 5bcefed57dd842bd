"""The trainer `fitted-q` at work, and the model that it installs.

Read `FittedLearner.iterate` first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from orchestrion import (
    Episode,
    Job,
    Key,
    Metrics,
    OpenContext,
    Plan,
    Saved,
    Session,
    Situation,
    Split,
    UsageError,
)
from orchestrion.experience import gather
from orchestrion_values.arrays import pack, unpack
from orchestrion_values.ensemble import Fitted
from orchestrion_values.fitted import fit
from orchestrion_values.policy import Exploring, Floats, Mask, Taken, ValuePolicy
from orchestrion_values.probing import in_turn, probing
from orchestrion_values.sizes import batches
from orchestrion_values.transitions import Transitions

if TYPE_CHECKING:
    from orchestrion_values.fitted_q import FittedQ

__all__ = ["FittedLearner", "FittedModel"]


@frozen(eq=False)
class FittedModel:
    """Value functions at work in a policy.

    Args:
        fitted: the ensemble.
        policy: whose encoders make the numbers.
        caution: how many deviations of the members a value is lowered by.
    """

    fitted: Fitted
    policy: ValuePolicy
    caution: float = 0.0

    name = "fitted-q"

    def members(self, situations: Sequence[Situation]) -> Floats:
        """The values by each member of the ensemble [m, n, k]; the first is their mean."""
        encoded = self.policy.encode(situations)
        places = {name: i for i, name in enumerate(self.fitted.categories)}
        category = [places.get(one.problem.category, -1) for one in situations]
        return self.fitted.values(encoded.context, encoded.choices, np.array(category, np.int64))

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """The mean of the values, lowered where they are uncertain."""
        values = self.members(situations)
        if not self.caution:
            mean: Floats = values[0]
            return mean
        result: Floats = values[0] - self.caution * values[1:].std(axis=0)
        return result

    def save(self) -> Saved:
        """The ensemble."""
        arrays, data = self.fitted.save()
        return Saved(pack(arrays), {**data, "caution": self.caution})

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> FittedModel:
        """What `save` gave."""
        data: Any = saved.data
        return cls(Fitted.load(unpack(saved.arrays), data), policy, data["caution"])


class FittedLearner:
    """Trains the policy `values`; its state is every decision so far."""

    def __init__(self, settings: FittedQ, ctx: OpenContext) -> None:
        self.settings, self._path, self._key, self._turns = settings, ctx.path, ctx.key, ctx.turns
        self._sizes = batches(settings.episodes)
        self._data: Transitions | None = None
        self._seen = 0

    @property
    def iterations(self) -> int:
        """Of growing size; see `sizes.batches`."""
        return len(self._sizes)

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """So many episodes."""
        episodes = self._sizes[i]
        return None if turns is None else Plan(episodes * turns, episodes, forked=False)

    def check(self, session: Session) -> None:
        """Refuse a policy that does not go by values."""
        if not isinstance(session.policy, ValuePolicy):
            raise UsageError(
                f"{self._path}: fitted-q trains the policy values; write `policy: {{use: values}}`"
            )

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Episodes by members of the ensemble, then an ensemble of all episodes."""
        self.check(session)
        policy: ValuePolicy = session.policy
        problems = in_turn(session, self._key.child("problems"), self._seen, self._sizes[i])
        explorers = self._explorers(policy)
        jobs = []
        for n, problem in enumerate(problems):
            key = session.key.child("episode", n)
            member = int(key.child("member").uniform() * len(explorers))
            jobs.append(Job(problem, key, explorers[member]))
        return self.absorb(await session.rollout(jobs), session)

    def absorb(self, episodes: Sequence[Episode], session: Session) -> Metrics:
        """Take some episodes in, whoever ran them; fit, and install what was fitted."""
        policy: ValuePolicy = session.policy
        self._seen += len(episodes)
        experiences = gather(episodes, Taken)
        new = Transitions.of(policy, experiences)
        if new is not None:
            self._data = new if self._data is None else self._data.joined(new)
        metrics = {"excluded": float(len(episodes) - len(experiences))}
        if self._data is None:
            return metrics
        s, seed = self.settings, self._key.child("fit", len(self._data)).integer()
        fitted = fit(self._data, seed, members=s.members, trees=s.trees)
        policy.model = FittedModel(fitted, policy, s.caution)
        trees = fitted.trees.weight if fitted.trees is not None else 0.0
        return {**metrics, "value_error": fitted.lost, "tree_weight": trees}

    def _explorers(self, policy: ValuePolicy) -> list[Exploring]:
        model = policy.model
        if not isinstance(model, FittedModel):
            return [probing(policy, self._turns)]
        return [_by_member(model, m) for m in range(1, self.settings.members + 1)]

    # ------------------------------------------------------------------ state

    def save(self) -> Saved:
        """Every decision so far."""
        if self._data is None:
            return Saved(data={"seen": self._seen})
        arrays, data = self._data.save()
        return Saved(pack(arrays), {**data, "seen": self._seen})

    def load(self, saved: Saved) -> None:
        """What `save` gave."""
        data: Any = saved.data
        self._seen = data["seen"]
        self._data = Transitions.load(unpack(saved.arrays), data) if saved.arrays else None


def _by_member(model: FittedModel, member: int) -> Exploring:
    """Goes by one member; how many of them agree is recorded as the probability."""

    def choose(
        situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
    ) -> list[tuple[int, float]]:
        values = np.where(allowed, model.members(situations), -np.inf)
        best = values[1:].argmax(axis=2)  # [m, n]
        mine = best[member - 1]
        agree = (best == mine).mean(axis=0)
        return [(int(place), float(p)) for place, p in zip(mine, agree, strict=True)]

    return Exploring(model.policy, choose)
