"""The trainer `optimistic` at work, and the models that it installs: plans over states or beliefs.

Read `Learner.iterate` first. Source and deviations: see `orchestrion_values.optimistic`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from orchestrion_encoders.interfaces import Choice, places_of

from orchestrion import (
    Episode,
    Experience,
    Metrics,
    OpenContext,
    RunError,
    Saved,
    Session,
    Situation,
    UsageError,
    gather,
)
from orchestrion_values.arrays import Floats, Mask, pack, under, unpack
from orchestrion_values.learner import ValueLearner
from orchestrion_values.optimism.beliefs import Beliefs, Believer
from orchestrion_values.optimism.dynamics import learn, optimistic, plain
from orchestrion_values.optimism.states import Lookup, ObservedState, StateMoves, States
from orchestrion_values.policy import RecordedChoice, ValuePolicy, sampling
from orchestrion_values.threads import serial

if TYPE_CHECKING:
    from orchestrion_values.optimistic import Optimistic

NEVER = -1e9
"""The value of choices that a plan does not know: finite, so allowed ones rank first."""


def show(
    situations: Sequence[Situation], allowed: Mask, choices: Sequence[Choice]
) -> list[ObservedState]:
    """Return what tells situations apart: the numbers that the task shows.

    If it shows none, these are the counts of each choice so far.

    Raises:
        RunError: a number is not finite.
    """
    shown = [
        ObservedState(situation.problem.category, _features(situation, choices), tuple(row))
        for situation, row in zip(situations, allowed.tolist(), strict=True)
    ]
    if not all(math.isfinite(number) for row in shown for number in row.features):
        raise RunError("trainer optimistic: the task shows numbers that are not finite")
    return shown


def _features(situation: Situation, choices: Sequence[Choice]) -> tuple[float, ...]:
    shown = situation.observation
    if shown is not None and (shown.features or shown.progress is not None):
        return (*shown.features, 0.0 if shown.progress is None else shown.progress)
    made = [(turn.agent, turn.option) for turn in situation.trajectory.turns]
    return tuple(float(made.count(choice)) for choice in places_of(choices))


class Planned:
    """Scores choices by a plan over states.

    Args:
        lookup: maps what is shown to its state.
        values: of choices, by decision number and state [t, s, k].
        choices: of the policy [k].
    """

    name = "optimistic-states"

    def __init__(self, lookup: Lookup, values: Floats, choices: Sequence[Choice]) -> None:
        self.lookup, self.choices = lookup, choices
        self.values = np.maximum(values, NEVER)

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """Return the values; after the last decision number of the plan, the values of that one."""
        states = self.lookup.find(show(situations, allowed, self.choices))
        when = [min(len(situation.trajectory), len(self.values) - 1) for situation in situations]
        result: Floats = self.values[when, states]
        return result

    def save(self) -> Saved:
        find = self.lookup
        arrays = {
            "kept": find.kept,
            "cuts": np.concatenate([np.zeros(0), *find.cuts]),
            "codes": find.codes,
            "values": self.values,
        }
        sizes = [len(cuts) for cuts in find.cuts]
        return Saved(pack(arrays), {"categories": find.categories, "sizes": sizes})

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> Planned:
        data: Any = saved.data
        arrays = unpack(saved.arrays)
        ends = np.cumsum(data["sizes"], dtype=np.int64)[:-1]
        cuts = np.split(arrays["cuts"], ends) if data["sizes"] else []
        lookup = Lookup(data["categories"], arrays["kept"], cuts, arrays["codes"])
        return cls(lookup, arrays["values"], policy.choices)


class Believed:
    """Scores choices by a plan over beliefs.

    Args:
        beliefs: the plan.
        choices: of the policy [k].
    """

    name = "optimistic-beliefs"

    def __init__(self, beliefs: Beliefs, choices: Sequence[Choice]) -> None:
        self.beliefs, self.choices = beliefs, choices
        self._places = places_of(choices)
        modes = beliefs.plan.game.modes.tolist()
        self._modes = {tuple(mode): i for i, mode in enumerate(modes)}

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """Return the values; choices that the plan does not know get the lowest."""
        rows = [
            self._score(shown, situation)
            for shown, situation in zip(
                show(situations, allowed, self.choices), situations, strict=True
            )
        ]
        return np.maximum(np.array(rows), NEVER)

    def _score(self, shown: ObservedState, situation: Situation) -> Floats:
        made = [
            place
            for turn in situation.trajectory.turns
            if (place := self._places.get((turn.agent, turn.option))) is not None
        ]
        belief = self.beliefs.belief(shown.category, shown.features, made)
        mode = self._modes.get(shown.allowed)
        if mode is None:
            return np.full(len(shown.allowed), NEVER)
        values: Floats = self.beliefs.plan.values(belief[None], (len(made), mode))[0]
        return values

    def save(self) -> Saved:
        return self.beliefs.save()

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> Believed:
        return cls(Beliefs.load(saved), policy.choices)


HIDDEN = "hidden/"
"""Prefix of the names of the hidden-state model's arrays."""


