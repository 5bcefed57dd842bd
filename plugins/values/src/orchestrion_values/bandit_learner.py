"""The trainer `bandit` at work: which choice is tried next, and what is learned from it.

Read `BanditLearner.iterate` first. Source: `tries` (the values), and successive rejects (Audibert,
Bubeck, Munos 2010). Deviations:

1. Values are refitted after a batch of episodes instead of after each one.
2. Thompson sampling draws from the estimated probability that each choice is the best, over fixed
   draws, so that the probability of a decision is known and logged.
3. Each choice is first made alone in each category, and the episode ended. Choices that follow at
   random would hide what the first one is worth, and then it is never tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrion import (
    Episode,
    Job,
    Key,
    Metrics,
    OpenContext,
    Problem,
    Saved,
    Session,
    Situation,
    UsageError,
    gather,
    laps,
)
from orchestrion_values.arrays import Floats, Mask, pack, unpack
from orchestrion_values.bandit import batches
from orchestrion_values.bandit_model import BanditModel, BanditView, Neighbours
from orchestrion_values.learner import SHORT, ValueLearner
from orchestrion_values.policy import Exploring, RecordedChoice, ValuePolicy, sampling
from orchestrion_values.texts import fit_texts
from orchestrion_values.threads import serial
from orchestrion_values.tries import Tries, read_tries

if TYPE_CHECKING:
    from orchestrion_values.bandit import Bandit

DRAWS = 256
ALONE, ALONE_SHARE = 4, 0.3
"""How often each choice is made alone in each category, in at most this share of the episodes."""


class BanditLearner(ValueLearner):
    """Trains the policy `values`; its state is the sums over all tries."""

    name = "bandit"

    def __init__(self, settings: Bandit, ctx: OpenContext) -> None:
        super().__init__(ctx, batches(settings))
        self.settings = settings
        self.tries: Tries | None = None
        """Everything that was tried; `exported` returns it as JSON for another run's `start`."""
        self._played: dict[str, Floats] = {}
        """Sums of rewards and numbers of tries of each choice [2, k], by problem."""
        self._alone: Counter[tuple[str, int]] = Counter()
        """How often each choice was made alone, by category and place."""
        self._lowest: float | None = None
        self._seen = 0
        self._single = True
        """Whether every episode so far was one decision."""
        self._note, self._longest = ctx.note, 0

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Play episodes that try what may be best, then refit the values."""
        self.check(session)
        jobs = self._jobs(i, session, session.policy)
        return self.absorb(await session.rollout(jobs), session)

    @serial()
    def absorb(self, episodes: Sequence[Episode], session: Session) -> Metrics:
        """Learn from episodes, whoever ran them, and install the values."""
        policy: ValuePolicy = session.policy
        view = self._view(policy, session.problems("train"))
        self._seen += len(episodes)
        missing = self._learn(episodes, view)
        self._tell_of_length(episodes)
        model = self._model(view, session.problems("train"))
        if model is None:
            return {"missing": float(missing)}
        policy.model = model
        return {"missing": float(missing), "noise": model.posterior.noise}

    def _tell_of_length(self, episodes: Sequence[Episode]) -> None:
        """Note once that episodes are too long to do without a plan."""
        before = self._longest
        self._longest = max([before, *(len(episode.trajectory) for episode in episodes)])
        if before <= SHORT < self._longest:
            self._note(
                "steps",
                f"episodes have {self._longest} calls, and `bandit` plans none of them; "
                "`optimistic` or `fitted-q` may learn more here, and `auto` picks one",
            )

    # ------------------------------------------------------------------ what is tried

    @serial()
    def _jobs(self, i: int, session: Session, policy: ValuePolicy) -> list[Job]:
        problems = session.problems("train")
        forced: list[int] = []
        if self.settings.algorithm == "rejects":
            forced = np.flatnonzero(self._survivors(len(policy.choices))).tolist()
        elif self.settings.feedback == "full":
            forced = list(range(len(policy.choices)))
        alike = len(forced) or 1
        explorer = self.explorer(policy)
        begin, end = self._seen, self._seen + self.sizes[i]
        first = begin // alike
        order = laps(len(problems), self.key, first, (end - 1) // alike + 1 - first)
        alone = sampling(policy, _uniform(policy.ending))
        places = np.flatnonzero(~policy.ending).tolist()
        enough = 0 if forced else self._enough(len(places), problems)
        jobs = []
        for n in range(begin, end):
            problem = problems[order[n // alike - first]]
            if forced:
                way = _first(forced[n % alike], explorer)
            else:
                place = self._rare(problem.category, places, enough)
                way = explorer if place is None else _first(place, alone)
            jobs.append(Job(problem, session.key.child("episode", n), way))
        return jobs

    def _enough(self, choices: int, problems: Sequence[Problem]) -> int:
        """Return how often each choice is to be made alone in each category."""
        if self.settings.start is not None:
            return 0
        cells = choices * len({problem.category for problem in problems})
        return min(ALONE, int(ALONE_SHARE * self.settings.episodes / max(1, cells)))

    def _rare(self, category: str, places: Sequence[int], enough: int) -> int | None:
        """Return the choice that was made alone least often in a category; None if all were."""
        rarest = min(places, key=lambda place: self._alone[category, place], default=None)
        if rarest is None or self._alone[category, rarest] >= enough:
            return None
        self._alone[category, rarest] += 1
        return rarest

    def explorer(self, policy: ValuePolicy) -> Exploring:
        """Return the policy of training episodes."""
        model, s = policy.model, self.settings
        if s.algorithm == "rejects":
            return sampling(policy, _uniform(self._survivors(len(policy.choices))))
        if not isinstance(model, BanditModel) or not self._seen:
            return sampling(policy, _uniform(np.ones(len(policy.choices), np.bool_)))
        chances = _by_bound if s.algorithm == "linucb" else _by_chance
        return sampling(policy, chances(model, s.width))

    def _survivors(self, k: int) -> Mask:
        """Return which choices are not rejected [k]: in phase j of k - 1, the j worst ones are."""
        left = np.ones(k, np.bool_)
        if self.tries is None or k < 3:
            return left
        total, share = self.settings.episodes, 0.5 + sum(1 / j for j in range(2, k + 1))
        spent, before, out = 0, 0, 0
        for j in range(1, k - 1):
            each = ceil((total - k) / share / (k + 1 - j))
            spent, before = spent + max(0, each - before) * (k + 1 - j), each
            out += spent <= self._seen
        means = self.tries.rewards[:, 0] / np.maximum(self.tries.counts, 1)
        left[np.argsort(means, kind="stable")[:out]] = False
        return left

    # ------------------------------------------------------------------ what is learned

    def _view(self, policy: ValuePolicy, problems: Sequence[Problem]) -> BanditView:
        """Return what values are linear in; it is the same in every iteration."""
        model = policy.model
        if isinstance(model, BanditModel):
            return model.view
        s = self.settings
        texts = None
        if s.text:
            known = [problem.category if s.category != "hidden" else None for problem in problems]
            seed = self.key.child("texts").integer()
            texts = fit_texts([problem.text for problem in problems], known, seed)
        names = sorted({problem.category for problem in problems if problem.category})
        categories = tuple(names) if s.category != "hidden" and len(names) > 1 else ()
        return BanditView(policy, categories, s.category == "guessed", texts)

    def _learn(self, episodes: Sequence[Episode], view: BanditView) -> int:
        """Add the tries; return how many had no reward."""
        taken: list[RecordedChoice] = []
        returns: list[float] = []
        for experience in gather(episodes, RecordedChoice):
            taken += experience.taken
            returns += experience.returns
            self._single &= len(experience.taken) == 1
            total = experience.returns[0]
            self._lowest = total if self._lowest is None else min(self._lowest, total)
        lost = [
            decision.record
            for episode in episodes
            if episode.reward is None
            for decision in episode.decisions
            if isinstance(decision.record, RecordedChoice)
        ]
        taken += lost
        returns += [self._lowest or 0.0] * len(lost)
        if not taken:
            return 0
        numbers, columns = view.numbers([step.situation for step in taken])
        places = [step.choice for step in taken]
        if self.tries is None:
            self.tries = self._begin(view.policy, columns)
        self.tries = self.tries.tried(numbers[np.arange(len(places)), places], places, returns)
        k = len(view.policy.choices)
        for step, reward in zip(taken, returns, strict=True):
            table = self._played.setdefault(step.situation.problem.id, np.zeros((2, k)))
            table[:, step.choice] += reward, 1
        return len(lost)

    def _begin(self, policy: ValuePolicy, columns: Sequence[str]) -> Tries:
        tries = Tries.none(policy.names, columns)
        if (path := self.settings.start) is None:
            return tries
        try:
            return tries.merged(read_tries(path).capped(self.settings.cap))
        except UsageError as error:
            raise UsageError(f"{self.path}.start: {error}") from None

    def _model(self, view: BanditView, problems: Sequence[Problem]) -> BanditModel | None:
        posterior = self.tries.posterior() if self.tries is not None else None
        if posterior is None:
            return None
        near = None
        if view.texts is not None and self._single and self.settings.neighbours:
            played = [problem for problem in problems if problem.id in self._played]
            tables = np.array([self._played[problem.id] for problem in played])
            sums, counts = tables[:, 0], tables[:, 1]
            near = Neighbours(view.words(played), sums, counts, self.settings.neighbours)
        return BanditModel(view, posterior, near)

    # ------------------------------------------------------------------ state

    def save(self) -> Saved:
        data: dict[str, Any] = {
            "seen": self._seen,
            "lowest": self._lowest,
            "single": self._single,
            "problems": list(self._played),
            "alone": [[category, place, n] for (category, place), n in self._alone.items()],
            "names": None,
        }
        if (tries := self.tries) is None:
            return Saved(data=data)
        data |= {"names": list(tries.names), "columns": list(tries.columns)}
        arrays = {
            "squares": tries.squares,
            "rewards": tries.rewards,
            "spread": tries.spread,
            "played": np.array(list(self._played.values())),
        }
        return Saved(pack(arrays), data)

    def load(self, saved: Saved) -> None:
        data: Any = saved.data
        self._seen, self._lowest = data["seen"], data["lowest"]
        self._single = data["single"]
        alone = data.get("alone", ())  # older checkpoints have none
        self._alone = Counter({(category, place): n for category, place, n in alone})
        self.tries, self._played = None, {}
        if data["names"] is None:
            return
        arrays = unpack(saved.arrays)
        self.tries = Tries.of_state(arrays, data)
        self._played = dict(zip(data["problems"], arrays["played"], strict=True))


def _first(place: int, then: Exploring) -> Exploring:
    """Return an explorer that takes a given choice first if it is allowed, then as another one."""

    def choose(
        situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
    ) -> list[tuple[int, float]]:
        return [
            (place, 1.0)
            if not len(situation.trajectory) and row[place]
            else then.choose([situation], row[None], [key])[0]
            for situation, row, key in zip(situations, allowed, keys, strict=True)
        ]

    return Exploring(then.policy, choose)


def _uniform(among: Mask) -> Any:
    """Return equal chances for all of `among`; where none of them is allowed, for any other."""

    def chances(situations: Sequence[Situation], allowed: Mask) -> Floats:
        left = np.where((allowed & among).any(axis=1, keepdims=True), allowed & among, allowed)
        result: Floats = left / left.sum(axis=1, keepdims=True)
        return result

    return chances


def _by_bound(model: BanditModel, width: float) -> Any:
    """Return chances that are 1 for the highest upper confidence bound."""

    def chances(situations: Sequence[Situation], allowed: Mask) -> Floats:
        means, deviations = model.believed(situations)
        bounds = np.where(allowed, means + width * deviations, -np.inf)
        best: Floats = np.eye(allowed.shape[1])[bounds.argmax(axis=1)]
        return best

    return chances


def _by_chance(model: BanditModel, width: float) -> Any:
    """Return as chances how often each choice is best in `DRAWS` draws of all values (Thompson)."""
    quantile = NormalDist().inv_cdf
    uniforms = Key(0).child("bandit").uniforms(DRAWS * len(model.view.policy.choices))
    normal = np.array([quantile(min(max(u, 1e-9), 1 - 1e-9)) for u in uniforms])
    normal = normal.reshape(DRAWS, -1)

    def chances(situations: Sequence[Situation], allowed: Mask) -> Floats:
        shares = []
        for mean, deviation, row in zip(*model.believed(situations), allowed, strict=True):
            values = np.where(row, mean + width * deviation * normal, -np.inf)
            shares.append(np.bincount(values.argmax(axis=1), minlength=len(mean)) / DRAWS)
        return np.array(shares)

    return chances
