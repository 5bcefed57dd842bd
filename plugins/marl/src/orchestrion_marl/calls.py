"""The completions of an iteration's episodes, as records and as arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
from orchestrion_local.interfaces import Generation, generations_of

from orchestrion import Episode, Status
from orchestrion_marl.advantages import amplification
from orchestrion_marl.rows import Cells, Floats, Integers, Rows


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One completion of an agent in an episode.

    Args:
        agent: name of the agent in the team.
        episode: number of the episode in this iteration.
        group: number of the problem in this iteration.
        turn: index of the turn.
        outcome: reward of the episode, or of this agent in it if the reward function gives one.
        generation: the tokens that were sampled.
        valid: whether the agent could read the response.
    """

    agent: str
    episode: int
    group: int
    turn: int
    outcome: float
    generation: Generation
    valid: bool

    @property
    def is_truncated(self) -> bool:
        """Whether the response was cut at its maximal length."""
        return self.generation.stop == "length"


class Sampled(msgspec.Struct, frozen=True):
    """What an iteration sampled, to learn from.

    Args:
        calls: of all episodes that have a reward.
        groups: of these episodes.
        lost: number of the other episodes.
    """

    calls: Sequence[Call]
    groups: Sequence[int]
    lost: int = 0


def sampled_of(episodes: Sequence[Episode], groups: Sequence[int]) -> Sampled:
    """Return the completions of all episodes that have a reward.

    An episode that a limit ended counts with its reward; one that failed is left out.
    """
    calls: list[Call] = []
    counted: list[int] = []
    for episode, group in zip(episodes, groups, strict=True):
        if episode.reward is None or episode.status is Status.FAILED:
            continue
        rewards = episode.reward.agents or {}
        for turn in episode.turns:
            outcome = rewards.get(turn.agent, episode.reward.total)
            metadata = turn.output.metadata
            valid = bool(metadata.get("valid", True))
            calls += [
                Call(turn.agent, len(counted), group, turn.index, outcome, generation, valid)
                for generation in generations_of(metadata)
            ]
        counted.append(group)
    return Sampled(calls, counted, len(episodes) - len(counted))


def groups_that_differ(episodes: Sequence[Episode], groups: Sequence[int]) -> set[int]:
    """Return the groups whose rewarded episodes have different rewards."""
    rewards: dict[int, set[float]] = defaultdict(set)
    for episode, group in zip(episodes, groups, strict=True):
        if episode.reward is not None:
            rewards[group].add(episode.reward.total)
    return {group for group, different in rewards.items() if len(different) > 1}


def rows_of(calls: Sequence[Call], penalties: Floats, team: Sequence[str]) -> Rows:
    """Return the calls as arrays; an agent's id is its place in `team`, a situation is a prompt."""
    ids = {name: i for i, name in enumerate(team)}
    prompts: dict[tuple[int, ...], int] = {}
    return Rows(
        [call.outcome for call in calls],
        [call.group for call in calls],
        [call.episode for call in calls],
        [ids[call.agent] for call in calls],
        penalties,
        [call.turn for call in calls],
        [prompts.setdefault(call.generation.prompt, len(prompts)) for call in calls],
    )


def lengths_of(calls: Sequence[Call]) -> Integers:
    """Return the number of tokens of each response, shape [B]."""
    return np.array([len(call.generation.response) for call in calls], np.int64)


def sizes_of(calls: Sequence[Call]) -> Integers:
    """Return the number of tokens of each prompt with its response, shape [B]."""
    prompts = np.array([len(call.generation.prompt) for call in calls], np.int64)
    return prompts + lengths_of(calls)


def describe(
    calls: Sequence[Call], rows: Rows, team: Sequence[str], episodes: int, tokens: Floats
) -> dict[str, float]:
    """Return the metrics of each agent before the update.

    `AGENT/dead` is the share of its groups whose calls all have the same reward: nothing can be
    learned from them. `tokens` are the advantages of all tokens.
    """
    lengths = lengths_of(calls)
    # Only reinforce++ gives tokens of one call different advantages; here a call has their mean.
    advantages = np.add.reduceat(tokens, np.cumsum(lengths) - lengths) / lengths
    valid = np.array([call.valid for call in calls])
    truncated = np.array([call.is_truncated for call in calls])
    metrics: dict[str, float] = {}
    for k, name in enumerate(team):
        mine = np.flatnonzero(rows.agent == k)
        metrics[f"{name}/calls"] = len(mine) / max(1, episodes)
        if not len(mine):
            continue
        rewards = rows.outcome[mine]
        own = {
            "valid": valid[mine].mean(),
            "truncated": truncated[mine].mean(),
            "reward": rewards.mean(),
            "reward_std": rewards.std(),
            "dead": (Cells(rows.group[mine]).std(rewards, 0) == 0).mean(),
            "advantage": advantages[mine].mean(),
            "advantage_rms": np.sqrt((advantages[mine] ** 2).mean()),
            "f": amplification(rows, k),
            "tokens": lengths[mine].mean(),
        }
        metrics |= {f"{name}/{key}": float(value) for key, value in own.items()}
    return metrics
