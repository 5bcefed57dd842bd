"""The trainer `fitted-q` at work, and the model that it installs.

Read `FittedLearner.iterate` first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from orchestrion import (
    JSON,
    CheckpointError,
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
from orchestrion_values.arrays import Floats, Mask, pack, under, unpack
from orchestrion_values.ensemble import Fitted
from orchestrion_values.estimates import VARIANCES, Estimates
from orchestrion_values.fitted import fit
from orchestrion_values.fitted_q import batches
from orchestrion_values.learner import LONGEST, ValueLearner, probing
from orchestrion_values.planned import TranscriptModel, played_of
from orchestrion_values.policy import Exploring, RecordedChoice, ValuePolicy
from orchestrion_values.threads import serial
from orchestrion_values.transcripts import Played
from orchestrion_values.transitions import Transitions

if TYPE_CHECKING:
    from orchestrion_values.fitted_q import FittedQ

FINISHING, DECIDING = 0.3, 300
"""The last share of the episodes, and the most of them, compare the values with the plan."""
HORIZON = 24
"""The most turns that a plan looks ahead."""
PLAN, VALUES = "plan", "values"


@frozen(eq=False)
class FittedModel:
    """The model that the trainer `fitted-q` installs.

    Args:
        fitted: the ensemble.
        policy: its encoders are used.
        caution: values are lowered by so many standard deviations of the members.
        plan: scores choices instead where it proved better than the values.
    """

    fitted: Fitted
    policy: ValuePolicy
    caution: float = 0.0
    plan: TranscriptModel | None = None

    name = "fitted-q"

    def members(self, situations: Sequence[Situation]) -> Floats:
        """Return the values by each member of the ensemble [m, n, k]; the first is the mean."""
        encoded = self.policy.encode(situations)
        places = {name: i for i, name in enumerate(self.fitted.categories)}
        category = [places.get(situation.problem.category, -1) for situation in situations]
        return self.fitted.values(encoded.context, encoded.choices, np.array(category, np.int64))

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """Return the values of the plan, or the cautious mean."""
        if self.plan is not None:
            return self.plan.scores(situations, allowed)
        values = self.members(situations)
        result: Floats = values[0]
        if self.caution:
            result = result - self.caution * values[1:].std(axis=0)
        return result

    @property
    def learned(self) -> dict[str, JSON]:
        """Return the words of replies that the plan reacts to, by agent."""
        cues = {} if self.plan is None else self.plan.cues
        words = {
            agent: [word for cue in part for word in cue.words] for agent, part in cues.items()
        }
        return {"words": words} if words else {}

    def save(self) -> Saved:
        arrays, data = self.fitted.save()
        planned, plan = ({}, None) if self.plan is None else self.plan.save()
        arrays |= {PLANNED + name: array for name, array in planned.items()}
        return Saved(pack(arrays), {**data, "caution": self.caution, "plan": plan})

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> FittedModel:
        data: Any = saved.data
        if data.get("plans") or "words" in (data.get("plan") or {}):
            raise CheckpointError(
                "the policy was trained by an earlier version of `fitted-q`, and follows plans "
                "that this one does not know; train anew"
            )
        arrays: Mapping[str, Any] = unpack(saved.arrays)
        plan = None
        if data.get("plan") is not None:
            plan = TranscriptModel.load(under(arrays, PLANNED), data["plan"], policy)
        return cls(Fitted.load(arrays, data), policy, data["caution"], plan)


PLANNED = "plan/"
"""Prefix of the names of the plan's arrays."""


