"""Try changes of a team's settings: the same problems, the same keys, with and without the change.

A trial runs in four looks. After each look, changes that have next to no chance of success are
given up, which saves about half of the episodes that harmful and useless changes would use. The
episodes without change are run once for all changes.

The unit of the judgement is the problem: several draws on one problem are averaged first. A change
helps if two things agree at the level asked for: the lower end of a percentile bootstrap interval
(Efron 1979) is above zero, and Fisher's randomisation test rejects: few random flips of signs give
a mean as high. The bootstrap alone is too optimistic for few problems: four differences that are
all positive leave it without doubt, though a fair coin falls that way once in sixteen times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, fsum, isnan, log2, nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

from attrs import define, field, frozen
from orchestrion_beam.interfaces import Improver

from orchestrion import (
    JSON,
    Episode,
    Job,
    Key,
    OpenContext,
    Problem,
    Session,
    Split,
    Usage,
    UsageError,
)

Overlay = Mapping[str, JSON]
"""Learnable settings by config path."""
LOOKS = 4
LEAST_RESAMPLES, MOST_RESAMPLES = 1000, 20_000
RESAMPLES_IN_TAIL = 20
LEAST_CHANCE = 0.02
"""A trial with a smaller chance of success is given up."""
SECTION = "agents."


# -------------------------------------------------------------------------------- the settings


def changed(overlay: Overlay, session: Session) -> dict[str, JSON]:
    """Return the part of an overlay that changes a setting of the team."""
    now = session.learnable()
    return {path: value for path, value in overlay.items() if as_overlay_value(now[path]) != value}


def as_overlay_value(value: JSON) -> JSON:
    """Return a setting in the form that overlays have."""
    return list(value) if isinstance(value, tuple) else value


# ------------------------------------------------------------------------------- the judgement


@frozen
class Verdict:
    """Hold the judgement of a change."""

    effect: float  # mean difference in reward, with the change minus without
    low: float  # lower end of its interval
    high: float  # upper end of its interval
    p: float  # share of random signs with an effect as high
    problems: int  # number of problems
    pairs: int  # number of pairs of episodes
    level: float  # allowed chance of calling a useless change helpful

    @property
    def helps(self) -> bool:
        """Return whether both tests say that the change helps."""
        return self.low > 0 and self.p <= self.level

    @property
    def harms(self) -> bool:
        """Return whether the whole interval is below zero."""
        return self.high < 0


def judge(differences: Mapping[str, Sequence[float]], level: float, key: Key) -> Verdict:
    """Judge a change by its differences in reward.

    Args:
        differences: by problem, one number for each pair of episodes; problems without pairs are
            left out.
        level: one-sided chance of error at each end of the interval.
        key: the key of the resamples.
    """
    means = [
        fsum(of_problem) / len(of_problem) for of_problem in differences.values() if of_problem
    ]
    pairs = sum(map(len, differences.values()))
    count = len(means)
    if not any(means):
        return Verdict(0.0, 0.0, 0.0, 1.0, count, pairs, level)
    resamples = min(max(LEAST_RESAMPLES, ceil(RESAMPLES_IN_TAIL / level)), MOST_RESAMPLES)
    random = key.child("bootstrap").random()
    sums = sorted(sum(random.choices(means, k=count)) for _ in range(resamples))
    cut = int(level * resamples)
    p = _sign_flips(means, resamples, key.child("signs"))
    effect = fsum(means) / count
    return Verdict(effect, sums[cut] / count, sums[-1 - cut] / count, p, count, pairs, level)


def _sign_flips(means: Sequence[float], resamples: int, key: Key) -> float:
    """Return the share of sign patterns, this one included, whose sum is at least as high."""
    values = [mean for mean in means if mean]  # zeros have no sign
    # A little slack: equal sums may differ in their last bit.
    reached = fsum(values) - 1e-9
    random, count = key.random(), len(values)
    as_high = 0
    for _ in range(resamples):
        signs = random.getrandbits(count)
        total = 0.0
        for value in values:
            total += value if signs & 1 else -value
            signs >>= 1
        as_high += total >= reached
    return (1 + as_high) / (1 + resamples)


def fewest_problems(level: float) -> int:
    """Return how many problems can reach a level: n positive differences have chance 1 in 2^n."""
    return ceil(log2(1 / level))


def has_little_chance(differences: Sequence[float], total: int, level: float) -> bool:
    """Return whether a trial under way has next to no chance to succeed.

    This is conditional power (Lan, Simon, Halperin 1982): even if the true effect were a standard
    error above the one so far, the end of the trial would hardly be significant. Giving up only
    refuses a change, so it makes no error of the first kind more likely.

    Args:
        differences: of the pairs so far.
        total: pairs of the whole trial.
        level: of its test.
    """
    count = len(differences)
    if not 2 <= count < total:
        return False
    mean = fsum(differences) / count
    error = sqrt(fsum((value - mean) ** 2 for value in differences) / (count - 1) / count)
    if error == 0:
        return mean <= 0
    normal, done, z = NormalDist(), count / total, mean / error
    drift = (z + 1) / sqrt(done)
    missing = normal.inv_cdf(1 - level) - z * sqrt(done) - drift * (1 - done)
    return 1 - normal.cdf(missing / sqrt(1 - done)) < LEAST_CHANCE


# ----------------------------------------------------------------------------------- the trial


@frozen
class Change:
    """Describe a change to try."""

    overlay: Overlay  # settings with the change
    problems: Sequence[Problem]  # to try it on
    pairs: int  # of episodes, one with and one without the change
    give_up: bool = True  # whether to stop when it has next to no chance of success

    @property
    def cases(self) -> list[tuple[Problem, int]]:
        """Return problem and draw of each pair; all problems equally often if all are used."""
        count = len(self.problems)
        pairs = self.pairs if count >= self.pairs else ceil(self.pairs / count) * count
        return [(self.problems[n % count], n // count) for n in range(pairs)]


def most_pairs(pairs: int, sizes: Mapping[Split, int]) -> int:
    """Return the most pairs of a trial: `Change.cases` rounds up to whole laps."""
    return min(2 * pairs, pairs + sizes["validation"])


@frozen
class TrialResult:
    """Hold the result of a trial."""

    verdict: Verdict
    extra_share: float  # how many more calls, dollars or cost episodes used: the highest share
    missing: float  # share of the pairs in which a reward was missing
    given_up: bool  # whether the trial stopped early


def reward_or_nan(episode: Episode) -> float:
    """Return the total reward of an episode; NaN if it is missing."""
    return nan if episode.reward is None else episode.reward.total


async def play(session: Session, overlay: Overlay, jobs: Sequence[Job]) -> list[Episode]:
    """Run episodes with other settings; return them in the order of the jobs."""
    async with session.build(overlay) as inner:
        return await inner.rollout(jobs)


class _Sample(NamedTuple):
    reward: float  # NaN if it is missing
    usage: Usage


_Samples = dict[tuple[str, int], _Sample]
"""What is kept of episodes, by the problem's id and the number of the draw."""


