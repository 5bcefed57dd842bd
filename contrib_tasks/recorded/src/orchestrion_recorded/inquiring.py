"""The trainer `best-inquiry`: which opening pays, found by playing them on the same questions.

Sequential halving (Karnin, Koren, Somekh 2013) over openings: nobody or one agent, then pairs of
the best ones, each with an eagerness, then the best of these on as many questions as are left. All
meet the same questions with the same keys, so they differ by what they do. In the end each
category of questions gets the opening with the highest mean reward, shrunk towards the mean over
all questions (empirical Bayes with a fixed strength).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import combinations
from typing import Annotated, Any, ClassVar

from attrs import frozen

from orchestrion import (
    JSON,
    Activation,
    Job,
    Member,
    Meta,
    Metrics,
    OpenContext,
    Plan,
    RewardFunction,
    Saved,
    Session,
    Split,
    Trainer,
    UsageError,
    choices,
)
from orchestrion_recorded.inquiry import InquiryRunner, Opening, loaded_opening, saved_opening
from orchestrion_recorded.search import price_weight

__all__ = ["BestInquiry"]

SHARES = (0.2, 0.4, 0.4)
EAGER = (1.0, 1.5)
FINALISTS = 12


@frozen
class BestInquiry:
    """Finds the opening of the policy `inquiry`, for each category of questions.

    Args:
        reward: the run's reward, as `reward`; it must be linear in outcome and cost.
        episodes: training episodes of the whole run.
        pairs: how many of the best single agents are tried in pairs.
        shrinkage: how many questions of a category the mean over all questions counts for.
    """

    reward: RewardFunction
    episodes: Annotated[int, Meta(ge=3)] = 60_000
    pairs: Annotated[int, Meta(ge=1)] = 6
    shrinkage: Annotated[float, Meta(ge=0)] = 100.0

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 60, "pairs": 2}

    @property
    def iterations(self) -> int:
        """Three: singles, pairs, the best of them."""
        return len(SHARES)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The trainer at work."""
        yield Inquiring(self, ctx.roster)


class Inquiring(Trainer):
    """Plays openings; its state is those that are left, best first."""

    def __init__(self, settings: BestInquiry, roster: Sequence[Member]) -> None:
        self.settings, self.able = settings, tuple(choices(roster))
        self._ranked: list[Opening] = []

    @property
    def iterations(self) -> int:
        """Three: singles, pairs, the best of them."""
        return len(SHARES)

    def check(self, session: Session) -> None:
        """Refuse every policy but `inquiry`."""
        if not isinstance(session.policy, InquiryRunner):
            raise UsageError("the trainer best-inquiry trains the policy inquiry")

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """A share of the episodes."""
        episodes = self._share(i)
        return None if turns is None else Plan(episodes * turns, episodes, forked=False)

    def _share(self, i: int) -> int:
        return max(1, int(SHARES[i] * self.settings.episodes))

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Play the openings that are left on the same questions, and keep the best."""
        self.check(session)
        runner: InquiryRunner = session.policy
        weight = await price_weight(self.settings.reward)
        problems = list(session.problems("train"))
        session.key.child("problems").random().shuffle(problems)
        openings = self._openings(i)[: self._share(i)]
        problems = problems[: max(1, self._share(i) // len(openings))]
        jobs = [
            Job(problem, session.key.child("episode", n), policy)
            for policy in (InquiryRunner(self.able, weight, one) for one in openings)
            for n, problem in enumerate(problems)
        ]
        episodes = await session.rollout(jobs)
        totals = [0.0 if e.reward is None else e.reward.total for e in episodes]
        rows = [totals[n : n + len(problems)] for n in range(0, len(totals), len(problems))]
        means = [sum(row) / len(row) for row in rows]
        order = sorted(range(len(openings)), key=lambda n: -means[n])  # equal ones keep their order
        self._ranked = [openings[n] for n in order]
        categories = [problem.category for problem in problems]
        own = self._by_category(rows, means, categories) if i == len(SHARES) - 1 else {}
        runner.set(weight, self._ranked[0], {name: openings[place] for name, place in own.items()})
        return {"reward": means[order[0]], "openings": float(len(openings))}

    def _openings(self, i: int) -> list[Opening]:
        """Whom to try in an iteration."""
        if i == 0:
            return [Opening(), *(Opening((choice,)) for choice in self.able)]
        if i == len(SHARES) - 1:
            return self._ranked[:FINALISTS]
        best = [one.first[0] for one in self._ranked if one.first][: self.settings.pairs]
        first: list[tuple[Activation, ...]] = [(), *((one,) for one in best)]
        first += combinations(best, 2)
        return [Opening(one, eager) for one in first for eager in EAGER]

    def _by_category(
        self, rows: Sequence[Sequence[float]], means: Sequence[float], categories: Sequence[str]
    ) -> dict[str, int]:
        """By category, the place of the opening whose shrunk mean is highest."""
        result, strength = {}, self.settings.shrinkage
        for name in sorted({*categories} - {""}):
            at = [n for n, category in enumerate(categories) if category == name]
            shrunk = [
                (sum(row[n] for n in at) + strength * mean) / (len(at) + strength)
                for row, mean in zip(rows, means, strict=True)
            ]
            result[name] = max(range(len(shrunk)), key=shrunk.__getitem__)
        return result

    def save(self) -> Saved:
        """Those that are left."""
        return Saved(data=[saved_opening(one) for one in self._ranked])

    def load(self, saved: Saved) -> None:
        """What `save` gave."""
        data: Any = saved.data
        self._ranked = [loaded_opening(one, self.able) for one in data]
