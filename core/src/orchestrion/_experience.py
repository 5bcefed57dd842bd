"""What trainers share: the order of problems, and the rewards after each decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from attrs import frozen

from orchestrion._errors import RunError
from orchestrion._keys import Key
from orchestrion._records import Episode, Reward

R = TypeVar("R")


@frozen(eq=False)
class Experience(Generic[R]):
    """The recorded decisions of one episode, in order, m of them.

    Args:
        episode: with all its turns.
        taken: the `record` of each decision [m].
        rewards: of each decision [m]: the rewards of the turns it started; the last decision also
            gets the terminal reward. Their sum is the episode's reward.
        outcome: the terminal reward: the part of the episode's reward that no turn has.
    """

    episode: Episode
    taken: tuple[R, ...]
    rewards: tuple[float, ...]
    outcome: float

    @property
    def returns(self) -> list[float]:
        """Return for each decision the sum of its reward and all later ones [m]."""
        total, result = 0.0, []
        for reward in reversed(self.rewards):
            total += reward
            result.append(total)
        return result[::-1]


def laps(count: int, key: Key, start: int, number: int, *purpose: str) -> list[int]:
    """Return `number` places of problems in an order in which all are equally frequent.

    The order goes through all problems lap by lap, each lap shuffled by a key of its own, so that
    any part of it can be computed alone.

    Args:
        count: of problems, at least 1.
        key: of the order.
        start: how many places were used before.
        number: how many places to return.
        purpose: further parts of the key's path.
    """
    result: list[int] = []
    order: list[int] = []
    for i in range(start, start + number):
        lap, place = divmod(i, count)
        if not order or place == 0:
            order = list(range(count))
            key.child(*purpose, "lap", lap).random().shuffle(order)
        result.append(order[place])
    return result


def gather(episodes: Sequence[Episode], kind: type[R]) -> list[Experience[R]]:
    """Return the episodes to learn from, in order, with the decisions that have a record of a kind.

    Episodes without a reward or without such a decision are left out. An episode that ended at a
    limit counts as ended: its reward says what that is worth. The reward of a turn
    (`reward.turns`) belongs to the decision that started it, the rest to the last decision. The
    reward of a decision without a record is added to the decision before it.

    Raises:
        RunError: a reward function gave more or fewer turn rewards than there are turns.
    """
    experiences = (
        _experience(episode, episode.reward, kind)
        for episode in episodes
        if episode.reward is not None
    )
    return [experience for experience in experiences if experience is not None]


def _experience(episode: Episode, reward: Reward, kind: type[R]) -> Experience[R] | None:
    parts = [0.0] * len(episode.decisions)
    of_turns = 0.0
    if reward.turns is not None:
        if len(reward.turns) != len(episode.turns):
            raise RunError(
                f"episode {episode.id}: the reward function gave {len(reward.turns)} turn rewards "
                f"for {len(episode.turns)} turns; it must give one for each, or none"
            )
        for turn, part in zip(episode.turns, reward.turns, strict=True):
            parts[turn.decision] += part
            of_turns += part
    taken: list[R] = []
    rewards: list[float] = []
    for decision, part in zip(episode.decisions, parts, strict=True):
        if decision.record is not None and isinstance(decision.record, kind):
            taken.append(decision.record)
            rewards.append(part)
        elif rewards:
            rewards[-1] += part
    if not taken:
        return None
    outcome = reward.total - of_turns
    rewards[-1] += outcome
    return Experience(episode, tuple(taken), tuple(rewards), outcome)
