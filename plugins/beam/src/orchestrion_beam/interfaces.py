"""What the search can be given: values of unfinished trajectories, and improvers of the team.

    value       = (await estimator.estimate(branch, session, key)).value
    improvement = await improver.improve(round, groups, problems, session)

The kinds `value` and `improver` belong to this plugin; another distribution adds one like this:

    @hookimpl
    def orchestrion_components():
        yield "value", Component("judge", "my_package.judge:Judge", "a model's word")
        yield "improver", Component("habits", "my_package.habits:Habits", "adds what worked")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import Factory, frozen

from orchestrion import JSON, Branch, Episode, Key, Metrics, Problem, Session, Usage

__all__ = ["Group", "Improvement", "Improver", "ValueEstimator", "Valued"]


@frozen
class Valued:
    """What an estimator says of a branch.

    Args:
        value: what the final score is expected to be, 0 to 1; None where nothing can be said, e.g.
            because a judge's answer could not be read. Such a branch ranks behind all others.
        usage: what finding out took, as far as it went through calls.
        bound: the best final score that anything grown from this branch can still have; 1 unless
            that is known for certain.
    """

    value: float | None
    usage: Usage = Usage()
    bound: float = 1.0


class ValueEstimator(Protocol):
    """Says how good an unfinished trajectory is. It sees what the whole team did.

    It is asked once for equal content, and all that are to be compared at once. A component that
    has `ceiling(tokens)`, as models have it, says what one estimate takes at most.
    """

    @property
    def label(self) -> str:
        """What reports call it where the config gives it no name."""
        return type(self).__name__

    @property
    def scores(self) -> int:
        """How many partial scores of the task one estimate asks for, at most."""
        return 1

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """The value of one branch.

        Args:
            branch: problem (hidden part included, which no model may see: use
                `problem.public()`), trajectory and environment.
            session: `session.score(branch)` is the task's own partial score;
                `session.calls(key)` are calls to models.
            key: named by the content alone, so that equal trajectories have equal values.
        """
        ...


@frozen
class Group:
    """The trajectories that one search ended with, best reward first; those without come last.

    Args:
        problem: the public part.
        episodes: verified and rewarded.
        advantages: how much better each is than its group; None where the reward is missing.
        credits: of each episode, one number a turn, in the order of its turns.
        agents: of each episode, the same summed up by agent.
        calls: what the whole search took; a turn that made no call counts as one.
    """

    problem: Problem
    episodes: tuple[Episode, ...]
    advantages: tuple[float | None, ...]
    credits: tuple[tuple[float, ...], ...]
    agents: tuple[Mapping[str, float], ...]
    calls: int = 0

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """Total reward of each episode."""
        return tuple(one.reward.total if one.reward else None for one in self.episodes)


@frozen
class Improvement:
    """What an improver proposes.

    Args:
        overlay: learnable settings to adopt, by config path, e.g. "agents.critic.habits"; the
            trainer adopts them. Empty if nothing was found that helps.
        metrics: what the iteration reports, under the names given here.
    """

    overlay: Mapping[str, JSON] = Factory(dict)
    metrics: Metrics = Factory(dict)


class Improver(Protocol):
    """Changes what agents are told, if that helps on problems it was not made from.

    What it learned lives in the runtime that `open(ctx)` yields; one that has `save` and `load`
    is checkpointed like every other component. Optional: `check(session)`, which raises
    `UsageError` for a team or task that it cannot improve; `start(session)`, which gives an overlay
    to adopt in the first iteration, e.g. what an earlier run learned; and `plan(i, sizes, turns)`
    as trainers have it, with the round for i: what one call of `improve` takes at most.
    """

    async def improve(
        self, round: int, groups: Sequence[Group], problems: Sequence[Problem], session: Session
    ) -> Improvement:
        """Look at what happened since the last call; propose a change, or none.

        Args:
            round: counts the calls, from 0.
            groups: all searches on training problems since the last call, in order.
            problems: those of the validation split that may decide about a change. They come
                with their hidden part, for `Job` and `session.begin`; the others are held out for
                the report, so `session.evaluate("validation")` must not be used.
            session: try a change with `session.build(overlay)`, and run episodes with
                `session.rollout`; `session.key.child("improve", ...)` for keys of your own. Do not
                call `adopt`: the trainer does, with what is returned.
        """
        ...
