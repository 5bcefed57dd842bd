"""The trainer `reinforce` at work: PPO, down to plain REINFORCE. Read `Learner.iterate` first.

Sources: REINFORCE (Williams 1992), leave-one-out baseline (Kool et al. 2019), generalised advantage
estimation (Schulman et al. 2016, eq. 16), PPO (Schulman et al. 2017, eq. 7), PopArt (van Hasselt
et al. 2016), bonus for rare situations (MBIE-EB, Strehl and Littman 2008; over rounded features,
Tang et al. 2017). Where it departs from PPO as in cleanrl's `ppo.py`:

- episodes, not steps: every iteration plays whole episodes, so nothing is bootstrapped
- policy and value are two networks, each with an Adam and a gradient norm of its own
- the value's unit follows the returns (PopArt) instead of clipping its loss
- the entropy is divided by the logarithm of the number of allowed choices, and its weight falls
  from a high value to 0: policies that settle early never try the long ways that pay
- situations that are equal are computed once, with as many advantages as decisions
- old log-probabilities are computed again before the update, from what the decisions recorded, so
  that nothing depends on which situations were decided in one batch
- an update that is not finite is skipped and counted
- decisions that lead to situations seen n times in training earn a bonus of c / sqrt(n), in units
  of the rewards' spread; it falls to 0 by the middle of the training; no metric has it. Stopping
  earns no bonus, so it looks costly until what follows from going on is well explored. Where most
  situations are new for ever, there is no bonus
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from attrs import asdict, define, field
from numpy.typing import NDArray
from orchestrion_encoders.tensors import Adam, generator_of, pack, serial
from torch import Tensor

from orchestrion import (
    CheckpointError,
    Experience,
    Job,
    Key,
    Metrics,
    OpenContext,
    Problem,
    RunError,
    Saved,
    Session,
    UsageError,
    fold,
    gather,
    laps,
    waves,
)
from orchestrion.runs import convergence
from orchestrion_reinforce.networks import Value
from orchestrion_reinforce.reinforce import Planned, Reinforce, TorchPolicy

if TYPE_CHECKING:
    from orchestrion_reinforce.neural_policy import Batch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FINE = 20
"""Numbers of a situation are rounded to 1/FINE when situations are counted."""
EQUAL = 1e-8
"""Relative spread below which advantages count as equal: rounding, not information."""


class Learner(Planned):
    """Trains the session's policy; its state is optimisers, baselines and history."""

    def __init__(self, settings: Reinforce, ctx: OpenContext) -> None:
        super().__init__(settings, ctx.path)
        self._key = ctx.key.child("value")
        self._value: Value | None = None  # until the first iteration shows its number of inputs
        self._adams = {"policy": Adam(), "value": Adam()}
        self._novelty = Novelty()
        self._running: dict[str, float] = {}
        self._history: list[tuple[int, float]] = []
        self._skipped = 0

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Play episodes, estimate advantages, update."""
        self.check(session)
        s, policy = self.settings, session.policy
        episodes = await session.rollout(draw(session.problems("train"), session.key, s))
        experiences = gather(episodes, object)
        names = [member.name for member in session.roster]
        metrics = fold(waves(episode.turns) for episode in episodes).metrics(names)
        bonus = s.novelty * max(0.0, 1 - i / (s.novelty_share * s.iterations))
        if not bonus:
            self._novelty.counts.clear()
        if experiences:
            steps = Steps.of(experiences)
            self._history.append(((i + 1) * len(episodes), float(steps.totals.mean())))
            if bonus:
                steps = self._novelty.added(steps, bonus)
            with serial():
                metrics |= self._update(i, policy, steps, session.key.child("update"))
        policy.learn(episodes)
        return {
            **metrics,
            "excluded": float(len(episodes) - len(experiences)),
            "skipped_updates": float(self._skipped),
            "episodes_to_90": float(convergence(self._history)),
        }

    def _update(self, i: int, policy: TorchPolicy, steps: Steps, key: Key) -> dict[str, float]:
        s = self.settings
        left = 1 - i / s.iterations
        rate = s.learning_rate * (s.learning_rate_end + (1 - s.learning_rate_end) * left)
        weight = s.entropy_end + (s.entropy - s.entropy_end) * left**s.entropy_power
        batch = policy.collect(steps.records)
        advantages, targets = self._advantages(batch, steps)
        gains = torch.tensor(normalize(advantages) if s.normalize else advantages).float()
        with torch.no_grad():
            before, entropy = _chosen(policy, batch)
        norms: list[float] = []
        losses: list[float] = []
        for rows in self._minibatches(len(gains), key):
            part = batch.take(rows)
            logp, spread = _chosen(policy, part)
            ratio, gain = (logp - before[rows]).exp(), gains[rows]
            loss = -clipped(ratio, gain, s.clip).mean() - weight * spread.mean()
            assert policy.network is not None
            step = self._adams["policy"].step
            norms.append(step(policy.network, loss, rate, s.max_gradient_norm))
            if targets is not None and self._value is not None:
                error = self._value.error(part.inputs.flat, targets[rows], part.rows)
                norm = self._adams["value"].step(self._value, error, rate, s.max_gradient_norm)
                losses.append(float(error.detach()) if np.isfinite(norm) else np.nan)
        self._skipped += int((~np.isfinite([*norms, *losses])).sum())
        if not np.isfinite(norms).any():
            raise RunError(
                f"reinforce: all {len(norms)} updates of iteration {i + 1} were skipped, since no "
                f"gradient was finite; rewards went from {steps.totals.min():.3g} to "
                f"{steps.totals.max():.3g}: look at the reward function and the task's features"
            )
        with torch.no_grad():
            drift = (_chosen(policy, batch)[0] - before).double()
        far = (drift.exp() - 1).abs() > (np.inf if s.clip is None else s.clip)
        return {
            "entropy": float(entropy.mean()),
            "entropy_weight": weight,
            "learning_rate": rate,
            # Schulman's low-variance estimate of KL(old, new).
            "kl": float((drift.expm1() - drift).mean()),
            "clip_fraction": float(far.double().mean()),
            "gradient_norm": _mean(norms),
            "value_loss": _mean(losses),
        }

    def _advantages(self, batch: Batch, steps: Steps) -> tuple[Floats, Tensor | None]:
        """Return advantages [n], and the targets of the value [n] if there is one."""
        s, lengths = self.settings, steps.lengths
        to_go = gae(steps.rewards, np.zeros_like(steps.rewards), lengths, s.gamma, 1.0)
        if s.baseline == "none":
            return to_go, None
        if s.baseline == "value":
            seen = batch.inputs.flat
            self._value = self._value or Value(seen.shape[1], s.value_hidden, self._key)
            self._value.rescale(to_go)
            values = self._value.predict(seen)[batch.rows.numpy()]
            result = gae(steps.rewards, values, lengths, s.gamma, s.gae_lambda)
            return result, torch.from_numpy(result + values)
        returns = to_go[steps.starts]
        if s.baseline == "leave-one-out":
            compared = leave_one_out(returns, np.array([problem.id for problem in steps.problems]))
        else:
            compared = self._against_running(returns, steps)
        return np.repeat(compared, lengths), None

    def _against_running(self, returns: Floats, steps: Steps) -> Floats:
        """Return returns minus the category's running mean, which then follows them."""
        labels = np.array([problem.category for problem in steps.problems])
        result = np.zeros_like(returns)
        for category in sorted({*labels.tolist()}):
            mine = labels == category
            mean = float(returns[mine].mean())
            before = self._running.get(category, mean)
            result[mine] = returns[mine] - before
            self._running[category] = before + self.settings.running_rate * (mean - before)
        return result

    def _minibatches(self, n: int, key: Key) -> Iterator[Tensor]:
        """Yield the indices of decisions for each gradient step."""
        for epoch in range(self.settings.epochs):
            order = torch.randperm(n, generator=generator_of(key.child("epoch", epoch)))
            yield from order.tensor_split(min(self.settings.minibatches, n))

    def save(self) -> Saved:
        value, adams = self._value, self._adams
        arrays = {f"adam.{name}": pack(adam.moments) for name, adam in adams.items()}
        data = {
            "value": None if value is None else [value.width, *value.unit],
            "steps": {name: adam.steps for name, adam in adams.items()},
            "running": dict(self._running),
            "novelty": asdict(self._novelty),
            "history": [list(row) for row in self._history],
            "skipped": self._skipped,
        }
        return Saved(arrays if value is None else {**arrays, **value.save("value.")}, data)

    def load(self, saved: Saved) -> None:
        """Restore a saved state; raise `CheckpointError` if it is damaged."""
        try:
            data: Any = saved.data
            if data["value"] is not None:
                width, mean, deviation = data["value"]
                self._value = Value(width, self.settings.value_hidden, self._key)
                self._value.unit = mean, deviation
                self._value.load(saved, self.path, "value.")
            for name, adam in self._adams.items():
                adam.load(saved, f"adam.{name}", data["steps"][name], self.path)
            self._novelty = Novelty(**data["novelty"])
            self._running = dict(data["running"])
            self._history = [(int(n), float(mean)) for n, mean in data["history"]]
            self._skipped = int(data["skipped"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self.path}: this state is damaged: {error!r}") from error


def draw(problems: Sequence[Problem], key: Key, settings: Reinforce) -> list[Job]:
    """Return an iteration's episodes: groups on one problem, all problems equally often."""
    if not problems:
        raise UsageError("the task has no training problems")
    order = laps(len(problems), key, 0, -(-settings.episodes // settings.group))
    return [
        Job(problems[index], key.child("episode", place, sample))
        for place, index in enumerate(order)
        for sample in range(settings.group)
    ]


class Steps(NamedTuple):
    """n decisions to learn from, in e episodes, in order."""

    records: tuple[Any, ...]  # of the policy [n]
    rewards: Floats  # between each decision and the next [n]
    lengths: Ints  # decisions of each episode [e]
    totals: Floats  # reward of each episode [e]
    problems: tuple[Problem, ...]  # of each episode [e]

    @classmethod
    def of(cls, experiences: Sequence[Experience[object]]) -> Steps:
        """Return the decisions of episodes in order."""
        episodes = [experience.episode for experience in experiences]
        return cls(
            tuple(record for experience in experiences for record in experience.taken),
            np.concatenate([experience.rewards for experience in experiences], dtype=np.float64),
            np.array([len(experience.taken) for experience in experiences], np.int64),
            np.array([episode.reward.total for episode in episodes if episode.reward]),
            tuple(episode.problem for episode in episodes),
        )

    @property
    def starts(self) -> Ints:
        """Return the index of each episode's first decision [e]."""
        return np.asarray(np.cumsum(self.lengths) - self.lengths)


def _chosen(policy: TorchPolicy, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of decisions [n], and entropies over ln(allowed choices) [n]."""
    logp = policy.log_probabilities(batch)
    count = batch.allowed.sum(1)
    scale = torch.where(count > 1, 1 / count.clamp(min=2).log(), 0.0)
    entropy = -(logp.exp() * logp).sum(1) * scale
    return logp[batch.rows, batch.actions], entropy[batch.rows]


@define
class Novelty:
    """Counts of situations entered in training, by category and rounded numbers.

    `spread` is the largest standard deviation of an iteration's rewards, as that of a policy that
    always stops is 0.
    """

    counts: dict[str, int] = field(factory=dict, converter=dict)
    spread: float = 0.0

    def added(self, steps: Steps, weight: float) -> Steps:
        """Return the steps with a bonus of weight x spread / sqrt(count) for entered situations."""
        self.spread = max(self.spread, float(steps.totals.std()))
        kinds = np.repeat(np.array([p.category for p in steps.problems], object), steps.lengths)
        names: dict[tuple[int, str], str] = {}  # shared records are hashed once
        entered: list[tuple[int, str]] = []
        for t in np.setdiff1d(np.arange(len(steps.records)), steps.starts).tolist():
            numbers, kind = steps.records[t].familiar, kinds[t]
            name = names.get((id(numbers), kind))
            if name is None:
                rounded = kind.encode() + b"\0" + np.rint(FINE * numbers).astype("<i4").tobytes()
                name = names[id(numbers), kind] = blake2b(rounded, digest_size=8).hexdigest()
            self.counts[name] = self.counts.get(name, 0) + 1
            entered.append((t - 1, name))
        # If situations hardly repeat, counts are meaningless and there is no bonus.
        again = sum(self.counts[name] > 1 for _, name in entered) / max(1, len(entered))
        scale = weight * self.spread * max(0.0, 2 * again - 1)
        rewards = steps.rewards.copy()
        for t, name in entered:
            rewards[t] += scale / self.counts[name] ** 0.5
        return steps._replace(rewards=rewards)


# ------------------------------------------------- estimators: pure functions over flat arrays


def gae(rewards: Floats, values: Floats, lengths: Ints, gamma: float, lam: float) -> Floats:
    """Return generalised advantages of decisions [n] of episodes of `lengths` [e].

    A_t = delta_t + gamma lam A_(t+1), delta_t = r_t + gamma V_(t+1) - V_t, with V = A = 0 after
    an episode's end. lam = 1 gives G_t - V_t, lam = 0 the one-step error; V = 0 and lam = 1 the
    return G_t = r_t + gamma G_(t+1), which counts every cost once.
    """
    longest = int(lengths.max(initial=0))
    filled = np.arange(longest) < lengths[:, None]
    delta, value = np.zeros(filled.shape), np.zeros(filled.shape)  # 0 beyond an episode's end
    delta[filled], value[filled] = rewards - values, values
    delta[:, :-1] += gamma * value[:, 1:]
    for t in range(longest - 2, -1, -1):
        delta[:, t] += gamma * lam * delta[:, t + 1]
    return np.asarray(delta[filled])


def clipped(ratio: Tensor, advantages: Tensor, clip: float | None) -> Tensor:
    """Return min(rho A, clip(rho, 1 - clip, 1 + clip) A), or rho A without `clip`, shape [n].

    Its gradient is 0 where rho has moved by more than `clip` in the direction of A.
    """
    plain = ratio * advantages
    if clip is None:
        return plain
    return torch.min(plain, ratio.clamp(1 - clip, 1 + clip) * advantages)


def leave_one_out(returns: Floats, groups: NDArray[Any]) -> Floats:
    """Return each return minus the mean of the *others* in its group (one problem).

    A_i = R_i - 1/(n-1) sum_(j != i) R_j. The advantage in a group of one is 0, not its return.
    Equal returns give exactly 0.
    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    # Shifted by one member, so that equal returns cancel exactly.
    first = np.zeros(len(counts))
    first[group[::-1]] = returns[::-1]
    shifted = returns - first[group]
    n, total = counts[group], np.bincount(group, shifted, len(counts))[group]
    return np.where(n > 1, shifted - (total - shifted) / np.maximum(n - 1, 1), 0.0)


def normalize(advantages: Floats) -> Floats:
    """Return advantages with mean 0 and standard deviation 1; zeros if all are equal.

    Otherwise, equal advantages would turn rounding errors into full gradients.
    """
    if not len(advantages):
        return advantages
    centred, deviation = advantages - advantages.mean(), float(advantages.std())
    equal = deviation <= EQUAL * float(np.abs(advantages).max())
    return np.zeros_like(advantages) if equal else np.asarray(centred / deviation)


def _mean(values: Sequence[float]) -> float:
    """Return the mean of the finite values; 0 without any."""
    return float(np.mean([value for value in values if np.isfinite(value)] or [0.0]))