@define
class _Trial:
    change: Change
    cases: list[tuple[Problem, int]]
    samples: _Samples = field(init=False, factory=dict)
    given_up: bool = False

    def cases_of(self, look: int) -> list[tuple[Problem, int]]:
        if self.given_up:
            return []
        first = ceil(len(self.cases) * look / LOOKS)
        return self.cases[first : ceil(len(self.cases) * (look + 1) / LOOKS)]

    def differences(self, base: _Samples) -> dict[str, list[float]]:
        """Return the differences in reward by problem, where both rewards are known."""
        differences: dict[str, list[float]] = {}
        for case, sample in self.samples.items():
            difference = sample.reward - base[case].reward
            if not isnan(difference):
                differences.setdefault(case[0], []).append(difference)
        return differences

    def extra_share(self, base: _Samples) -> float:
        shares = [0.0]
        for measure in ("calls", "usd", "cost"):
            before = fsum(getattr(base[case].usage, measure) for case in self.samples)
            after = fsum(getattr(sample.usage, measure) for sample in self.samples.values())
            if before > 0:
                shares.append(after / before - 1)
        return max(shares)

    def result(self, base: _Samples, level: float, key: Key) -> TrialResult:
        verdict = judge(self.differences(base), level, key)
        missing = 1 - verdict.pairs / max(1, len(self.samples))
        return TrialResult(verdict, self.extra_share(base), missing, self.given_up)


