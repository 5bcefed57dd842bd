"""From episodes to what is learned from: one record for every completion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen
from orchestrion_local.interfaces import Generation, generations_of

from orchestrion import Episode, Status
from orchestrion_marl.rows import Integers, Rows

__all__ = ["Call", "Stream", "calls_of", "rows_of"]


@frozen
class Call:
    """One completion of an agent in an episode.

    Args:
        agent: its name in the team.
        episode: number of the episode in this iteration.
        group: number of its problem in this iteration.
        turn: index of the turn.
        outcome: the reward of the episode, or of this agent in it if the reward says so.
        generation: what was sampled.
        valid: whether the agent could read it.
        truncated: whether it was cut.
        fine: taken off its reward, before any that depends on the model.
    """

    agent: str
    episode: int
    group: int
    turn: int
    outcome: float
    generation: Generation
    valid: bool
    truncated: bool
    fine: float = 0.0


@frozen
class Stream:
    """An iteration's calls, in the order of jobs and turns, and the episodes they are of.

    Args:
        calls: all of them.
        episodes: those that count.
        groups: the group of each.
        lost: episodes that failed or have no reward.
    """

    calls: tuple[Call, ...]
    episodes: tuple[Episode, ...]
    groups: tuple[int, ...]
    lost: int


def calls_of(episodes: Sequence[Episode], groups: Sequence[int]) -> Stream:
    """The completions behind every finished turn of every episode that has a reward.

    An episode that failed shrinks its group; one that a limit ended counts as it was rewarded.
    """
    calls: list[Call] = []
    kept: list[tuple[Episode, int]] = []
    for episode, group in zip(episodes, groups, strict=True):
        if episode.reward is None or episode.status in (Status.FAILED, Status.CANCELLED):
            continue
        number = len(kept)
        kept.append((episode, group))
        agents = episode.reward.agents or {}
        for turn in episode.turns:
            metadata = turn.output.metadata
            for generation in generations_of(metadata):
                calls.append(
                    Call(
                        turn.agent,
                        number,
                        group,
                        turn.index,
                        agents.get(turn.agent, episode.reward.total),
                        generation,
                        bool(metadata.get("valid", True)),
                        generation.stop == "length",
                    )
                )
    return Stream(
        tuple(calls),
        tuple(episode for episode, _ in kept),
        tuple(group for _, group in kept),
        len(episodes) - len(kept),
    )


def rows_of(calls: Sequence[Call], agents: Sequence[str]) -> Rows:
    """The same as arrays; an agent's id is its place in `agents`."""
    ids = {name: i for i, name in enumerate(agents)}
    return Rows(
        [call.outcome for call in calls],
        [call.group for call in calls],
        [call.episode for call in calls],
        [ids[call.agent] for call in calls],
        [call.fine for call in calls],
    )


def lengths_of(calls: Sequence[Call]) -> Integers:
    """Tokens of each response, shape [B]."""
    return np.array([len(call.generation.response) for call in calls], np.int64)
