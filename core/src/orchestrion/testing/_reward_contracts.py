"""Check what reward functions promise; see `contracts`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from orchestrion._engine.checks import judged
from orchestrion._keys import Key
from orchestrion._records import (
    Episode,
    Output,
    Problem,
    Reward,
    Scores,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion.testing._stage import CLAIMS, SUCCESS, bench, for_examples
from orchestrion.testing._watch import check_pace, drawing, offline, snapshot, unchanged

if TYPE_CHECKING:
    from orchestrion.testing._kit import Subject

__all__ = ["reward_believes_nobody", "reward_scores"]


def reward_scores(subject: Subject) -> int:
    """Rewards are finite, repeatable, and independent of the order of episodes."""
    from orchestrion.testing._strategies import record

    cost = st.floats(0, 1e6)
    usage = record(Usage, usd=cost, cost=cost)
    turns = st.lists(record(Turn, output=record(Output, usage=usage)), max_size=3)
    episodes = record(
        Episode,
        trajectory=turns.map(Trajectory),
        scores=st.none() | record(Scores, value=st.floats(0, 1)),
        reward=st.none(),
    )
    tried: list[tuple[Episode, Any]] = []

    def check(episode: Episode) -> None:
        with unchanged(episode, "score() changes the episode it is given"):
            with offline("score()"), drawing() as draws:
                first, second = asyncio.run(_rewards(subject, [episode, episode]))
            draws.check_own("score()")
        if first is not None:
            _check_reward(episode, first)
        assert snapshot(first) == snapshot(second), "the same episode got two different rewards"
        tried.append((episode, snapshot(first)))

    for_examples(episodes, check)
    # All of them by one reward function in the reverse order: it must keep no state.
    backward = asyncio.run(_rewards(subject, [episode for episode, _ in reversed(tried)]))
    assert [snapshot(reward) for reward in backward][::-1] == [reward for _, reward in tried], (
        "the reward of an episode depends on the episodes before it; keep no state between them"
    )
    asyncio.run(_check_reward_pace(subject, tried[0][0]))
    return len(tried)


def _check_reward(episode: Episode, reward: Reward) -> None:
    team = {turn.agent for turn in episode.turns} | set(reward.agents or ())
    try:
        judged(episode, episode.scores or Scores(0.0), reward, team)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"score() returned an invalid reward: {error}") from None


async def _rewards(subject: Subject, episodes: Sequence[Episode]) -> list[Reward | None]:
    async with bench(subject) as tried:
        return [await tried.tested.score(episode, tried.calls(Key(1))) for episode in episodes]


async def _check_reward_pace(subject: Subject, episode: Episode) -> None:
    async with bench(subject) as tried:
        await check_pace(
            "score()",
            lambda: tried.tested.score(episode, tried.calls(Key(1))),
            "await, or use asyncio.to_thread",
        )


def reward_believes_nobody(subject: Subject) -> int:
    """A claim of success must not pay where the verifier found none."""
    episodes = []
    for claim in CLAIMS:
        # As long as the claim, and in as many words: a reward may depend on these.
        neutral = re.sub(r"\w", "q", claim)
        for text, data in ((neutral, dict.fromkeys(SUCCESS)), (claim, SUCCESS)):
            output = Output(text, data=data, usage=Usage(cost=1.0), final=True, metadata=data)
            trajectory = Trajectory([Turn(0, "a", output=output)])
            problem = Problem("p", "a problem", category="kit")
            episodes.append(Episode("e", problem, trajectory, scores=Scores(0.0, False)))
    rewards = asyncio.run(_rewards(subject, episodes))
    for claim, plain, claimed in zip(CLAIMS, rewards[::2], rewards[1::2], strict=True):
        if plain is not None and claimed is not None:
            assert claimed.total <= plain.total + 1e-9, (
                f"an unsolved episode gets {claimed.total:g} instead of {plain.total:g} because "
                f"an agent says {claim!r}; use episode.scores, not what agents say"
            )
    return len(CLAIMS)
