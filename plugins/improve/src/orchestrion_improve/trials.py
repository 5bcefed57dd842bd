"""Trials of changes to a team's settings: the same problems, the same keys, with and without.

A trial runs in four looks. After each, changes that cannot succeed any more are given up, which
saves about half of the episodes that harmful and useless ones would take. What is compared with is
played once for all changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, fsum, isnan, nan
from typing import NamedTuple

from attrs import frozen

from orchestrion import JSON, Episode, Job, Key, Problem, Session, Usage
from orchestrion_improve.judging import Verdict, hopeless, judge

__all__ = ["Change", "Overlay", "Result", "compare", "play", "reward_of"]

Overlay = Mapping[str, JSON]
LOOKS = 4
MEASURES = ("calls", "usd", "cost")
Case = tuple[str, int]
"""A problem's id, and the number of the draw on it."""


class Sample(NamedTuple):
    """What one episode came to: reward (NaN if it is missing) and what it took."""

    reward: float
    usage: Usage


@frozen
class Change:
    """Something to try.

    Args:
        overlay: settings with the change.
        problems: what it is tried on.
        pairs: episodes on either side.
        give_up: whether to stop when it cannot succeed any more.
    """

    overlay: Overlay
    problems: Sequence[Problem]
    pairs: int
    give_up: bool = True

    @property
    def cases(self) -> list[tuple[Problem, int]]:
        """Problem and draw of each pair; each problem equally often if all of them are used."""
        count = len(self.problems)
        pairs = self.pairs if count >= self.pairs else ceil(self.pairs / count) * count
        return [(self.problems[n % count], n // count) for n in range(pairs)]


@frozen
class Result:
    """What came of a change.

    Args:
        verdict: the judgement.
        dearer: by what share the episodes took more calls, dollars or cost, whichever is most.
        missing: share of the pairs in which a reward was missing.
        stopped: whether it was given up early.
    """

    verdict: Verdict
    dearer: float
    missing: float
    stopped: bool


def reward_of(episode: Episode) -> float:
    """The reward; NaN if it is missing."""
    return nan if episode.reward is None else episode.reward.total


async def play(session: Session, overlay: Overlay, jobs: Sequence[Job]) -> list[Episode]:
    """Run episodes with other settings."""
    async with session.build(overlay) as inner:
        return await inner.rollout(jobs)


class _Trial:
    """One change on trial."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.cases = change.cases
        self.played: dict[Case, Sample] = {}
        self.stopped = False

    def due(self, look: int) -> list[tuple[Problem, int]]:
        """What is to be played in a look."""
        if self.stopped:
            return []
        first = ceil(len(self.cases) * look / LOOKS)
        return self.cases[first : ceil(len(self.cases) * (look + 1) / LOOKS)]

    def differences(self, base: Mapping[Case, Sample]) -> dict[str, list[float]]:
        """Reward with the change less without, by problem, where there are both."""
        found: dict[str, list[float]] = {}
        for case, sample in self.played.items():
            one = sample.reward - base[case].reward
            if not isnan(one):
                found.setdefault(case[0], []).append(one)
        return found

    def dearer(self, base: Mapping[Case, Sample]) -> float:
        """The greatest share by which it takes more of something."""
        shares = [0.0]
        for name in MEASURES:
            before = fsum(getattr(base[case].usage, name) for case in self.played)
            after = fsum(getattr(one.usage, name) for one in self.played.values())
            if before > 0:
                shares.append(after / before - 1)
        return max(shares)


async def compare(
    session: Session, base: Overlay, changes: Sequence[Change], level: float, key: Key
) -> tuple[list[Result], int]:
    """Try changes beside the same base; gives a result each, and how many episodes that took.

    Args:
        session: what to play in.
        base: settings without any of the changes.
        changes: what to try.
        level: chance of error that each of them may have.
        key: of this comparison; pair n of a problem draws alike on both sides.
    """
    trials = [_Trial(one) for one in changes]
    known: dict[Case, Sample] = {}
    episodes = 0
    for look in range(LOOKS):
        due = [one.due(look) for one in trials]
        wanted = {(p.id, draw): p for cases in due for p, draw in cases}
        work = [(base, known, {case: p for case, p in wanted.items() if case not in known})]
        for trial, cases in zip(trials, due, strict=True):
            overlay = trial.change.overlay
            work.append((overlay, trial.played, {(p.id, draw): p for p, draw in cases}))
        for overlay, into, new in work:
            if new:
                jobs = [Job(p, key.child(*case), training=False) for case, p in new.items()]
                played = await play(session, overlay, jobs)
                episodes += len(played)
                for case, episode in zip(new, played, strict=True):
                    into[case] = Sample(reward_of(episode), episode.usage)
        for trial in trials:
            flat = [d for one in trial.differences(known).values() for d in one]
            if trial.change.give_up and hopeless(flat, len(trial.cases), level):
                trial.stopped = True
    results = []
    for n, trial in enumerate(trials):
        differences = trial.differences(known)
        verdict = judge(differences, level, key.child("judge", n))
        missing = 1 - verdict.pairs / max(1, len(trial.played))
        results.append(Result(verdict, trial.dearer(known), missing, trial.stopped))
    return results, episodes
