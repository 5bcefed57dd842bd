"""The trainer `reinforce` at work: episodes, advantages, steps of Adam.

Read `Learner.iterate` first; it is the algorithm. Where it departs from PPO (Schulman et al.
2017): policy and value are two networks; the entropy is divided by the logarithm of the number
of allowed choices and its weight falls from a high value to 0; old log-probabilities are computed
again before the update, from what the decisions recorded, so that nothing depends on which
situations were decided in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orchestrion import (
    CheckpointError,
    Job,
    Key,
    Metrics,
    OpenContext,
    Plan,
    Problem,
    RunError,
    Saved,
    Session,
    Split,
    UsageError,
)
from orchestrion_reinforce import advantages as estimate
from orchestrion_reinforce.arrays import pack, unpack
from orchestrion_reinforce.gradient import Batch, Evaluation, GradientPolicy
from orchestrion_reinforce.network import Adam, Floats, clip_norm
from orchestrion_reinforce.report import convergence
from orchestrion_reinforce.steps import Steps, gather
from orchestrion_reinforce.topology import team_metrics
from orchestrion_reinforce.value import Value

if TYPE_CHECKING:
    from orchestrion_reinforce.reinforce import Reinforce

__all__ = ["Learner", "draw"]


class Learner:
    """Trains the session's policy; its state is the optimiser's, the baselines' and the history."""

    def __init__(self, settings: Reinforce, ctx: OpenContext) -> None:
        self.settings, self._path = settings, ctx.path
        self._adam = Adam(0)
        self._value = Value(settings.value_hidden, ctx.key.child("value"))
        self._running: dict[str, float] = {}
        self._history: list[tuple[int, float]] = []
        """(episodes so far, mean reward) of each iteration."""
        self._skipped = 0

    @property
    def iterations(self) -> int:
        """As set."""
        return self.settings.iterations

    def plan(self, i: int, sizes: Mapping[Split, int], turns: int | None) -> Plan | None:
        """Whole groups of episodes."""
        s = self.settings
        episodes = -(-s.episodes // s.group) * s.group
        return None if turns is None else Plan(episodes * turns, episodes, forked=False)

    def check(self, session: Session) -> None:
        """Refuse a policy that does not learn by gradient."""
        if not isinstance(session.policy, GradientPolicy):
            raise UsageError(
                f"{self._path}: reinforce trains policies that learn by gradient, such as "
                "neural; the policy of this team does not"
            )

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Roll out, estimate, update."""
        self.check(session)
        policy: GradientPolicy = session.policy
        jobs = draw(session.problems("train"), session.key, self.settings)
        episodes = await session.rollout(jobs)
        steps = gather(episodes)
        metrics = {"excluded": float(steps.excluded), **team_metrics(episodes, session.roster)}
        if len(steps.records):
            metrics |= self._learn(i, policy, steps, session.key.child("update"))
        done = self._history[-1][0] if self._history else 0
        if len(steps.totals):
            self._history.append((done + len(episodes), float(steps.totals.mean())))
        metrics["skipped_updates"] = float(self._skipped)
        metrics["episodes_to_90"] = float(convergence(self._history))
        return metrics

    # ------------------------------------------------------------------ the algorithm

    def _learn(self, i: int, policy: GradientPolicy, steps: Steps, key: Key) -> dict[str, float]:
        s = self.settings
        batch = policy.collect(steps.records)
        advantages, targets = self._advantages(batch, steps)
        if s.normalize:
            advantages = estimate.normalize(advantages)
        if len(self._adam.first) != len(policy.parameters):
            self._adam = Adam(len(policy.parameters))
        left = 1 - i / s.iterations
        rate = s.learning_rate * (s.learning_rate_end + (1 - s.learning_rate_end) * left)
        weight = s.entropy_end + (s.entropy - s.entropy_end) * left**s.entropy_power
        before = policy.evaluate(batch)
        norms: list[float] = []
        losses: list[float] = []
        for rows in self._minibatches(len(batch), key):
            part = batch if rows is None else batch.take(rows)
            chosen = slice(None) if rows is None else rows
            # A first step over the whole batch is where `before` was taken.
            now = before if rows is None and not norms else policy.evaluate(part)
            norms.append(
                self._step(policy, now, before.logp[chosen], advantages[chosen], weight, rate)
            )
            if targets is not None:
                loss = self._value.step(
                    part.inputs, targets[chosen], rate, s.max_gradient_norm, part.rows
                )
                losses.append(loss)
                self._skipped += not np.isfinite(loss)
        if not np.isfinite(norms).any():
            raise RunError(
                f"reinforce: all {len(norms)} updates of iteration {i} were skipped, since no "
                f"gradient was finite; rewards went from {steps.totals.min():.3g} to "
                f"{steps.totals.max():.3g}: look at the reward function and the task's features"
            )
        drift = policy.evaluate(batch).logp - before.logp
        ratio = np.exp(drift)
        return {
            "entropy": float(before.entropy.mean()),
            "entropy_weight": weight,
            "learning_rate": rate,
            # Schulman's low-variance estimate of KL(old, new).
            "kl": float(np.mean(ratio - 1 - drift)),
            "clip_fraction": 0.0 if s.clip is None else float(np.mean(abs(ratio - 1) > s.clip)),
            "gradient_norm": _mean(norms),
            "value_loss": _mean(losses),
        }

    def _step(
        self,
        policy: GradientPolicy,
        now: Evaluation,
        old: Floats,
        advantages: Floats,
        weight: float,
        rate: float,
    ) -> float:
        """One step on the loss; the gradient's norm before clipping."""
        clip = self.settings.clip
        ratio = np.exp(now.logp - old)
        pushed = ratio * advantages
        if clip is not None:
            # Where the minimum is the clipped term, its gradient is 0.
            over = (advantages > 0) & (ratio > 1 + clip)
            under = (advantages < 0) & (ratio < 1 - clip)
            pushed[over | under] = 0.0
        n = len(pushed)
        gradient = policy.gradient(now, -pushed / n, np.full(n, -weight / n))
        gradient, norm = clip_norm(gradient, self.settings.max_gradient_norm)
        if not np.isfinite(norm):
            self._skipped += 1
            return norm
        self._adam.step(policy.parameters, gradient, rate)
        return norm

    def _advantages(self, batch: Batch, steps: Steps) -> tuple[Floats, Floats | None]:
        """Advantages [n], and the value's targets [n] if there is a value."""
        s = self.settings
        to_go = estimate.returns_to_go(steps.rewards, steps.lengths, s.gamma)
        if s.baseline == "none":
            return to_go, None
        if s.baseline == "value":
            self._value.rescale(to_go)
            values = self._value.predict(batch.inputs)[batch.rows]
            result = estimate.gae(steps.rewards, values, steps.lengths, s.gamma, s.gae_lambda)
            return result, result + values
        returns = to_go[np.cumsum(steps.lengths) - steps.lengths]
        if s.baseline == "leave-one-out":
            compared = estimate.leave_one_out(returns, steps.groups)
        else:
            compared = self._against_running(returns, steps.categories)
        return estimate.spread(compared, steps.lengths), None

    def _against_running(self, returns: Floats, categories: Sequence[str]) -> Floats:
        """Returns minus the category's running mean, which then follows them."""
        result = np.zeros_like(returns)
        labels = np.array(categories)
        for category in sorted(set(categories)):
            mine = labels == category
            mean = float(returns[mine].mean())
            before = self._running.get(category, mean)
            result[mine] = returns[mine] - before
            self._running[category] = before + self.settings.running_rate * (mean - before)
        return result

    def _minibatches(self, n: int, key: Key) -> list[NDArray[np.int64] | None]:
        """Rows of each step; None is all of them."""
        s = self.settings
        if s.minibatches == 1:
            return [None] * s.epochs
        result: list[NDArray[np.int64] | None] = []
        for epoch in range(s.epochs):
            seed = key.child("epoch", epoch).integer()
            order = np.random.Generator(np.random.PCG64(seed)).permutation(n)
            parts = np.array_split(order, min(s.minibatches, n))
            result.extend(part.astype(np.int64) for part in parts)
        return result

    # ------------------------------------------------------------------ state

    def save(self) -> Saved:
        """The optimiser, the baselines, the history."""
        arrays, value = self._value.save()
        arrays["policy.first"] = pack(self._adam.first)
        arrays["policy.second"] = pack(self._adam.second)
        data: dict[str, Any] = {
            "steps": self._adam.steps,
            "value": value,
            "running": dict(sorted(self._running.items())),
            "history": [list(one) for one in self._history],
            "skipped": self._skipped,
        }
        return Saved(arrays, data)

    def load(self, saved: Saved) -> None:
        """Take over a saved state; raises `CheckpointError` if it is damaged."""
        try:
            data = saved.data
            self._value.load(saved, data["value"], self._path)
            first = unpack(saved, "policy.first", None, self._path)
            self._adam = Adam(len(first))
            self._adam.first = first
            self._adam.second = unpack(saved, "policy.second", first.shape, self._path)
            self._adam.steps = int(data["steps"])
            self._running = {name: float(mean) for name, mean in data["running"].items()}
            self._history = [(int(count), float(reward)) for count, reward in data["history"]]
            self._skipped = int(data["skipped"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self._path}: the saved state of reinforce is damaged: {error!r}"
            ) from error


def draw(problems: Sequence[Problem], key: Key, settings: Reinforce) -> list[Job]:
    """An iteration's episodes: groups on one problem each, without replacement lap by lap."""
    if not problems:
        raise UsageError("the task has no training problems")
    wanted = ceil(settings.episodes / settings.group)
    order: list[int] = []
    while len(order) < wanted:
        lap = list(range(len(problems)))
        key.child("lap", len(order)).random().shuffle(lap)
        order.extend(lap)
    return [
        Job(problems[index], key.child("episode", place, sample))
        for place, index in enumerate(order[:wanted])
        for sample in range(settings.group)
    ]


def _mean(values: Sequence[float]) -> float:
    """The mean of those that are finite, 0 if none is."""
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else 0.0
