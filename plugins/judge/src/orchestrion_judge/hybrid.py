"""The reward `hybrid`: a cheap score for all episodes, and a judgement of the better ones."""

from __future__ import annotations

from typing import Annotated

from attrs import frozen

from orchestrion import Calls, Episode, Meta, Reward, RewardFunction, Usage, ceiling_of


@frozen(kw_only=True)
class Hybrid(RewardFunction):
    """The weighted sum of a cheap score C and a judgement J.

        R = (1 - w) C + w J    if C >= judge_from; then the judge is asked
        R = (1 - w) C          otherwise

    The threshold is a number and not a share of the episodes, as a reward must not depend on their
    completion order. If one of the two is missing, the reward is missing. Partial trajectories are
    not judged here: in a beam search, its `value` values them.

    Args:
        judge: computes J, e.g. `llm-judge` or `human`.
        cheap: computes C; by default the verifier's score, 0 for a stopped episode.
        judge_from: the threshold of the cheap score; by default the judge is always asked.
        weight: w, the share of the judgement.
    """

    judge: RewardFunction
    cheap: RewardFunction | None = None
    judge_from: float | None = None
    weight: Annotated[float, Meta(gt=0, le=1)] = 0.5

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        """Return the weighted sum; None if one of the scores is missing."""
        cheap = await self._cheap(episode, calls)
        if cheap is None:
            return None
        if self.judge_from is not None and cheap.total < self.judge_from:
            return _mixed([(1 - self.weight, cheap)], cheap, 0.0)
        judged = await self.judge.score(episode, calls)
        if judged is None:
            return None
        return _mixed([(1 - self.weight, cheap), (self.weight, judged)], cheap, 1.0)

    async def _cheap(self, episode: Episode, calls: Calls) -> Reward | None:
        if self.cheap is not None:
            return await self.cheap.score(episode, calls)
        if episode.scores is None:
            return None
        return Reward(episode.scores.value if episode.status == "completed" else 0.0)

    def ceiling(self, tokens: int) -> Usage | None:
        """Return a bound of both together."""
        cheap = Usage() if self.cheap is None else ceiling_of(self.cheap, tokens)
        judge = ceiling_of(self.judge, tokens)
        return None if cheap is None or judge is None else cheap + judge


def _mixed(rewards: list[tuple[float, Reward]], cheap: Reward, asked: float) -> Reward:
    """Return the weighted sum of totals, turns and agents."""
    parts = {name: value for _, reward in rewards for name, value in reward.parts.items()}
    turns = [
        [weight * number for number in reward.turns]
        for weight, reward in rewards
        if reward.turns is not None
    ]
    agents: dict[str, float] = {}
    for weight, reward in rewards:
        for name, number in (reward.agents or {}).items():
            agents[name] = agents.get(name, 0.0) + weight * number
    return Reward(
        sum(weight * reward.total for weight, reward in rewards),
        tuple(map(sum, zip(*turns, strict=True))) if turns else None,
        agents or None,
        {**parts, "hybrid.cheap": cheap.total, "hybrid.judged": asked},
    )
