"""Reward functions that read the verifier's scores and the one cost ledger, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose, log1p
from typing import Annotated, Literal

from attrs import frozen

from orchestrion import Calls, Episode, Meta, Reward, RewardFunction, Status, Turn, Usage, no_calls


@frozen
class OutcomeMinusCost(RewardFunction):
    """What was achieved, minus what it took.

        R = o + b [success] - p [not success] - w * sum_t g(t) c_t

    with o the verifier's value if the episode was completed, else 0; c_t what turn t = 1, 2, ...
    cost, each booked once; and g(t) = 1, or log(1 + t / horizon). It is the reward of Puppeteer
    (arXiv 2505.19591, eq. 5: R_T = r - lambda C_T, R_t = gamma R_(t+1) - lambda C_t, with
    C_t = F log(1 + t / phi)) for gamma = 1, its cost read as a recursion that charges every
    step once.

    Args:
        cost_weight: w, in reward per unit of `measure`.
        measure: what a turn costs: the agent's own cost, US dollars, tokens, calls, or 1 a turn.
        step_weight: g; "log" makes later steps dearer.
        horizon: phi, in turns; only with `step_weight: log`.
        success_bonus: b.
        failure_penalty: p.
    """

    cost_weight: Annotated[float, Meta(ge=0)] = 0.1
    measure: Literal["cost", "usd", "tokens", "calls", "turns"] = "cost"
    step_weight: Literal["constant", "log"] = "constant"
    horizon: Annotated[float, Meta(gt=0)] = 10.0
    success_bonus: float = 0.0
    failure_penalty: Annotated[float, Meta(ge=0)] = 0.0

    ceiling = no_calls

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        """Return the reward; missing where the verifier gave no scores."""
        if episode.scores is None:
            return None
        outcome = episode.scores.value if episode.status is Status.COMPLETED else 0.0
        outcome += self.success_bonus if episode.success else -self.failure_penalty
        turns = tuple(
            -self.cost_weight * self._growth(t) * self._cost(turn)
            for t, turn in enumerate(episode.turns, start=1)
        )
        total = outcome
        for turn_reward in turns:
            total += turn_reward
        return Reward(total, turns, parts={"outcome": outcome, "cost": total - outcome})

    def doubt(self, ceilings: Sequence[Usage | None]) -> str:
        """Say that no agent has a cost to count, or that costs have different units."""
        if not self.cost_weight or self.measure == "turns":
            return ""
        if self.measure == "cost":
            return _doubt_units(ceilings)
        if any(most is None or getattr(most, self.measure) for most in ceilings):
            if self.measure == "usd" and any(_is_own(most) for most in ceilings):
                return (
                    "`measure: usd` counts US dollars alone, and leaves out the `cost` that some "
                    "agents of the team state; to count all, state it in US dollars and use "
                    "`measure: cost`"
                )
            return ""
        unit = "US dollars" if self.measure == "usd" else self.measure
        return (
            f"`measure: {self.measure}` counts no cost, as no agent of the team says that it takes "
            f"{unit}; measure `cost`, which agents state in a unit of their own, or `turns`"
        )

    def _growth(self, t: int) -> float:
        return 1.0 if self.step_weight == "constant" else log1p(t / self.horizon)

    def _cost(self, turn: Turn) -> float:
        if self.measure == "turns":
            return 1.0
        return float(getattr(turn.usage, self.measure))


def _doubt_units(ceilings: Sequence[Usage | None]) -> str:
    """Say that some agents cost US dollars and others not, as far as that is known."""
    if len({_is_own(most) for most in ceilings if most is not None and most.cost > 0}) < 2:
        return ""
    return (
        "`measure: cost` adds up different units: some agents cost US dollars, others a `cost` "
        "that their settings state; state every `cost` in US dollars, or use `measure: usd`, "
        "which leaves those costs out"
    )


def _is_own(most: Usage | None) -> bool:
    """Return whether an agent has a cost that is not its US dollars."""
    return most is not None and most.cost > 0 and not isclose(most.cost, most.usd)


@frozen
class ExactOutcome(RewardFunction):
    """1 if the episode was completed and the verifier says solved, else 0; costs do not count."""

    ceiling = no_calls

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        """Return the reward; missing where the verifier gave no scores."""
        return None if episode.scores is None else Reward(float(episode.success))
