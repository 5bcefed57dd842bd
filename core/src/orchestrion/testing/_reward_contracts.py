"""Check what reward functions promise; see `contracts`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from orchestrion._engine.checks import judged
from orchestrion._keys import Key
from orchestrion._records import (
    Episode,
    Output,
    Problem,
    Reward,
    Scores,
    Status,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion.testing._stage import CLAIMS, SUCCESS, Bench, bench, on_bench
from orchestrion.testing._watch import check_pace, drawing, offline, snapshot, unchanged


@on_bench
async def reward_scores(bench_: Bench) -> int:
    """Check that rewards are valid, repeatable, and independent of the order of episodes."""
    episodes, rewards = list(_episodes()), []
    for episode in episodes:
        with unchanged(episode, "score() changes the episode it is given"):
            with offline("score()"), drawing() as draws:
                first, second = [await _reward(bench_, episode) for _ in range(2)]
            draws.check_own("score()")
        if first is not None:
            _check_reward(episode, first)
        assert snapshot(first) == snapshot(second), "the same episode got two different rewards"
        rewards.append(snapshot(first))
    # All of them by another reward function in the reverse order: it must keep no state.
    async with bench(bench_.subject) as other:
        backward = [snapshot(await _reward(other, episode)) for episode in episodes[::-1]]
    assert backward[::-1] == rewards, (
        "the reward of an episode depends on the episodes before it; keep no state between them"
    )
    await check_pace(
        "score()", lambda: _reward(bench_, episodes[0]), "await, or use asyncio.to_thread"
    )
    return len(episodes)


_CONTENTS = ("", "an answer", "lines\nand \ud800, which models produce")


def _episodes() -> Iterator[Episode]:
    """Yield episodes of every status, score and length, cheap and expensive ones."""
    scores = (None, Scores(0.0), Scores(0.5, parts={"style": 1.0}), Scores(1.0, True))
    cases = product(scores, (0.0, 1.0, 1e6), (0, 1, 3))
    for n, (score, cost, count) in enumerate(cases):
        turns = [
            Turn(
                i,
                "abc"[i],
                "x" if i else None,
                Output(_CONTENTS[(n + i) % 3], {"n": [n, i]}, Usage(n, i, 10 * n, cost, cost)),
                ("completed", "failed", "cancelled")[(n + i) % 3],
            )
            for i in range(count)
        ]
        problem = Problem(f"p{n % 5}", "a problem", {"words": ["p", n]}, "kit", hidden="secret")
        status = list(Status)[n % len(Status)]
        yield Episode(f"e{n}", problem, Trajectory(turns), status=status, scores=score)


def _check_reward(episode: Episode, reward: Reward) -> None:
    team = {turn.agent for turn in episode.turns} | set(reward.agents or ())
    try:
        judged(episode, episode.scores or Scores(0.0), reward, team)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"score() returned an invalid reward: {error}") from None


async def _reward(bench_: Bench, episode: Episode) -> Reward | None:
    reward: Reward | None = await bench_.tested.score(episode, bench_.calls(Key(1)))
    return reward


@on_bench
async def reward_believes_nobody(bench_: Bench) -> int:
    """Check that a claim of success does not pay where the verifier found none."""
    episodes = []
    for claim in CLAIMS:
        # As long as the claim, and in as many words: a reward may depend on these.
        neutral = re.sub(r"\w", "q", claim)
        for text, data in ((neutral, dict.fromkeys(SUCCESS)), (claim, SUCCESS)):
            output = Output(text, data=data, usage=Usage(cost=1.0), final=True, metadata=data)
            trajectory = Trajectory([Turn(0, "a", output=output)])
            problem = Problem("p", "a problem", category="kit")
            episodes.append(Episode("e", problem, trajectory, scores=Scores(0.0, False)))
    rewards = [await _reward(bench_, episode) for episode in episodes]
    for claim, plain, claimed in zip(CLAIMS, rewards[::2], rewards[1::2], strict=True):
        if plain is not None and claimed is not None:
            assert claimed.total <= plain.total + 1e-9, (
                f"an unsolved episode gets {claimed.total:g} instead of {plain.total:g} because "
                f"an agent says {claim!r}; use episode.scores, not what agents say"
            )
    return len(CLAIMS)
