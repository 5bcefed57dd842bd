"""A log as arrays and situations: what a team's policy would have seen, and the rewards.

`n` decisions in `m` episodes, `k` choices of the team; the decisions of an episode stand together.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion import (
    Activation,
    Observation,
    Output,
    Problem,
    Situation,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    did_you_mean,
)
from orchestrion_logged.records import Logged, LoggedEpisode

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

STOP = "stop"


@frozen(eq=False)
class Decisions:
    """Decisions of a log."""

    names: tuple[str, ...]  # of the choices [k]
    situations: tuple[Situation, ...]  # of each decision [n]
    choice: Ints  # index of the choice in `names` [n]
    allowed: Mask  # which choices were allowed [n, k]
    propensity: Floats  # of the choice [n]; NaN if unknown
    reward: Floats  # between each decision and the next of its episode [n]
    first: Ints  # index of each episode's first decision [m]
    missing: int  # number of episodes that were left out as they have no reward

    @property
    def episode(self) -> Ints:
        """Return the index of each decision's episode [n]."""
        return np.repeat(np.arange(len(self.first)), self.lengths)

    @property
    def last(self) -> Mask:
        """Return whether each decision is the last one of its episode [n]."""
        result = np.zeros(len(self.choice), np.bool_)
        result[self.first + self.lengths - 1] = True
        return result

    @property
    def lengths(self) -> Ints:
        """Return the number of decisions of each episode [m]."""
        return np.diff(np.append(self.first, len(self.choice)))

    @property
    def returns(self) -> Floats:
        """Return the sum of rewards from each decision to its episode's end [n]."""
        result = self.reward.copy()
        for start, size in zip(self.first.tolist(), self.lengths.tolist(), strict=True):
            if size > 1:
                result[start : start + size] = result[start : start + size][::-1].cumsum()[::-1]
        return result

    @property
    def several(self) -> bool:
        """Return whether an episode has more than one decision."""
        return len(self.first) < len(self.choice)

    @property
    def known(self) -> bool:
        """Return whether all propensities are known."""
        return not np.isnan(self.propensity).any()


def choices_of(episodes: Sequence[LoggedEpisode]) -> tuple[str, ...]:
    """Return all choices that a log names, sorted, stopping last."""
    lines = [line for episode in episodes for line in episode]
    names = {name for line in lines for name in (line.choice, *(line.allowed or ()))}
    return (*sorted(names - {STOP}), *({STOP} & names))


def rewards_of(
    episodes: Sequence[LoggedEpisode], cost_weight: float | None, where: str
) -> list[list[float] | None]:
    """Return the rewards of each episode's decisions; None where feedback is missing.

    Without a cost weight, of cost against score, they are the logged rewards, or the scores in a
    log without rewards.

    Raises:
        UsageError: the log has no such feedback, or mixes rewards and scores.
    """
    rewarded = [any(line.reward is not None for line in episode) for episode in episodes]
    scored = [any(line.score is not None for line in episode) for episode in episodes]
    if cost_weight is None and any(rewarded):
        alone = sum(s and not r for r, s in zip(rewarded, scored, strict=True))
        if alone:
            raise UsageError(
                f"{where}: {alone} episodes have a score and no reward, {sum(rewarded)} have a "
                "reward; give all of them rewards, or set a cost weight to use the scores"
            )
        has_feedback = rewarded
        rewards = [[line.reward or 0.0 for line in lines] for lines in episodes]
    elif any(scored):
        weight = cost_weight or 0.0
        has_feedback = scored
        rewards = [[(x.score or 0.0) - weight * x.cost for x in lines] for lines in episodes]
    else:
        kind = "rewards nor scores" if cost_weight is None else "scores, which a cost weight needs"
        raise UsageError(f"{where}: no decision has {kind}")
    return [own if known else None for own, known in zip(rewards, has_feedback, strict=True)]


def as_decisions(
    episodes: Sequence[LoggedEpisode],
    names: Sequence[str],
    cost_weight: float | None = None,
    where: str = "the log",
) -> Decisions:
    """Return a log as a team with the choices `names` [k] sees it.

    Raises:
        UsageError: the log names a choice that the team does not have, or has no feedback.
    """
    places = {name: place for place, name in enumerate(names)}
    if strange := [name for name in choices_of(episodes) if name not in places]:
        raise UsageError(
            f"{where}: the log names the choice {strange[0]!r}, which this team does not have"
            f"{did_you_mean(strange[0], list(names))}; it has {', '.join(names)}"
        )
    rewards = rewards_of(episodes, cost_weight, where)
    kept = [(e, r) for e, r in zip(episodes, rewards, strict=True) if r is not None]
    lines = [line for episode, _ in kept for line in episode]
    allowed = [[line.allowed is None or n in line.allowed for n in names] for line in lines]
    lengths = np.array([len(episode) for episode, _ in kept], np.int64)
    return Decisions(
        tuple(names),
        tuple(s for episode, _ in kept for s in _situations(episode, names)),
        np.array([places[line.choice] for line in lines], np.int64),
        np.array(allowed, np.bool_).reshape(len(lines), len(names)),
        np.array([nan if line.propensity is None else line.propensity for line in lines]),
        np.array([reward for _, given in kept for reward in given], np.float64),
        np.concatenate([[0], lengths.cumsum()[:-1]]),
        len(episodes) - len(kept),
    )


def _situations(episode: LoggedEpisode, names: Sequence[str]) -> list[Situation]:
    """Return the situations of an episode's decisions."""
    trajectory, result = Trajectory(), []
    for line in episode:
        shown = line.context
        blocked = () if line.allowed is None else (set(names) - set(line.allowed) - {STOP})
        observation = Observation(
            features=shown.features,
            hints=shown.hints,
            progress=shown.progress,
            blocked=frozenset(blocked),
        )
        problem = Problem(
            shown.id or line.episode or "logged", shown.text, shown.data, shown.category
        )
        result.append(Situation(problem, trajectory, observation))
        if line.choice != STOP:
            trajectory = trajectory.append(_turn(line, len(trajectory)))
    return result


def _turn(line: Logged, index: int) -> Turn:
    choice = activation(line.choice)
    output = Output(line.answer, usage=Usage(cost=line.cost))
    return Turn(index, choice.agent, choice.option, output, line.status, decision=line.step)


def activation(name: str) -> Activation:
    """Return the activation of "agent" or "agent:option"."""
    agent, _, option = name.partition(":")
    return Activation(agent, option or None)
