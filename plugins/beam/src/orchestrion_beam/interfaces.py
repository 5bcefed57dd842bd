"""Define what the search can be given, and what it hands on: values, improvers, groups.

    value       = (await estimator.estimate(branch, session, key)).value
    improvement = await improver.improve(round, groups, problems, session)

The kinds `value` and `improver` belong to this plugin. Another distribution adds a component to
them like this:

    @hookimpl
    def orchestrion_components():
        yield "value", Component("judge", "my_package.judge:Judge", "asks a model")
        yield "improver", Component("habits", "my_package.habits:Habits", "adds what worked")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, sqrt
from typing import Literal, Protocol

from attrs import Factory, frozen

from orchestrion import JSON, Branch, Episode, Key, Metrics, Problem, Session, Usage

__all__ = [
    "Group",
    "Improvement",
    "Improver",
    "Scale",
    "ValueEstimator",
    "Valued",
    "credits_by_agent",
    "equal_shares",
    "group_advantages",
    "make_group",
    "reward_of",
]

Scale = Literal["mean", "std"]


@frozen
class Valued:
    """Hold the estimate for a branch.

    Args:
        value: expected final score, 0 to 1; None if there is no estimate, e.g. because a judge's
            answer could not be read. Such a branch ranks behind all others.
        usage: usage of the calls that the estimate made.
        bound: an upper bound of the final score of everything that can grow from this branch; 1
            unless a lower bound is certain.
    """

    value: float | None
    usage: Usage = Usage()
    bound: float = 1.0


class ValueEstimator(Protocol):
    """Estimates how good an unfinished trajectory is. It sees the turns of the whole team.

    Branches with equal content are estimated once, and all branches of one level concurrently. An
    estimator that has `ceiling(tokens)`, as models have it, gives the most that one estimate uses.
    """

    @property
    def label(self) -> str:
        """Return the name that reports use if the config gives the estimator no name."""
        return type(self).__name__

    @property
    def scores(self) -> int:
        """Return how many partial scores of the task one estimate asks for, at most."""
        return 1

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """Estimate the value of one branch.

        Args:
            branch: problem, trajectory and environment. The problem has its hidden part, which no
                model may see: show models `problem.public()`.
            session: `session.score(branch)` is the task's own partial score;
                `session.calls(key)` makes calls to models.
            key: depends on the content of the branch only, so that equal trajectories have equal
                values.
        """
        ...


@frozen
class Group:
    """Hold the trajectories of one problem, highest reward first, those without reward last.

    Args:
        problem: the public part of the problem.
        episodes: the episodes, verified and rewarded.
        advantages: of each episode, its reward minus the mean of the group; None without reward.
        credits: of each episode, one number for each turn, in the order of its turns.
        agents: of each episode, the credits summed by agent.
        calls: calls of the whole search; a turn that made no call counts as one.
    """

    problem: Problem
    episodes: tuple[Episode, ...]
    advantages: tuple[float | None, ...]
    credits: tuple[tuple[float, ...], ...]
    agents: tuple[Mapping[str, float], ...]
    calls: int = 0

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """Return the total reward of each episode; None where it is missing."""
        return tuple(map(reward_of, self.episodes))


def reward_of(episode: Episode | None) -> float | None:
    """Return the total reward of an episode; None without reward or without episode."""
    return None if episode is None or episode.reward is None else episode.reward.total


def make_group(
    episodes: Sequence[Episode],
    problem: Problem,
    calls: int,
    *,
    scale: Scale = "mean",
    least_std: float = 0.0,
    credits: Mapping[int, tuple[float, ...]] | None = None,
) -> Group:
    """Make a group of the episodes of one problem; see `Group` and `group_advantages`.

    `credits` are those of turns by position of the episode; the turns of all other episodes share
    the advantage equally.
    """
    advantages = group_advantages(list(map(reward_of, episodes)), scale, least_std)
    known_credits = credits or {}
    turn_credits = [
        known_credits.get(n) or equal_shares(advantage, len(episode.turns))
        for n, (advantage, episode) in enumerate(zip(advantages, episodes, strict=True))
    ]
    by_agent = [
        credits_by_agent([turn.agent for turn in episode.turns], shares)
        for episode, shares in zip(episodes, turn_credits, strict=True)
    ]
    return Group(
        problem, tuple(episodes), tuple(advantages), tuple(turn_credits), tuple(by_agent), calls
    )


def group_advantages(
    rewards: Sequence[float | None], scale: Scale = "mean", least_std: float = 0.0
) -> list[float | None]:
    """Return the advantage of each reward within its group: A_i = R_i - mean(R).

    This is GRPO (Shao et al. 2024) without its division by the standard deviation, as Liu et al.
    (2025) argue; `scale="std"` divides by it. Missing rewards have the advantage None and are in
    no mean. A group of one, and a group of equal rewards, have exactly the advantage 0.

    Args:
        rewards: rewards of trajectories of one problem; None where a reward is missing.
        scale: `mean` centres the rewards; `std` also divides by the sample standard deviation.
        least_std: lower bound of the divisor, so that differences that mean nothing stay small.
    """
    numbers = [reward for reward in rewards if reward is not None]
    if len(numbers) < 2 or min(numbers) == max(numbers):
        return [None if reward is None else 0.0 for reward in rewards]
    # Subtracting one of the rewards first loses no digits if all of them are large.
    origin = numbers[0]
    mean = fsum(reward - origin for reward in numbers) / len(numbers)
    divisor = 1.0
    if scale == "std":
        squares = fsum((reward - origin - mean) ** 2 for reward in numbers)
        divisor = max(sqrt(squares / (len(numbers) - 1)), least_std)
    return [None if r is None else (r - origin - mean) / divisor for r in rewards]


def equal_shares(advantage: float | None, turns: int) -> tuple[float, ...]:
    """Return the advantage divided equally among `turns` turns; zeros if it is None."""
    return ((advantage or 0.0) / turns,) * turns if turns else ()


def credits_by_agent(agents: Sequence[str], credits: Sequence[float]) -> Mapping[str, float]:
    """Return the sum of credits by agent, agents in the order of their first turn."""
    parts: dict[str, list[float]] = {}
    for agent, credit in zip(agents, credits, strict=True):
        parts.setdefault(agent, []).append(credit)
    return {agent: fsum(credits_of_agent) for agent, credits_of_agent in parts.items()}


@frozen
class Improvement:
    """Hold what an improver proposes.

    Args:
        overlay: learnable settings to adopt, by config path, e.g. "agents.critic.habits"; the
            trainer adopts them. Empty if nothing helps.
        metrics: metrics for the iteration, by name.
    """

    overlay: Mapping[str, JSON] = Factory(dict)
    metrics: Metrics = Factory(dict)


class Improver(Protocol):
    """Changes learnable settings of the team if that helps on problems it did not learn from.

    What it learned lives in the runtime that `open(ctx)` yields. A runtime with `save` and `load`
    is checkpointed like every other component. Three methods are optional:

    * `check(session)` raises `UsageError` for a team or task that it cannot improve.
    * `start(session)` returns an overlay to adopt before the first iteration, e.g. what an earlier
      run learned.
    * `plan(i, sizes)`, as trainers have it, returns the most that call `i` of `improve` uses.
    """

    async def improve(
        self, round: int, groups: Sequence[Group], problems: Sequence[Problem], session: Session
    ) -> Improvement:
        """Return a change, or none, from what happened since the last call.

        Args:
            round: counts the calls, from 0.
            groups: all groups of training problems since the last call, in order.
            problems: the validation problems that may decide about a change. They have their hidden
                part, for `Job` and `session.begin`. All other validation problems are held out for
                the report, so `session.evaluate("validation")` must not be used.
            session: `session.build(overlay)` tries a change and `session.rollout` runs episodes;
                `session.key.child("improve", ...)` gives keys. Do not call `adopt`: the trainer
                adopts what is returned.
        """
        ...