async def compare(
    session: Session, base: Overlay, changes: Sequence[Change], level: float, key: Key
) -> tuple[list[TrialResult], int]:
    """Try changes against the same base; return their results, and the number of episodes.

    Pair n of a problem has the same key on both sides. `base` are the settings without any of the
    changes; `level` is the chance of error that each change may have.
    """
    trials = [_Trial(change, change.cases) for change in changes]
    base_samples: _Samples = {}

    async def play_new(
        overlay: Overlay, samples: _Samples, cases: Sequence[tuple[Problem, int]]
    ) -> None:
        new = {(p.id, draw): p for p, draw in cases if (p.id, draw) not in samples}
        if new:
            jobs = [Job(p, key.child(*case), training=False) for case, p in new.items()]
            episodes = await play(session, overlay, jobs)
            kept = [_Sample(reward_or_nan(episode), episode.usage) for episode in episodes]
            samples.update(zip(new, kept, strict=True))

    for look in range(LOOKS):
        cases_by_trial = [trial.cases_of(look) for trial in trials]
        await play_new(base, base_samples, [case for cases in cases_by_trial for case in cases])
        for trial, cases in zip(trials, cases_by_trial, strict=True):
            await play_new(trial.change.overlay, trial.samples, cases)
        for trial in trials:
            flat = [d for values in trial.differences(base_samples).values() for d in values]
            if trial.change.give_up and has_little_chance(flat, len(trial.cases), level):
                trial.given_up = True
    results = [
        trial.result(base_samples, level, key.child("judge", n)) for n, trial in enumerate(trials)
    ]
    return results, len(base_samples) + sum(len(trial.samples) for trial in trials)


# ------------------------------------------------------------------------------- the improvers


class TrialImprover(Improver):
    """What improvers share that try their changes: which agents learn, and what decided.

    Args:
        ctx: path of the improver, and the team.
        setting: name of the learnable setting that changes.
        agents: the agents whose setting may change. An agent inside another component is named by
            its path after `agents.`; without names, all of the team that have the setting.
    """

    def __init__(self, ctx: OpenContext, setting: str, agents: Sequence[str]) -> None:
        self.path, self.setting, self.agents = ctx.path, setting, agents
        self.team = [member.name for member in ctx.roster]
        self.judged_on: list[str] = []
        """Ids of the validation problems that decided about a change."""

    def path_of(self, role: str) -> str:
        """Return the config path of an agent's setting."""
        return f"{SECTION}{role}.{self.setting}"

    def roles(self, session: Session) -> list[str]:
        """Return the agents whose setting may change, in the config's order.

        Raises:
            UsageError: a wanted agent does not have the setting, or nobody has it.
        """
        available = [
            name[len(SECTION) : -len(self.setting) - 1]
            for name in session.learnable()
            if name.startswith(SECTION) and name.endswith(f".{self.setting}")
        ]
        if unknown := sorted(set(self.agents) - set(available)):
            raise UsageError(
                f"{self.path}.agents: {unknown[0]!r} has no learnable setting {self.setting!r}; "
                f"agents with it are {', '.join(available) or '(none)'}"
            )
        roles = [role for role in available if role in (self.agents or self.team)]
        if not roles:
            raise UsageError(
                f"{self.path}: no agent of this team has a learnable setting {self.setting!r}; "
                "agents that use `chat` have `habits` and `instructions`"
            )
        return roles

    async def compare(
        self,
        session: Session,
        base: Overlay,
        changes: Sequence[Change],
        level: float,
        key: Key,
        counts: Counter[str],
    ) -> list[TrialResult]:
        """Return the results of trials, as `compare` does; count episodes, and note problems."""
        if not changes:
            return []
        results, episodes = await compare(session, base, changes, level, key)
        counts["trial_episodes"] += episodes
        used = {problem.id for change in changes for problem, _ in change.cases}
        self.judged_on = sorted({*self.judged_on, *used})
        return results
