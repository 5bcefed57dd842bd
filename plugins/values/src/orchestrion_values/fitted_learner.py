"""The trainer `fitted-q` at work, and the model that it installs.

Read `FittedLearner.iterate` first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import Factory, frozen

from orchestrion import (
    JSON,
    Episode,
    Experience,
    Job,
    Key,
    Metrics,
    OpenContext,
    Problem,
    Saved,
    Session,
    Situation,
    gather,
)
from orchestrion_values.arrays import Floats, Mask, pack, unpack
from orchestrion_values.ensemble import Fitted
from orchestrion_values.fitted import fit
from orchestrion_values.fitted_q import batches
from orchestrion_values.learner import ValueLearner, probing
from orchestrion_values.plans import LEARNED, LONGEST, Arm, ArmEpisode, Process, next_of
from orchestrion_values.policy import Exploring, RecordedChoice, ValuePolicy
from orchestrion_values.threads import serial
from orchestrion_values.transitions import Transitions

if TYPE_CHECKING:
    from orchestrion_values.fitted_q import FittedQ

FINISHING, DECIDING = 0.3, 300
"""The last share of the episodes, and the most of them, compare the values with sequences.

The beliefs on sequences take the cube of the number of episodes that followed some.
"""
RIVALS = 2
"""The number of compared sequences; they run on the same problems and keys as the mean."""
ALONE, ALONE_SHARE = 4, 0.3
"""Sequences of one choice come first: so often in each category, in this share of the episodes."""
ENOUGH = 200
"""After this many episodes with sequences, no more of them are tried."""


@frozen(eq=False)
class FittedModel:
    """The model that the trainer `fitted-q` installs.

    Args:
        fitted: the ensemble.
        policy: its encoders are used.
        caution: values are lowered by so many standard deviations of the members.
        plans: by category, a sequence to follow instead where it proved better than the values;
            that of None is for all other categories: the best one over those that were met.
    """

    fitted: Fitted
    policy: ValuePolicy
    caution: float = 0.0
    plans: Mapping[str | None, Arm] = Factory(dict)

    name = "fitted-q"

    def members(self, situations: Sequence[Situation]) -> Floats:
        """Return the values by each member of the ensemble [m, n, k]; the first is the mean."""
        encoded = self.policy.encode(situations)
        places = {name: i for i, name in enumerate(self.fitted.categories)}
        category = [places.get(situation.problem.category, -1) for situation in situations]
        return self.fitted.values(encoded.context, encoded.choices, np.array(category, np.int64))

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """Return the cautious mean; a planned choice has the highest score."""
        values = self.members(situations)
        result: Floats = values[0]
        if self.caution:
            result = result - self.caution * values[1:].std(axis=0)
        for row, situation in zip(result, situations, strict=True):
            category = situation.problem.category
            plan = self.plans.get(category if category in self.plans else None, LEARNED)
            place = None if plan == LEARNED else next_of(plan, self.policy, situation)
            if place is not None:
                row[place] = row.max() + 1.0
        return result

    @property
    def learned(self) -> dict[str, JSON]:
        """Return the sequences that are followed, by category; "" is for all other categories."""
        names = self.policy.names
        sequences: dict[str, JSON] = {
            category or "": [names[choice] for choice in plan]
            for category, plan in self.plans.items()
            if plan != LEARNED
        }
        return {"sequences": sequences} if sequences else {}

    def save(self) -> Saved:
        arrays, data = self.fitted.save()
        return Saved(
            pack(arrays), {**data, "caution": self.caution, "plans": list(self.plans.items())}
        )

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> FittedModel:
        data: Any = saved.data
        if "plans" not in data:  # saved before plans depended on the category
            data = {**data, "plans": [] if data["plan"] is None else [[None, data["plan"]]]}
        plans = {category: tuple(plan) for category, plan in data["plans"]}
        return cls(Fitted.load(unpack(saved.arrays), data), policy, data["caution"], plans)


class FittedLearner(ValueLearner):
    """Trains the policy `values`; its state is every decision and every tried sequence."""

    name = "fitted-q"

    def __init__(self, settings: FittedQ, ctx: OpenContext) -> None:
        super().__init__(ctx, batches(settings.episodes))
        self.settings, self._write_note = settings, ctx.note
        self._data: Transitions | None = None
        self._tried: list[ArmEpisode] = []
        self._seen = 0

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Play episodes by members of the ensemble and by sequences, then fit on all episodes."""
        self.check(session)
        policy: ValuePolicy = session.policy
        if self.settings.runs and self._data is None:
            await self._learn_from_runs(policy)
        problems = self.problems(session, self._seen, self.sizes[i])
        keys = [session.key.child("episode", n) for n in range(len(problems))]
        model = policy.model
        if not isinstance(model, FittedModel) or (self.settings.plans and not self._tried):
            jobs = self.jobs(session, problems, probing(policy, self.turns))
            return self.absorb(await session.rollout(jobs), session)
        finishing = min(DECIDING, FINISHING * self.settings.episodes)
        if self._tried and sum(self.sizes[i:]) <= finishing:
            problems, keys, arms = self._duels(policy, problems, keys)
        else:
            arms = self._arms(policy, problems, keys)
        explorers: dict[Arm | int, Exploring] = {}
        jobs = []
        for problem, key, arm in zip(problems, keys, arms, strict=True):
            member = 1 + int(key.child("member").uniform() * self.settings.members)
            leader: Arm | int = member if arm is None else 0 if arm == LEARNED else arm
            if leader not in explorers:
                explorers[leader] = _following(model, leader)
            jobs.append(Job(problem, key, explorers[leader]))
        return self.absorb(await session.rollout(jobs), session, arms)

    @serial()
    def absorb(
        self,
        episodes: Sequence[Episode],
        session: Session,
        arms: Sequence[Arm | None] | None = None,
    ) -> Metrics:
        """Learn from episodes, whoever ran them, and install the fitted model.

        Args:
            episodes: any number of them.
            session: its policy is trained.
            arms: the sequence that each followed, None for the values; by default its choices.
        """
        policy: ValuePolicy = session.policy
        self._seen += len(episodes)
        experiences = gather(episodes, RecordedChoice)
        self._note(policy, episodes, experiences, arms)
        self._add(policy, experiences)
        metrics = {"excluded": float(len(episodes) - len(experiences))}
        if self._data is None:
            return metrics
        model = policy.model = self._fitted(policy)
        trees = model.fitted.trees.weight if model.fitted.trees is not None else 0.0
        fixed = float(any(plan != LEARNED for plan in model.plans.values()))
        return {**metrics, "value_error": model.fitted.lost, "tree_weight": trees, "fixed": fixed}

    @serial()
    def _fitted(self, policy: ValuePolicy) -> FittedModel:
        """Fit on all decisions; adopt the best sequence if it did better than the mean."""
        assert self._data is not None
        s, seed = self.settings, self.key.child("fit", len(self._data)).integer()
        # Without anything to react to, sequences decide: no time for trees.
        trees = s.trees if self._reacts else 0
        fitted = fit(self._data, seed, members=s.members, trees=trees)
        plans: dict[str | None, Arm] = {}
        if self._tried and (not self._reacts or any(a.arm == LEARNED for a in self._tried)):
            process = self._process(policy)
            overall = process.seen().ranked
            plans = {None: overall[0]}
            met = dict.fromkeys(attempt.category for attempt in self._tried)
            if len(met) > 1:
                plans |= {name: process.seen(process.context(name)).best for name in met}
                # The values know nothing of a category that was never met.
                plans[None] = next((arm for arm in overall if arm != LEARNED), LEARNED)
        return FittedModel(fitted, policy, s.caution, plans)

    def _add(self, policy: ValuePolicy, experiences: Sequence[Experience[RecordedChoice]]) -> None:
        new = Transitions.of(policy, experiences)
        if new is not None:
            self._data = new if self._data is None else self._data.joined(new)

    async def _learn_from_runs(self, policy: ValuePolicy) -> None:
        """Learn from decisions of other runs, but not their sequences, which may be reactive."""
        from orchestrion_values.earlier import of_run

        notes = []
        for run in self.settings.runs:
            episodes, lost = await of_run(run, policy, f"{self.path}.runs")
            notes += [f"{run}: learned from {len(episodes)} episodes", *lost]
            self._add(policy, gather(episodes, RecordedChoice))
        self._write_note("runs", "; ".join(notes))
        if not self.settings.plans:
            policy.model = self._fitted(policy)

    def _note(
        self,
        policy: ValuePolicy,
        episodes: Sequence[Episode],
        experiences: Sequence[Experience[RecordedChoice]],
        arms: Sequence[Arm | None] | None,
    ) -> None:
        """Record which sequences were followed, and their rewards."""
        if not self.settings.plans:
            return
        followed = dict(zip(map(id, episodes), arms, strict=True)) if arms is not None else {}
        for experience in experiences:
            stop = policy.choices.index(None) if None in policy.choices else -1
            did = tuple(taken.choice for taken in experience.taken if taken.choice != stop)
            arm = followed.get(id(experience.episode), did)
            if arm is not None:
                problem, reward = experience.episode.problem, experience.returns[0]
                free = experience.rewards[:-1].count(0.0)
                paid = reward - experience.outcome
                attempt = ArmEpisode(arm, problem.id, reward, problem.category, free, paid)
                self._tried.append(attempt)

    @property
    def _reacts(self) -> bool:
        """Return whether a policy can react to anything; else the values need not be tried."""
        return self._data is None or self._data.tells_apart

    def _process(self, policy: ValuePolicy) -> Process:
        agents = sum(choice is not None for choice in policy.choices)
        return Process(self._tried, agents)

    @serial()
    def _duels(
        self, policy: ValuePolicy, problems: Sequence[Problem], keys: Sequence[Key]
    ) -> tuple[list[Problem], list[Key], list[Arm | None]]:
        """Return episodes in which the mean and the best sequences meet the same problems."""
        process, learned = self._process(policy), [LEARNED] if self._reacts else []
        rivals: dict[str | None, list[Arm]] = {}
        again: list[Problem] = []
        arms: list[Arm | None] = []
        for problem in problems:
            context = process.context(problem.category)
            if context not in rivals:
                best = [arm for arm in process.seen(context).ranked if arm != LEARNED]
                rivals[context] = [*learned, *best][: RIVALS + 1]
            again += [problem] * len(rivals[context])
            arms += rivals[context]
        meet, count = len(arms) // len(problems), len(problems)
        return again[:count], [keys[n // meet] for n in range(count)], arms[:count]

    @serial()
    def _arms(
        self, policy: ValuePolicy, problems: Sequence[Problem], keys: Sequence[Key]
    ) -> list[Arm | None]:
        """Return the sequence of each episode; None for a member of the ensemble."""
        result: list[Arm | None] = [None] * len(keys)
        share = self.settings.plans
        if share and not self._reacts:
            share = 1.0
        if not share or not self._tried or len(self._tried) >= ENOUGH:
            return result
        random = np.random.Generator(np.random.PCG64(keys[0].child("plans").integer()))
        process = self._process(policy)
        single = self._singles(process.choices, problems)
        longest = self.turns or LONGEST
        if None in policy.choices:  # at the limit it is too late to stop
            longest = max(1, longest - 1)
        contexts: dict[str | None, list[int]] = {}
        for n, problem in enumerate(problems):
            contexts.setdefault(process.context(problem.category), []).append(n)
        for context, places in contexts.items():
            new = process.promising(longest, context).draws(random, len(places))
            again = process.seen(context).draws(random, len(places))
            # Every second one was tried before, or nearly every episode would try a new one.
            for n, pair in zip(places, zip(new, again, strict=True), strict=True):
                # Counted over all batches, or small ones would have no share.
                before = int((self._seen + n) * share)
                if int((self._seen + n + 1) * share) > before:
                    result[n] = pair[before % 2] if single[n] is None else single[n]
        return result

    def _singles(self, choices: int, problems: Sequence[Problem]) -> list[Arm | None]:
        """Return for each problem a choice that was rarely made alone in its category, or None."""
        tried = Counter((attempt.category, attempt.arm) for attempt in self._tried)
        known = {attempt.category for attempt in self._tried}
        cells = choices * len(known.union(problem.category for problem in problems))
        enough = min(ALONE, int(ALONE_SHARE * self.settings.episodes / max(1, cells)))
        result: list[Arm | None] = []
        for problem in problems:
            rarest = min(
                ((c,) for c in range(choices)), key=lambda arm: tried[problem.category, arm]
            )
            rare = tried[problem.category, rarest] < enough
            tried[problem.category, rarest] += rare
            result.append(rarest if rare else None)
        return result

    # ------------------------------------------------------------------ state

    def save(self) -> Saved:
        tried = [[list(arm), *rest] for arm, *rest in self._tried]
        rest = {"seen": self._seen, "tried": tried}
        if self._data is None:
            return Saved(data=rest)
        arrays, data = self._data.save()
        return Saved(pack(arrays), {**data, **rest})

    def load(self, saved: Saved) -> None:
        data: Any = saved.data
        self._seen = data["seen"]
        self._tried = [ArmEpisode(tuple(arm), *rest) for arm, *rest in data["tried"]]
        self._data = Transitions.load(unpack(saved.arrays), data) if saved.arrays else None


def _following(model: FittedModel, leader: Arm | int) -> Exploring:
    """Return an explorer that follows a sequence, or a member of the ensemble (0 is the mean).

    The share of members that agree is recorded as the probability.
    """

    def choose(
        situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
    ) -> list[tuple[int, float]]:
        values = np.where(allowed, model.members(situations), -np.inf)
        best = values.argmax(axis=2)  # [m, n]
        if isinstance(leader, tuple):
            planned = [next_of(leader, model.policy, situation) for situation in situations]
            pairs = zip(planned, best[0], strict=True)
            return [(int(mean if place is None else place), 1.0) for place, mean in pairs]
        agree = (best[1:] == best[leader]).mean(axis=0) if leader else np.ones(best.shape[1])
        return [(int(place), float(p)) for place, p in zip(best[leader], agree, strict=True)]

    return Exploring(model.policy, choose)
