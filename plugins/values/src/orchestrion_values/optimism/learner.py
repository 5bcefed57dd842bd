"""The trainer `optimistic` at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrion import (
    Episode,
    Experience,
    Job,
    Key,
    Metrics,
    OpenContext,
    Saved,
    Session,
    Situation,
    gather,
)
from orchestrion_values.learner import ValueLearner
from orchestrion_values.optimism.believing import Believer
from orchestrion_values.optimism.dynamics import Dynamics, learn
from orchestrion_values.optimism.planned import NEVER, Believed, Planned, show
from orchestrion_values.optimism.planning import optimistic, plain
from orchestrion_values.optimism.seen import Floats, Mask, Seen
from orchestrion_values.optimism.states import States
from orchestrion_values.policy import Exploring, Taken, ValuePolicy

if TYPE_CHECKING:
    from orchestrion_values.optimistic import Optimistic

__all__ = ["Learner", "add"]

HIDDEN = "hidden/"
"""Begins the names of the hidden-state model's arrays."""


class Learner(ValueLearner):
    """Trains the session's policy; its state is all that was seen."""

    name = "optimistic"

    def __init__(self, settings: Optimistic, ctx: OpenContext) -> None:
        super().__init__(ctx, settings.sizes)
        self.settings = settings
        self._seen: Seen | None = None
        self._hopes: Planned | None = None
        """The optimistic plan over states; made when it is needed."""
        self._believer = Believer(settings.hidden_states, settings.tries)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Follow the optimistic plan, then plan anew."""
        self.check(session)
        policy: ValuePolicy = session.policy
        known = self._seen is not None and bool(self._seen.moves)
        if known and self._hopes is None and not isinstance(policy.model, Believed):
            self._plan(policy)
        exploring = Exploring(policy, self._explorer(policy))
        problems = self.problems(session, sum(self.sizes[:i]), self.sizes[i])
        jobs = [
            Job(problem, session.key.child("episode", n), exploring)
            for n, problem in enumerate(problems)
        ]
        return self.absorb(await session.rollout(jobs), session)

    def absorb(self, episodes: Sequence[Episode], session: Session) -> Metrics:
        """Learn from episodes that were run before, by whatever policy of the same choices."""
        policy: ValuePolicy = session.policy
        seen = self._seen = self._seen or Seen(len(policy.choices))
        experiences = gather(episodes, Taken)
        for experience in experiences:
            add(seen, policy, experience)
        excluded = {"excluded": float(len(episodes) - len(experiences))}
        return {**excluded, **self._think(policy)} if seen.moves else excluded

    def _seed(self) -> int:
        assert self._seen is not None
        return self.key.child("fit", self._seen.episodes).integer() % 2**31

    def _think(self, policy: ValuePolicy) -> dict[str, float]:
        """Learn from everything, and plan."""
        assert self._seen is not None
        beliefs = self._believer.think(self._seen, self._seed())
        if beliefs is None:
            return self._plan(policy)
        self._hopes = None
        policy.model = Believed(beliefs, policy.choices)
        return {"hidden": float(self.settings.hidden_states)}

    def _plan(self, policy: ValuePolicy) -> dict[str, float]:
        """Plan over states, and hand the plan without hope to the policy."""
        assert self._seen is not None
        s, seen = self.settings, self._seen
        model = learn(seen, States(seen, s.levels), self._seed(), s.best)
        lookup = model.states.lookup
        hopes, means = optimistic(model, s.known, s.bonus), plain(model)
        self._hopes = Planned(lookup, hopes, policy.choices)
        policy.model = Planned(lookup, means, policy.choices)
        return _metrics(seen, model, hopes, means, s.known)

    def _explorer(self, policy: ValuePolicy) -> Any:
        """How choices are made in training."""
        if isinstance(policy.model, Believed):
            return self._doubting(policy.model)
        return self._hoping(self._hopes)

    def _hoping(self, hopes: Planned | None) -> Any:
        """One of what looks best by the optimistic plan; any before there is one."""

        def choose(
            situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
        ) -> list[tuple[int, float]]:
            scores = np.zeros(allowed.shape)
            if hopes is not None:
                scores = np.asarray(hopes.scores(situations, allowed))
                # Later than anybody has ever been, nothing is known.
                scores[[len(one.trajectory) >= len(hopes.values) for one in situations]] = 0.0
            scores = np.where(allowed, scores, -np.inf)
            best = scores >= scores.max(axis=1, keepdims=True) - 1e-9
            return _draw(best / best.sum(axis=1, keepdims=True), keys)

        return choose

    def _doubting(self, model: Believed) -> Any:
        """What is not known; else any choice now and then, and mostly what looks good."""
        s, amounts = self.settings, model.beliefs.plan.game.amounts
        scale = s.temperature * max(float(np.ptp(amounts)), 1e-9)

        def choose(
            situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
        ) -> list[tuple[int, float]]:
            scores = np.where(allowed, model.scores(situations, allowed), -np.inf)
            chances = np.exp((scores - scores.max(axis=1, keepdims=True)) / scale)
            chances /= chances.sum(axis=1, keepdims=True)
            free = allowed / allowed.sum(axis=1, keepdims=True)
            chances = (1 - s.random) * chances + s.random * free
            unknown = allowed & (scores <= NEVER)
            some = unknown.any(axis=1)
            chances[some] = unknown[some] / unknown[some].sum(axis=1, keepdims=True)
            return _draw(chances, keys)

        return choose

    # ------------------------------------------------------------------ saved state

    def save(self) -> Saved:
        """All that was seen, and what the next fit goes on from; plans follow from it."""
        if self._seen is None:
            return Saved()
        seen, hidden = self._seen.save(), self._believer.save()
        arrays = {**seen.arrays, **{HIDDEN + name: one for name, one in hidden.arrays.items()}}
        return Saved(arrays, {"seen": seen.data, "hidden": hidden.data})

    def load(self, saved: Saved) -> None:
        """Take over what was seen."""
        self._hopes, self._seen = None, None
        if not saved.arrays:
            return
        data: Any = saved.data
        hidden = {
            name.removeprefix(HIDDEN): one
            for name, one in saved.arrays.items()
            if name.startswith(HIDDEN)
        }
        self._seen = Seen.load(Saved(saved.arrays, data["seen"]))
        self._believer.load(Saved(hidden, data["hidden"]))


def _draw(chances: Floats, keys: Sequence[Key]) -> list[tuple[int, float]]:
    """A choice for each row of chances, and its chance."""
    below = chances.cumsum(axis=1)
    result = []
    for row, sums, key in zip(chances, below, keys, strict=True):
        place = int(np.searchsorted(sums, key.uniform() * sums[-1], "right"))
        place = min(place, int(np.flatnonzero(row)[-1]))
        result.append((place, float(row[place])))
    return result


def _metrics(
    seen: Seen, model: Dynamics, hopes: Floats, means: Floats, known: float
) -> dict[str, float]:
    """What is planned, and how much is known.

    `planned` is what the plan expects of an episode, `ceiling` what may be hoped for at best.
    """
    moves = np.array(seen.moves, np.int64)
    start = model.states.of[moves[moves[:, 1] == 0, 0]]
    tried = model.known >= known
    return {
        "planned": float(means[0, start].max(axis=1).mean()),
        "ceiling": float(hopes[0, start].max(axis=1).mean()),
        "states": float(model.states.count),
        "known": float(tried[model.states.allowed.any(axis=0)].mean()),
    }


def add(seen: Seen, policy: ValuePolicy, experience: Experience[Taken]) -> None:
    """Write an episode down as what was shown and done."""
    taken = experience.taken
    allowed = np.array([one.allowed for one in taken])
    situations = [one.situation for one in taken]
    shown = show(situations, allowed, policy.choices)
    episode = experience.episode
    end = Situation(taken[-1].situation.problem, episode.trajectory, episode.observation)
    last = show([end], policy.allowed([end]), policy.choices)[0]
    rewards = [*experience.rewards[:-1], experience.rewards[-1] - experience.outcome]
    seen.add(shown, [one.choice for one in taken], rewards, last, experience.outcome)
