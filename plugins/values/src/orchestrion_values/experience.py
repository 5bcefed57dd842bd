"""From episodes to what trainers of values learn from: decisions and what came after them."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from orchestrion import Episode, Reward, RunError
from orchestrion_values.policy import Taken

__all__ = ["Experience", "gather"]


@frozen(eq=False)
class Experience:
    """The decisions of one episode, in order, m of them.

    Args:
        episode: the whole of it.
        taken: what each decision was taken on [m].
        rewards: what came between each decision and the next [m]: its turns' rewards, and for the
            last one the terminal reward too. Their sum is the episode's reward.
        outcome: the terminal part of the last one: the reward that no turn has.
    """

    episode: Episode
    taken: tuple[Taken, ...]
    rewards: tuple[float, ...]
    outcome: float

    @property
    def returns(self) -> list[float]:
        """What came after each decision, until the end [m]."""
        total, result = 0.0, []
        for reward in reversed(self.rewards):
            total += reward
            result.append(total)
        return result[::-1]


def gather(episodes: Sequence[Episode]) -> list[Experience]:
    """The episodes that can be learned from, in order.

    One without a reward, or without a decision that was recorded, is left out.

    Raises:
        RunError: a reward function gave more or fewer turn rewards than there are turns.
    """
    return [
        _experience(episode, episode.reward)
        for episode in episodes
        if episode.reward is not None
        and any(isinstance(decision.record, Taken) for decision in episode.decisions)
    ]


def _experience(episode: Episode, reward: Reward) -> Experience:
    parts = [0.0] * len(episode.decisions)
    given = 0.0
    if reward.turns is not None:
        if len(reward.turns) != len(episode.turns):
            raise RunError(
                f"episode {episode.id}: the reward function gave {len(reward.turns)} turn rewards "
                f"for {len(episode.turns)} turns; it must give one for each, or none"
            )
        for turn, part in zip(episode.turns, reward.turns, strict=True):
            parts[turn.decision] += part
            given += part
    outcome = reward.total - given
    taken: list[Taken] = []
    rewards: list[float] = []
    for decision, part in zip(episode.decisions, parts, strict=True):
        if isinstance(decision.record, Taken):
            taken.append(decision.record)
            rewards.append(part)
        elif rewards:
            rewards[-1] += part
    rewards[-1] += outcome
    return Experience(episode, tuple(taken), tuple(rewards), outcome)
