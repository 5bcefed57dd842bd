"""The trainer `optimistic` at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrion import (
    Episode,
    Job,
    Key,
    Metrics,
    OpenContext,
    Plan,
    Problem,
    Saved,
    Session,
    Situation,
    Split,
    UsageError,
)
from orchestrion_values.experience import Experience, gather
from orchestrion_values.optimism.dynamics import Dynamics, learn
from orchestrion_values.optimism.planned import Planned, show
from orchestrion_values.optimism.planning import optimistic, plain
from orchestrion_values.optimism.seen import Floats, Mask, Seen
from orchestrion_values.optimism.states import States
from orchestrion_values.policy import Exploring, ValuePolicy

if TYPE_CHECKING:
    from orchestrion_values.optimistic import Optimistic

__all__ = ["Learner"]


class Learner:
    """Trains the session's policy; its state is all that was seen."""

    def __init__(self, settings: Optimistic, ctx: OpenContext) -> None:
        self.settings, self._path, self._key = settings, ctx.path, ctx.key
        self._seen: Seen | None = None
        self._hopes: Planned | None = None
        """The optimistic plan; made when it is needed."""

    @property
    def iterations(self) -> int:
        """See `Optimistic`."""
        return self.settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """See `Optimistic`."""
        return self.settings.plan(i, sizes, turns)

    def check(self, session: Session) -> None:
        """Refuse every policy but `values`."""
        if not isinstance(session.policy, ValuePolicy):
            raise UsageError(f"{self._path}: the trainer optimistic trains the policy values")
        if not session.problems("train"):
            raise UsageError(f"{self._path}: the task has no training problems")

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Follow the optimistic plan, then plan anew."""
        self.check(session)
        policy: ValuePolicy = session.policy
        seen = self._seen = self._seen or Seen(len(policy.choices))
        if self._hopes is None and seen.moves:
            self._think(policy)
        exploring = Exploring(policy, self._explorer(policy))
        sizes = self.settings.sizes
        problems = self._problems(session.problems("train"), sum(sizes[:i]), sizes[i])
        jobs = [
            Job(problem, session.key.child("episode", n), exploring)
            for n, problem in enumerate(problems)
        ]
        return self.absorb(await session.rollout(jobs), session)

    def absorb(self, episodes: Sequence[Episode], session: Session) -> Metrics:
        """Take some episodes in, whoever ran them, and plan anew."""
        policy: ValuePolicy = session.policy
        self._seen = self._seen or Seen(len(policy.choices))
        experiences = gather(episodes)
        for experience in experiences:
            self._add(policy, experience)
        if not self._seen.moves:
            return {"excluded": float(len(episodes))}
        metrics = self._think(policy)
        return {"excluded": float(len(episodes) - len(experiences)), **metrics}

    def _problems(self, problems: Sequence[Problem], first: int, count: int) -> list[Problem]:
        """The next ones; all take turns, in another order each time round."""
        result: list[Problem] = []
        rounds: dict[int, list[Problem]] = {}
        for n in range(first, first + count):
            turn, place = divmod(n, len(problems))
            if turn not in rounds:
                rounds[turn] = list(problems)
                self._key.child("order", turn).random().shuffle(rounds[turn])
            result.append(rounds[turn][place])
        return result

    def _add(self, policy: ValuePolicy, experience: Experience) -> None:
        assert self._seen is not None
        taken = experience.taken
        allowed = np.array([one.allowed for one in taken])
        situations = [one.situation for one in taken]
        shown = show(situations, allowed, policy.choices)
        episode = experience.episode
        end = Situation(taken[-1].situation.problem, episode.trajectory, episode.observation)
        last = show([end], policy.allowed([end]), policy.choices)[0]
        rewards = [*experience.rewards[:-1], experience.rewards[-1] - experience.outcome]
        self._seen.add(shown, [one.choice for one in taken], rewards, last, experience.outcome)

    def _think(self, policy: ValuePolicy) -> dict[str, float]:
        """Learn from everything, plan, and hand the plain plan to the policy."""
        assert self._seen is not None
        s, seen = self.settings, self._seen
        seed = self._key.child("trees", seen.episodes).integer() % 2**31
        model = learn(seen, States(seen, s.levels), seed, s.best)
        lookup = model.states.lookup
        hopes, means = optimistic(model, s.known, s.bonus), plain(model)
        self._hopes = Planned(lookup, hopes, policy.choices)
        policy.model = Planned(lookup, means, policy.choices)
        return _metrics(seen, model, hopes, means, s.known)

    def _explorer(self, policy: ValuePolicy) -> Any:
        """Takes one of what looks best by the optimistic plan."""
        hopes = self._hopes

        def choose(
            situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
        ) -> list[tuple[int, float]]:
            scores = np.zeros(allowed.shape)
            if hopes is not None:
                scores = np.asarray(hopes.scores(situations, allowed))
                # Later than anybody has ever been, nothing is known.
                late = [len(one.trajectory) >= len(hopes.values) for one in situations]
                scores[late] = 0.0
            scores = np.where(allowed, scores, -np.inf)
            result = []
            for row, key in zip(scores, keys, strict=True):
                best = np.flatnonzero(row >= row.max() - 1e-9)
                result.append((int(best[int(key.uniform() * len(best))]), 1.0 / len(best)))
            return result

        return choose

    # ------------------------------------------------------------------ saved state

    def save(self) -> Saved:
        """All that was seen; the plans follow from it."""
        return Saved() if self._seen is None else self._seen.save()

    def load(self, saved: Saved) -> None:
        """Take over what was seen."""
        self._hopes = None
        self._seen = Seen.load(saved) if saved.arrays else None


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
