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
- Adam stands here, as `torch.optim` takes more than a second of CPU to load
- an update that is not finite is skipped and counted
- decisions that lead to situations seen n times in training earn a bonus of c / sqrt(n), in units
  of the rewards' spread; it falls to 0 by the middle of the training; no metric has it. Stopping
  leads nowhere, so it is dear for as long as what lies behind going on is little known. Where most
  situations are new for ever, there is no bonus
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from orchestrion_encoders.tensors import generator_of, pack, serial, unpack
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from orchestrion import (
    Array,
    CheckpointError,
    Episode,
    Job,
    Key,
    Metrics,
    OpenContext,
    Problem,
    RunError,
    Saved,
    Session,
    UsageError,
)
from orchestrion_reinforce.diagnosis import Diagnosis
from orchestrion_reinforce.networks import multilayer
from orchestrion_reinforce.reinforce import Planned, Reinforce, TorchPolicy
from orchestrion_reinforce.topology import team_metrics

if TYPE_CHECKING:
    from orchestrion_reinforce.neural_policy import Batch

__all__ = ["Learner", "Steps", "Value", "draw", "gae", "gather", "leave_one_out", "normalize"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATE = 0.05
"""Weight of a new iteration in the running mean and deviation of returns."""
FINE = 20
"""Numbers of a situation are told apart to 1/FINE when situations are counted."""
EQUAL = 1e-8
"""Relative spread below which advantages count as equal: rounding, not information."""


class Learner(Planned):
    """Trains the session's policy; its state is the optimisers', the baselines' and the history."""

    def __init__(self, settings: Reinforce, ctx: OpenContext) -> None:
        super().__init__(settings, ctx.path)
        self._value = Value(settings.value_hidden, ctx.key.child("value"))
        self._policy = Adam("policy")
        self._novelty = Novelty()
        self._running: dict[str, float] = {}
        self._diagnosis = Diagnosis()
        self._skipped = 0
        self._ctx = ctx

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Roll out, estimate, update."""
        self.check(session)
        s, policy = self.settings, session.policy
        episodes = await session.rollout(draw(session.problems("train"), session.key, s))
        steps = gather(episodes)
        left = 1 - i / (s.novelty_share * s.iterations)
        if left > 0 and s.novelty:
            steps = self._novelty.added(steps, s.novelty * left)
        else:
            self._novelty.counts.clear()
        metrics = {"excluded": float(steps.excluded), **team_metrics(episodes, session.roster)}
        if steps.records:
            with serial():
                metrics |= self._update(i, policy, steps, session.key.child("update"))
        policy.learn(episodes)
        self._diagnosis.add(episodes, metrics.get("entropy"))
        metrics["skipped_updates"] = float(self._skipped)
        metrics["episodes_to_90"] = float(self._diagnosis.episodes_to())
        if i == s.iterations - 1:
            warnings = self._diagnosis.warnings(session.roster)
            for name, text in warnings.items():
                self._ctx.note(name, text)
            metrics["warnings"] = float(len(warnings))
        return metrics

    def _update(self, i: int, policy: TorchPolicy, steps: Steps, key: Key) -> dict[str, float]:
        s = self.settings
        left = 1 - i / s.iterations
        rate = s.learning_rate * (s.learning_rate_end + (1 - s.learning_rate_end) * left)
        weight = s.entropy_end + (s.entropy - s.entropy_end) * left**s.entropy_power
        batch = policy.collect(steps.records)
        seen = _seen(batch)
        advantages, targets = self._advantages(batch, seen, steps)
        if s.normalize:
            advantages = normalize(advantages)
        gains = torch.tensor(advantages, dtype=torch.float32)
        with torch.no_grad():
            before, entropy = _chosen(policy, batch)
        norms: list[float] = []
        losses: list[float] = []
        for rows in self._minibatches(len(batch), key):
            part = batch if isinstance(rows, slice) else batch.take(rows)
            logp, spread = _chosen(policy, part)
            ratio, gain = (logp - before[rows]).exp(), gains[rows]
            pushed = ratio * gain
            if s.clip is not None:
                pushed = torch.min(pushed, ratio.clamp(1 - s.clip, 1 + s.clip) * gain)
            loss = -pushed.mean() - weight * spread.mean()
            assert policy.network is not None
            norms.append(self._policy.step(policy.network, loss, rate, s.max_gradient_norm))
            if targets is not None:
                error = self._value.error(_seen(part), targets[rows], part.rows)
                norm = self._value.optimizer.step(
                    self._value.network, error, rate, s.max_gradient_norm
                )
                losses.append(float(error.detach()) if np.isfinite(norm) else np.nan)
        self._skipped += int((~np.isfinite([*norms, *losses])).sum())
        if not np.isfinite(norms).any():
            raise RunError(
                f"reinforce: all {len(norms)} updates of iteration {i} were skipped, since no "
                f"gradient was finite; rewards went from {steps.totals.min():.3g} to "
                f"{steps.totals.max():.3g}: look at the reward function and the task's features"
            )
        with torch.no_grad():
            drift = (_chosen(policy, batch)[0] - before).double()
        ratio = drift.exp()
        far = 0.0 if s.clip is None else float(((ratio - 1).abs() > s.clip).double().mean())
        return {
            "entropy": float(entropy.mean()),
            "entropy_weight": weight,
            "learning_rate": rate,
            # Schulman's low-variance estimate of KL(old, new).
            "kl": float((drift.expm1() - drift).mean()),
            "clip_fraction": far,
            "gradient_norm": _mean(norms),
            "value_loss": _mean(losses),
        }

    def _advantages(self, batch: Batch, seen: Tensor, steps: Steps) -> tuple[Floats, Tensor | None]:
        """Advantages [n], and the value's targets [n] if there is a value."""
        s, lengths = self.settings, steps.lengths
        to_go = gae(steps.rewards, np.zeros_like(steps.rewards), lengths, s.gamma, 1.0)
        if s.baseline == "none":
            return to_go, None
        if s.baseline == "value":
            self._value.rescale(seen.shape[1], to_go)
            values = self._value.predict(seen)[batch.rows.numpy()]
            result = gae(steps.rewards, values, lengths, s.gamma, s.gae_lambda)
            return result, torch.from_numpy(result + values)
        returns = to_go[np.cumsum(lengths) - lengths]
        if s.baseline == "leave-one-out":
            compared = leave_one_out(returns, steps.groups)
        else:
            compared = self._against_running(returns, steps.categories)
        return np.repeat(compared, lengths), None

    def _against_running(self, returns: Floats, categories: Sequence[str]) -> Floats:
        """Returns minus the category's running mean, which then follows them."""
        result, labels = np.zeros_like(returns), np.array(categories)
        for category in sorted(set(categories)):
            mine = labels == category
            mean = float(returns[mine].mean())
            before = self._running.get(category, mean)
            result[mine] = returns[mine] - before
            self._running[category] = before + self.settings.running_rate * (mean - before)
        return result

    def _minibatches(self, n: int, key: Key) -> list[Tensor | slice]:
        """The decisions of each step."""
        s = self.settings
        if s.minibatches == 1:
            return [slice(None)] * s.epochs
        parts: list[Tensor | slice] = []
        for epoch in range(s.epochs):
            order = torch.randperm(n, generator=generator_of(key.child("epoch", epoch)))
            parts += order.tensor_split(min(s.minibatches, n))
        return parts

    def save(self) -> Saved:
        """The optimisers, the baselines, the history."""
        arrays, value = self._value.save()
        data = {
            "value": value,
            "policy": self._policy.steps,
            "running": dict(sorted(self._running.items())),
            "novelty": self._novelty.save(),
            "diagnosis": self._diagnosis.save(),
            "skipped": self._skipped,
        }
        return Saved({**arrays, **self._policy.save()}, data)

    def load(self, saved: Saved) -> None:
        """Take over a saved state; raises `CheckpointError` if it is damaged."""
        try:
            data: Any = saved.data
            self._value.load(saved, data["value"], self.path)
            self._policy.load(saved, data["policy"], self.path)
            self._novelty = Novelty.load(data["novelty"])
            self._running = {name: float(mean) for name, mean in data["running"].items()}
            self._diagnosis = Diagnosis.load(data["diagnosis"])
            self._skipped = int(data["skipped"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.path}: the saved state of reinforce is damaged: {error!r}"
            ) from error


# ------------------------------------------------------------------------- networks at work


def _chosen(policy: TorchPolicy, batch: Batch) -> tuple[Tensor, Tensor]:
    """Of each decision [n]: log-probability, and entropy over ln(allowed choices), 0 to 1."""
    logp = policy.log_probabilities(batch)
    count = batch.allowed.sum(1)
    scale = torch.where(count > 1, 1 / count.clamp(min=2).log(), 0.0)
    entropy = -(logp.exp() * logp).sum(1) * scale
    return logp[batch.rows, batch.actions], entropy[batch.rows]


def _seen(batch: Batch) -> Tensor:
    """What a value goes by [m, f]: the situation, and the means over its choices and turns."""
    inputs = batch.inputs
    parts = [inputs.context, inputs.choices.mean(1)]
    if inputs.turns is not None:
        parts.append(inputs.turns.sum(1) / inputs.lengths.clamp(min=1).unsqueeze(1))
    return torch.cat(parts, 1)


class Novelty:
    """How often each situation was entered in training, by its category and rounded numbers."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.spread = 0.0
        """Largest deviation of an iteration's rewards; that of a policy that always stops is 0."""

    def added(self, steps: Steps, weight: float) -> Steps:
        """The steps with a bonus of weight x spread / sqrt(times) for entering each situation."""
        if not steps.records:
            return steps
        self.spread = max(self.spread, float(steps.totals.std()))
        first = np.zeros(len(steps.records), np.bool_)
        first[np.cumsum(steps.lengths) - steps.lengths] = True
        kinds = np.repeat(np.array(steps.categories, object), steps.lengths)
        names: dict[tuple[int, str], str] = {}
        entered: list[tuple[int, str]] = []
        for t in np.flatnonzero(~first).tolist():
            numbers, kind = steps.records[t].familiar, kinds[t]
            name = names.get((id(numbers), kind))
            if name is None:
                rounded = np.rint(FINE * numbers).astype("<i4").tobytes()
                digest = blake2b(kind.encode() + b"\0" + rounded, digest_size=8)
                name = names[id(numbers), kind] = digest.hexdigest()
            self.counts[name] = self.counts.get(name, 0) + 1
            entered.append((t - 1, name))
        # Where situations hardly ever come again, counts tell nothing, and going on is no merit.
        again = sum(self.counts[name] > 1 for _, name in entered) / max(1, len(entered))
        scale = weight * self.spread * max(0.0, 2 * again - 1)
        rewards = steps.rewards.copy()
        for t, name in entered:
            rewards[t] += scale / self.counts[name] ** 0.5
        return steps._replace(rewards=rewards)

    def save(self) -> Any:
        """As plain data."""
        return {"spread": self.spread, "counts": dict(sorted(self.counts.items()))}

    @classmethod
    def load(cls, data: Any) -> Novelty:
        """From what `save` gave."""
        result = cls()
        result.spread, result.counts = float(data["spread"]), dict(data["counts"])
        return result


class Adam:
    """Adam (Kingma and Ba 2015) for all weights of a module as one vector, with saved moments.

    `torch.optim` loads the compiler's front end, which takes as long as torch itself.
    """

    def __init__(self, name: str) -> None:
        self.name, self.steps = name, 0
        self._first = self._second = torch.zeros(0)

    def step(self, module: nn.Module, loss: Tensor, rate: float, limit: float | None) -> float:
        """One step; the gradient's norm before limiting. One that is not finite changes nothing."""
        weights = [*module.parameters()]
        gradient = parameters_to_vector(torch.autograd.grad(loss, weights))
        norm = float(gradient.norm())
        if not np.isfinite(norm):
            return norm
        if limit is not None and norm > limit:
            gradient *= limit / norm
        if not self.steps:
            self._first = self._second = torch.zeros_like(gradient)
        self.steps += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient.square()
        # 1e-5 instead of 1e-8: near-zero second moments must not turn noise into steps.
        scale = (self._second / (1 - 0.999**self.steps)).sqrt_().add_(1e-5)
        with torch.no_grad():
            change = (rate / (1 - 0.9**self.steps)) * self._first / scale
            vector_to_parameters(parameters_to_vector(weights) - change, weights)
        return norm

    def save(self) -> dict[str, Array]:
        """The moments."""
        return {f"{self.name}.first": pack(self._first), f"{self.name}.second": pack(self._second)}

    def load(self, saved: Saved, steps: int, path: str) -> None:
        """Take over saved moments after this many steps."""
        name = f"{self.name}.first"
        size = saved.arrays[name].shape if name in saved.arrays else (0,)
        self._first = unpack(saved, name, torch.zeros(size), path)
        self._second = unpack(saved, f"{self.name}.second", torch.zeros(size), path)
        self.steps = int(steps)


class Value:
    """A network whose unit follows the returns, so that their scale does not matter.

    When the running mean or deviation moves, the last layer is changed so that predictions stay
    as they were (PopArt).
    """

    def __init__(self, hidden: Sequence[int], key: Key) -> None:
        self._hidden, self._key = tuple(hidden), key
        self.network: nn.Sequential = nn.Sequential()
        """Without layers until the first iteration has shown how many numbers it reads."""
        self.optimizer = Adam("value")
        self._mean, self._deviation = 0.0, 1.0

    def predict(self, seen: Tensor) -> Floats:
        """Expected returns [m]."""
        with torch.no_grad():
            units: Floats = self.network(seen)[:, 0].double().numpy()
        return self._mean + self._deviation * units

    def error(self, seen: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """The mean squared error in units, for targets [n] of the inputs `rows` [n]."""
        units = ((targets - self._mean) / self._deviation).float()
        result: Tensor = ((self.network(seen)[:, 0][rows] - units) ** 2).mean()
        return result

    def rescale(self, width: int, returns: Floats) -> None:
        """Follow the mean and deviation of an iteration's returns."""
        first = not len(self.network)
        if first:
            self._build(width)
        mean, deviation = float(returns.mean()), float(returns.std())
        if not first:
            mean = self._mean + RATE * (mean - self._mean)
            deviation = self._deviation + RATE * (deviation - self._deviation)
        # Equal returns have no spread to follow; a tiny unit would blow up what comes next.
        deviation = max(deviation, 1e-3 * abs(mean), 1e-6)
        if not first:
            last = self.network[-1]
            with torch.no_grad():
                last.weight *= self._deviation / deviation
                last.bias.mul_(self._deviation).add_(self._mean - mean).div_(deviation)
        self._mean, self._deviation = mean, deviation

    def _build(self, width: int) -> None:
        self.network = multilayer((width, *self._hidden, 1), generator_of(self._key))

    def save(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and data of its state."""
        width = self.network[0].in_features if len(self.network) else None
        arrays = {f"value.{n}": pack(p) for n, p in self.network.named_parameters()}
        data = {"inputs": width, "mean": self._mean, "deviation": self._deviation}
        return {**arrays, **self.optimizer.save()}, {**data, "steps": self.optimizer.steps}

    def load(self, saved: Saved, data: dict[str, Any], path: str) -> None:
        """Take over a saved state."""
        self.network = nn.Sequential()
        self._mean, self._deviation = float(data["mean"]), float(data["deviation"])
        self.optimizer.load(saved, int(data["steps"]), path)
        if data["inputs"] is not None:
            self._build(int(data["inputs"]))
            for name, parameter in self.network.named_parameters():
                parameter.data = unpack(saved, f"value.{name}", parameter, path)


# ------------------------------------------------------------ which decision earned what


class Steps(NamedTuple):
    """Decisions to learn from, episode after episode.

    Args:
        records: what the policy recorded, one a decision [n].
        rewards: what came between this decision and the next [n]; a decision's turns, and at
            the last one the terminal part.
        lengths: decisions of each episode [e].
        groups: which problem each episode is a sample of [e].
        categories: its category [e].
        totals: its reward [e].
        excluded: episodes without a reward, or without a decision of this policy.
    """

    records: tuple[Any, ...]
    rewards: Floats
    lengths: Ints
    groups: Ints
    categories: tuple[str, ...]
    totals: Floats
    excluded: int


def gather(episodes: Sequence[Episode]) -> Steps:
    """The decisions of all episodes that can be learned from.

    An episode without a reward is left out and counted, never given a default. One that ended
    at a limit counts as ended: its reward says what that is worth. What turns got (`reward.turns`)
    belongs to the decisions that started them, the rest to the last one; what belongs to a
    decision without a record, to the one before it.
    """
    records: list[Any] = []
    rewards: list[float] = []
    kept: list[tuple[Episode, int, float]] = []
    for episode in episodes:
        reward = episode.reward
        mine = [i for i, decision in enumerate(episode.decisions) if decision.record is not None]
        if reward is None or not mine:
            continue
        parts = [0.0] * len(episode.decisions)
        if reward.turns is not None:
            if len(reward.turns) != len(episode.turns):
                raise RunError(
                    f"episode {episode.id}: the reward function gave {len(reward.turns)} turn "
                    f"rewards for {len(episode.turns)} turns; it must give one for each, or none"
                )
            for turn, part in zip(episode.turns, reward.turns, strict=True):
                parts[turn.decision] += part
        parts[-1] += reward.total - sum(reward.turns or ())
        records += [episode.decisions[i].record for i in mine]
        ends = [*mine[1:], len(parts)]
        rewards += [sum(parts[start:end]) for start, end in zip(mine, ends, strict=True)]
        kept.append((episode, len(mine), reward.total))
    known: dict[str, int] = {}
    return Steps(
        tuple(records),
        np.array(rewards, np.float64),
        np.array([length for _, length, _ in kept], np.int64),
        np.array([known.setdefault(e.problem.id, len(known)) for e, _, _ in kept], np.int64),
        tuple(episode.problem.category for episode, _, _ in kept),
        np.array([total for _, _, total in kept], np.float64),
        len(episodes) - len(kept),
    )


# ------------------------------------------------- estimators: pure functions over flat arrays


def gae(rewards: Floats, values: Floats, lengths: Ints, gamma: float, lam: float) -> Floats:
    """Generalised advantage estimation, of decisions [n] of episodes of `lengths` [e].

    A_t = delta_t + gamma lam A_(t+1), delta_t = r_t + gamma V_(t+1) - V_t, with V = A = 0 after
    an episode's end. lam = 1 gives G_t - V_t, lam = 0 the one-step error; V = 0 and lam = 1 the
    return G_t = r_t + gamma G_(t+1), which counts every cost once.
    """
    longest = int(lengths.max()) if len(lengths) else 0
    filled = np.arange(longest) < lengths[:, None]
    reward, value, result = (np.zeros(filled.shape) for _ in range(3))
    reward[filled], value[filled] = rewards, values
    after, next_value = np.zeros(len(lengths)), np.zeros(len(lengths))
    for t in range(longest - 1, -1, -1):
        delta = reward[:, t] + gamma * next_value - value[:, t]
        # Columns beyond an episode's end are 0 and stay 0.
        after = np.where(filled[:, t], delta + gamma * lam * after, 0.0)
        next_value, result[:, t] = value[:, t], after
    flat: Floats = result[filled]
    return flat


def leave_one_out(returns: Floats, groups: Ints) -> Floats:
    """Each episode's return minus the mean of the *others* in its group, samples of one problem.

    A_i = R_i - 1/(n-1) sum_(j != i) R_j. A group of one compares with nothing: its advantage is 0,
    not its raw return. Equal returns give exactly 0.
    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    # Shifted by one member, so that equal returns cancel exactly.
    first = np.zeros(len(counts))
    first[group[::-1]] = returns[::-1]
    shifted = returns - first[group]
    n, total = counts[group], np.bincount(group, shifted, len(counts))[group]
    result: Floats = np.where(n > 1, shifted - (total - shifted) / np.maximum(n - 1, 1), 0.0)
    return result


def normalize(advantages: Floats) -> Floats:
    """Mean 0 and standard deviation 1 over the batch; zeros where all are equal.

    Without that rule, a batch in which nothing differs would turn rounding into full-strength
    gradients.
    """
    if not len(advantages):
        return advantages
    centred = advantages - advantages.mean()
    deviation = float(np.sqrt(np.mean(centred * centred)))
    if deviation <= EQUAL * float(np.abs(advantages).max()):
        return np.zeros_like(advantages)
    result: Floats = centred / deviation
    return result


def draw(problems: Sequence[Problem], key: Key, settings: Reinforce) -> list[Job]:
    """An iteration's episodes: groups on one problem each, without replacement lap by lap."""
    if not problems:
        raise UsageError("the task has no training problems")
    wanted = -(-settings.episodes // settings.group)
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
