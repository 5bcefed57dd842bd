"""Any reward function as an estimator of what unfinished trajectories are worth."""

from __future__ import annotations

from attrs import frozen
from orchestrion_beam.interfaces import Valued, ValueEstimator

from orchestrion import Branch, Episode, Key, RewardFunction, RunError, Session, Usage, ceiling_of

__all__ = ["RewardValue"]


@frozen(kw_only=True)
class RewardValue(ValueEstimator):
    """What a reward function would give if the trajectory ended here.

    The verifier's score it is shown is the task's partial one. So a cheap reward can lead the
    search while the run's own reward, e.g. `llm-judge`, decides at the end.

    Args:
        reward: gives values from 0 to 1.
    """

    reward: RewardFunction

    @property
    def label(self) -> str:
        """Its name."""
        return "reward"

    async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
        """See `ValueEstimator.estimate`.

        Raises:
            RunError: the reward is not from 0 to 1.
        """
        episode = Episode(
            f"value/{key.hex()}",
            branch.problem.public(),
            branch.trajectory,
            scores=await session.score(branch),
            observation=branch.step.observation,
        )
        reward = await self.reward.score(episode, session.calls(key))
        if reward is None:
            return Valued(None)
        if not 0 <= reward.total <= 1:
            kind = type(self.reward).__name__
            raise RunError(
                f"{kind} gave a trajectory {reward.total:g}; a value is from 0 to 1, so use a "
                "reward without bonuses and costs"
            )
        return Valued(reward.total)

    def ceiling(self, tokens: int) -> Usage | None:
        """The most one estimate takes, beside the verifier's partial score."""
        return ceiling_of(self.reward, tokens)