class FittedLearner(ValueLearner):
    """Trains the policy `values`; its state is every decision and what is kept of every episode."""

    name = "fitted-q"

    def __init__(self, settings: FittedQ, ctx: OpenContext) -> None:
        self._finishing = int(min(DECIDING, FINISHING * settings.episodes))
        super().__init__(ctx, batches(settings.episodes, self._finishing))
        self.settings, self._write_note = settings, ctx.note
        self._data: Transitions | None = None
        self._played: list[Played] = []
        self._seen = 0
        self._variances: Mapping[str, float] = VARIANCES
        self._latest: Estimates | None = None
        self._compared: dict[str, list[float]] = {PLAN: [], VALUES: []}
        """Rewards of the episodes that compare the plan and the values."""

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Play episodes by members of the ensemble and by plans, then fit on all episodes."""
        self.check(session)
        policy: ValuePolicy = session.policy
        if self.settings.runs and self._data is None:
            await self._learn_from_runs(policy)
        problems = self.problems(session, self._seen, self.sizes[i])
        keys = [session.key.child("episode", n) for n in range(len(problems))]
        model = policy.model
        if not isinstance(model, FittedModel) or (self.settings.plans and not self._played):
            jobs = self.jobs(session, problems, probing(policy, self.turns))
            return self.absorb(await session.rollout(jobs), session)
        compares = self._compares and sum(self.sizes[i:]) <= self._finishing
        if compares:  # both on the same problems, with the same keys
            leaders = [(VALUES, PLAN)[n % 2] for n in range(len(problems))]
            half = [n // 2 for n in range(len(problems))]
            problems, keys = [problems[n] for n in half], [keys[n] for n in half]
        else:
            leaders = self._leaders(len(problems))
        explorers = self._explorers(policy, model, leaders, keys, draws=not compares)
        jobs = list(map(Job, problems, keys, explorers))
        return self.absorb(await session.rollout(jobs), session, leaders if compares else ())

    @serial()
    def absorb(
        self, episodes: Sequence[Episode], session: Session, compared: Sequence[str] = ()
    ) -> Metrics:
        """Learn from episodes, whoever ran them, and install the fitted model.

        Args:
            episodes: any number of them.
            session: its policy is trained.
            compared: whether each followed `PLAN` or `VALUES`, if they compare both.
        """
        policy: ValuePolicy = session.policy
        self._seen += len(episodes)
        totals = [None if e.reward is None else e.reward.total for e in episodes]
        lowest = min((total for total in totals if total is not None), default=0.0)
        for leader, total in zip(compared, totals, strict=False):
            self._compared[leader].append(lowest if total is None else total)
        experiences = gather(episodes, RecordedChoice)
        self._add(policy, experiences)
        metrics = {"excluded": float(len(episodes) - len(experiences))}
        if self._data is None:
            return metrics
        model = policy.model = self._fitted(policy)
        trees = model.fitted.trees.weight if model.fitted.trees is not None else 0.0
        planned = float(model.plan is not None)
        return {
            **metrics,
            "value_error": model.fitted.lost,
            "tree_weight": trees,
            "planned": planned,
        }

    @serial()
    def _fitted(self, policy: ValuePolicy) -> FittedModel:
        """Fit on all decisions; adopt the plan if it did better than the mean, and was played."""
        assert self._data is not None
        s, seed = self.settings, self.key.child("fit", len(self._data)).integer()
        # Without anything to tell situations apart, plans decide: no time for trees.
        trees = s.trees if self._tells_apart else 0
        model = FittedModel(
            fit(self._data, seed, members=s.members, trees=trees), policy, s.caution
        )
        if not s.plans or not self._played:
            return model
        means = [sum(part) / max(1, len(part)) for part in self._compared.values()]
        compared = all(self._compared.values())
        estimates = self._estimates(policy)
        if compared and means[0] < means[1]:
            return model
        plan = TranscriptModel(estimates.tables(), estimates.cues, policy, self._most)
        before = policy.model.plan if isinstance(policy.model, FittedModel) else None
        # A plan knows no blocked choices: where there are any, no episode may go like it.
        comparable = bool(self._data.allowed.all())
        if before is not None and comparable and not plan.proved(self._played):
            plan = before
        return evolve(model, plan=plan)

    def _add(self, policy: ValuePolicy, experiences: Sequence[Experience[RecordedChoice]]) -> None:
        new = Transitions.of(policy, experiences)
        if new is not None:
            self._data = new if self._data is None else self._data.joined(new)
        if self.settings.plans:
            self._played += [played_of(policy, experience) for experience in experiences]
            self._latest = None

    async def _learn_from_runs(self, policy: ValuePolicy) -> None:
        """Learn from episodes of other runs."""
        from orchestrion_values.earlier import of_run

        notes = []
        for run in self.settings.runs:
            episodes, lost = await of_run(run, policy, f"{self.path}.runs")
            notes += [f"{run}: learned from {len(episodes)} episodes", *lost]
            self._add(policy, gather(episodes, RecordedChoice))
        self._write_note("runs", "; ".join(notes))
        if self._data is not None:
            policy.model = self._fitted(policy)

    @property
    def _tells_apart(self) -> bool:
        """Return whether values can react to anything; else they need not be tried."""
        return self._data is None or self._data.tells_apart

    @property
    def _compares(self) -> bool:
        return bool(self.settings.plans) and self._tells_apart

    @property
    def _most(self) -> int:
        return min(self.turns or LONGEST, HORIZON)

    def _estimates(self, policy: ValuePolicy) -> Estimates:
        """Return the estimates from all episodes, which are kept until there are more."""
        if self._latest is None:
            agents = ["" if choice is None else choice.agent for choice in policy.choices]
            self._latest = Estimates(self._played, agents, self._variances)
            self._variances = self._latest.variances
        return self._latest

    def _leaders(self, count: int) -> list[str]:
        """Return for each episode whether it follows a plan or the values."""
        share = self.settings.plans
        if share and not self._tells_apart:
            share = 1.0
        # Counted over all batches, or small ones would have no share.
        done = [int((self._seen + n) * share) for n in range(count + 1)]
        return [PLAN if done[n + 1] > done[n] else VALUES for n in range(count)]

    @serial()
    def _explorers(
        self,
        policy: ValuePolicy,
        model: FittedModel,
        leaders: Sequence[str],
        keys: Sequence[Key],
        draws: bool,
    ) -> list[Exploring]:
        """Return who leads each episode: a drawn plan or member, or the plan and the mean."""
        estimates = self._estimates(policy) if PLAN in leaders else None
        followed: dict[int, Exploring] = {}
        result = []
        for leader, key in zip(leaders, keys, strict=True):
            if leader == PLAN:
                assert estimates is not None
                seed = key.child("model").integer()
                random = np.random.Generator(np.random.PCG64(seed)) if draws else None
                tables = estimates.tables(random)
                plan = TranscriptModel(tables, estimates.cues, policy, self._most)
                result.append(_planning(policy, plan))
                continue
            member = 0
            if draws:
                member = 1 + int(key.child("member").uniform() * self.settings.members)
            if member not in followed:
                followed[member] = _following(model, member)
            result.append(followed[member])
        return result

    # ------------------------------------------------------------------ state

    def save(self) -> Saved:
        played: Any = [list(episode) for episode in self._played]
        rest = {"seen": self._seen, "played": played, "variances": dict(self._variances)}
        rest["compared"] = self._compared
        if self._data is None:
            return Saved(data=rest)
        arrays, data = self._data.save()
        return Saved(pack(arrays), {**data, **rest})

    def load(self, saved: Saved) -> None:
        data: Any = saved.data
        if "tried" in data:
            raise CheckpointError(
                f"{self.path}: the run was begun by an earlier version of `fitted-q`; begin anew"
            )
        self._seen, self._latest = data["seen"], None
        self._compared = {leader: list(rewards) for leader, rewards in data["compared"].items()}
        self._played = [Played(*episode) for episode in data["played"]]
        self._variances = dict(data["variances"])
        self._data = Transitions.load(unpack(saved.arrays), data) if saved.arrays else None


def _planning(policy: ValuePolicy, plan: TranscriptModel) -> Exploring:
    """Return an explorer that follows a plan."""

    def choose(
        situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
    ) -> list[tuple[int, float]]:
        scores = np.where(allowed, plan.scores(situations, allowed), -np.inf)
        return [(int(place), 1.0) for place in scores.argmax(axis=1)]

    return Exploring(policy, choose)


def _following(model: FittedModel, member: int) -> Exploring:
    """Return an explorer that follows a member of the ensemble; 0 is the mean.

    The share of members that agree is recorded as the probability.
    """

    def choose(
        situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
    ) -> list[tuple[int, float]]:
        values = np.where(allowed, model.members(situations), -np.inf)
        best = values.argmax(axis=2)  # [m, n]
        agree = (best[1:] == best[member]).mean(axis=0) if member else np.ones(best.shape[1])
        return [(int(place), float(p)) for place, p in zip(best[member], agree, strict=True)]

    return Exploring(model.policy, choose)