class Learner(ValueLearner):
    """Trains the policy `values`; its state is everything that was seen."""

    name = "optimistic"

    def __init__(self, settings: Optimistic, ctx: OpenContext) -> None:
        super().__init__(ctx, settings.sizes)
        self.settings = settings
        self._seen: StateMoves | None = None
        self._hopes: Planned | None = None
        """The optimistic plan over states; None until it is needed."""
        self._believer = Believer(settings.hidden_states, settings.tries)

    def check(self, session: Session) -> None:
        """Refuse encoders as well: states are what the task shows."""
        super().check(session)
        if session.policy.own_encoders:
            raise UsageError(
                f"{self.path}: optimistic reads what the task shows, and no `encoders` of the "
                "policy; remove them, or use `fitted-q`, which reads them"
            )

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Play episodes by the optimistic plan, then plan again."""
        self.check(session)
        policy: ValuePolicy = session.policy
        seen = self._seen
        if seen and seen.moves and self._hopes is None and not isinstance(policy.model, Believed):
            self._plan(policy, seen)
        exploring = sampling(policy, self._explorer(policy))
        problems = self.problems(session, sum(self.sizes[:i]), self.sizes[i])
        jobs = self.jobs(session, problems, exploring)
        return self.absorb(await session.rollout(jobs), session)

    @serial()
    def absorb(self, episodes: Sequence[Episode], session: Session) -> Metrics:
        """Learn from episodes, whoever ran them, and install a new plan."""
        policy: ValuePolicy = session.policy
        seen = self._seen = self._seen or StateMoves(len(policy.choices))
        experiences = gather(episodes, RecordedChoice)
        for experience in experiences:
            add(seen, policy, experience)
        excluded = {"excluded": float(len(episodes) - len(experiences))}
        if not seen.moves:
            return excluded
        beliefs = self._believer.think(seen, self._seed(seen))
        if beliefs is None:
            return {**excluded, **self._plan(policy, seen)}
        self._hopes = None
        policy.model = Believed(beliefs, policy.choices)
        return {**excluded, "hidden": float(self.settings.hidden_states)}

    def _seed(self, seen: StateMoves) -> int:
        return self.key.child("fit", seen.episodes).integer() % 2**31

    @serial()
    def _plan(self, policy: ValuePolicy, seen: StateMoves) -> dict[str, float]:
        """Plan over states; install the plan by means; return metrics."""
        s = self.settings
        model = learn(seen, States(seen, s.levels), self._seed(seen), s.best)
        lookup = model.states.lookup
        hopes, means = optimistic(model, s.known, s.bonus), plain(model)
        self._hopes = Planned(lookup, hopes, policy.choices)
        policy.model = Planned(lookup, means, policy.choices)
        moves = np.array(seen.moves, np.int64)
        start = model.states.of[moves[moves[:, 1] == 0, 0]]
        tried = model.known >= s.known
        return {
            "planned": float(means[0, start].max(axis=1).mean()),
            "ceiling": float(hopes[0, start].max(axis=1).mean()),
            "states": float(model.states.count),
            "known": float(tried[model.states.allowed.any(axis=0)].mean()),
        }

    def _explorer(self, policy: ValuePolicy) -> Any:
        """Return the chances of choices in training, by the plan that there is."""
        if isinstance(policy.model, Believed):
            return self._by_beliefs(policy.model)
        hopes = self._hopes

        # Equal for the best by the optimistic plan; for all before there is one.
        def chances(situations: Sequence[Situation], allowed: Mask) -> Floats:
            scores = np.zeros(allowed.shape)
            if hopes is not None:
                scores = np.asarray(hopes.scores(situations, allowed))
                # The plan knows nothing of decisions later than any that was seen.
                scores[[len(s.trajectory) >= len(hopes.values) for s in situations]] = 0.0
            scores = np.where(allowed, scores, -np.inf)
            best = scores >= scores.max(axis=1, keepdims=True) - 1e-9
            result: Floats = best / best.sum(axis=1, keepdims=True)
            return result

        return chances

    def _by_beliefs(self, model: Believed) -> Any:
        """Return chances: unknown choices first; else softmax of the values and uniform, mixed."""
        s, amounts = self.settings, model.beliefs.plan.game.amounts
        scale = s.temperature * max(float(np.ptp(amounts)), 1e-9)

        def chances(situations: Sequence[Situation], allowed: Mask) -> Floats:
            scores = np.where(allowed, model.scores(situations, allowed), -np.inf)
            result: Floats = np.exp((scores - scores.max(axis=1, keepdims=True)) / scale)
            result /= result.sum(axis=1, keepdims=True)
            uniform = allowed / allowed.sum(axis=1, keepdims=True)
            result = (1 - s.random) * result + s.random * uniform
            unknown = allowed & (scores <= NEVER)
            some = unknown.any(axis=1)
            result[some] = unknown[some] / unknown[some].sum(axis=1, keepdims=True)
            return result

        return chances

    # ------------------------------------------------------------------ saved state

    def save(self) -> Saved:
        """Return everything seen, and where the next fit starts; plans follow from these."""
        if self._seen is None:
            return Saved()
        seen, hidden = self._seen.save(), self._believer.save()
        arrays = {**seen.arrays, **{HIDDEN + name: array for name, array in hidden.arrays.items()}}
        return Saved(arrays, {"seen": seen.data, "hidden": hidden.data})

    def load(self, saved: Saved) -> None:
        self._hopes, self._seen = None, None
        if not saved.arrays:
            return
        data: Any = saved.data
        self._seen = StateMoves.load(Saved(saved.arrays, data["seen"]))
        self._believer.load(Saved(under(saved.arrays, HIDDEN), data["hidden"]))


def add(seen: StateMoves, policy: ValuePolicy, experience: Experience[RecordedChoice]) -> None:
    """Add an episode to what was seen."""
    taken = experience.taken
    allowed = np.array([step.allowed for step in taken])
    situations = [step.situation for step in taken]
    shown = show(situations, allowed, policy.choices)
    episode = experience.episode
    end = Situation(taken[-1].situation.problem, episode.trajectory, episode.observation)
    last = show([end], policy.allowed([end]), policy.choices)[0]
    rewards = [*experience.rewards[:-1], experience.rewards[-1] - experience.outcome]
    seen.add(shown, [step.choice for step in taken], rewards, last, experience.outcome)
