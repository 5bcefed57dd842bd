"""An iteration's steps with one model, and their loss: equation 3, see `trainer`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from attrs import Factory, define, frozen
from orchestrion_local import WeightOptimizer
from orchestrion_local.interfaces import Trainable
from torch.nn.utils.rnn import pad_sequence

from orchestrion import Key
from orchestrion_marl.calls import Call, lengths_of, sizes_of
from orchestrion_marl.rows import Floats, Integers
from orchestrion_marl.settings import AgentSettings, Kl, MarlSettings

Sums = dict[str, dict[str, float]]

K3_BOUND = 10.0
"""Bound of |k3|, whose exponential overflows on a token of probability near 0."""


@frozen
class Batch:
    """Calls of one model's agents; advantages and references have a number for each token.

    Args:
        calls: the calls.
        advantages: one array for each call.
        references: log-probabilities by the weights with which training began, one array for each
            call; empty without a divergence in the loss.
        before: log-probabilities by the weights before the first step, one array for each call;
            empty without `importance_cap`.
    """

    calls: Sequence[Call]
    advantages: Sequence[Floats]
    references: Sequence[Floats] = ()
    before: Sequence[Floats] = ()

    def take(self, places: Sequence[int] | Integers) -> Batch:
        """Return the calls at some places."""
        return Batch(
            [self.calls[i] for i in places],
            [self.advantages[i] for i in places],
            [self.references[i] for i in places] if self.references else (),
            [self.before[i] for i in places] if self.before else (),
        )


@define
class UpdateStatistics:
    """What is measured during a model's optimizer steps.

    Args:
        norms: gradient norm of each step before clipping.
        skipped: steps without effect, since their gradient was not finite.
        sums: by agent and name, sums over tokens; "tokens" is their number.
        micro_batch: tokens in a forward pass.
    """

    norms: list[float] = Factory(list)
    skipped: int = 0
    sums: Sums = Factory(lambda: defaultdict(lambda: defaultdict(float)))
    micro_batch: int = 0

    def add(self, sums: Sums) -> None:
        """Add the sums of a micro-batch."""
        for agent, values in sums.items():
            for name, value in values.items():
                self.sums[agent][name] += value

    def metrics(self, model: str) -> dict[str, float]:
        """Return `model/NAME` of the steps and `agent/NAME`, means over tokens."""
        metrics = {
            f"{model}/skipped": float(self.skipped),
            f"{model}/steps": float(len(self.norms)),
            f"{model}/micro_batch": float(self.micro_batch),
        }
        if self.norms:
            metrics[f"{model}/norm_median"] = float(np.median(self.norms))
            metrics[f"{model}/norm_max"] = max(self.norms)
        for agent, sums in self.sums.items():
            tokens = max(1.0, sums["tokens"])
            metrics |= {f"{agent}/{k}": v / tokens for k, v in sums.items() if k != "tokens"}
        return metrics


def update(
    model: Trainable,
    optimizer: WeightOptimizer,
    batch: Batch,
    settings: MarlSettings,
    agents: Mapping[str, AgentSettings],
    key: Key,
) -> UpdateStatistics:
    """Take an iteration's steps with one model: `updates` in each of `epochs` passes.

    Without calls nothing changes, not even the model's version.
    """
    statistics = UpdateStatistics()
    if not batch.calls:
        return statistics
    for epoch in range(settings.epochs):
        draws = key.child(epoch).uniforms(len(batch.calls))
        order = np.array(sorted(range(len(batch.calls)), key=draws.__getitem__))
        for places in np.array_split(order, min(settings.updates, len(order))):
            part = batch.take(places)
            lengths = lengths_of(part.calls)
            weights = row_weights(
                lengths,
                np.array([agents[call.agent].weight for call in part.calls]),
                [agents[call.agent].aggregation or "" for call in part.calls],
                model.max_tokens,
            )
            learning = _learning(part, settings)
            part, weights = part.take(learning), weights[learning]
            loss_of = partial(_loss, model, part, weights, settings, agents)
            for sums in optimizer.accumulate(sizes_of(part.calls), loss_of):
                statistics.add(sums)
            step = optimizer.step()
            if step.skipped:
                statistics.skipped += 1
            else:
                statistics.norms.append(step.norm)
    model.updated()
    statistics.micro_batch = optimizer.micro_batch
    return statistics


def _learning(batch: Batch, settings: MarlSettings) -> Integers:
    """Return the places of calls with a gradient: of all, if none has or the loss has other terms.

    The others, whose advantages are 0, cost nothing.
    """
    differ = np.array([bool(np.any(values)) for values in batch.advantages])
    if settings.entropy or batch.references or not differ.any():
        differ[:] = True
    return np.flatnonzero(differ)


def _loss(
    model: Trainable,
    batch: Batch,
    weights: Floats,
    settings: MarlSettings,
    agents: Mapping[str, AgentSettings],
    rows: Integers,
) -> tuple[torch.Tensor, Sums]:
    """Return the loss of some rows of a batch, and measured sums over each agent's tokens."""
    batch, weights = batch.take(rows), weights[rows]
    scored = model.score(
        [call.generation for call in batch.calls],
        entropy="gradient" if settings.entropy else "value",
    )
    logprobs, mask = scored.logprobs, scored.mask
    assert scored.entropy is not None
    own = [agents[call.agent] for call in batch.calls]
    low, high, kl_weight = (
        torch.tensor([[getattr(agent, name)] for agent in own], device=mask.device)
        for name in ("clip_low", "clip_high", "kl_weight")
    )
    sampled = _padded([call.generation.logprobs for call in batch.calls], mask.device)
    old = _padded(batch.before, mask.device) if batch.before else sampled
    advantages = _padded(batch.advantages, mask.device)
    terms, clipped = clipped_loss(logprobs, old, advantages, low, high, settings.dual_clip)
    if batch.before:
        terms = terms * (old - sampled).exp().clamp(max=settings.importance_cap)
    shift = (sampled - logprobs).detach()
    measured = {
        "clipped": clipped.float(),
        "entropy": scored.entropy.detach(),
        "shift": shift,
        "mismatch": shift.abs(),
    }
    if settings.entropy:
        terms = terms - settings.entropy * scored.entropy
    if batch.references:
        reference = _padded(batch.references, mask.device)
        measured["kl"] = divergence(logprobs, reference, settings.kl.form).detach()
        kl = divergence_in_loss(logprobs, old, reference, settings.kl)
        terms = terms + kl_weight * kl
    measured["tokens"] = torch.ones_like(mask)
    sums: Sums = defaultdict(lambda: defaultdict(float))
    for name, values in measured.items():
        for call, value in zip(batch.calls, (values * mask).sum(1).tolist(), strict=True):
            sums[call.agent][name] += value
    by_row = torch.as_tensor(weights, dtype=terms.dtype, device=terms.device)
    return (terms * mask * by_row[:, None]).sum(), sums


def clipped_loss(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    low: float | torch.Tensor,
    high: float | torch.Tensor,
    dual: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each token's loss, and whether its ratio was clipped, both [B, L].

    max(-rho A, -clip(rho, 1 - low, 1 + high) A): Schulman et al. 2017 (arXiv 1707.06347); for A < 0
    at most -`dual` A: Ye et al. 2020 (arXiv 1912.09729).

    Args:
        logprobs: log-probabilities now, with gradients, shape [B, L].
        old: log-probabilities when the tokens were sampled, shape [B, L].
        advantages: shape [B, L].
        low: how far rho may fall below 1; for all, or for each row, shape [B, 1].
        high: how far rho may rise above 1; as `low`.
        dual: bound of the loss for A < 0; None for no bound.
    """
    ratio = (logprobs - old).exp()
    plain = -ratio * advantages
    bounds = (torch.as_tensor(bound).to(ratio) for bound in (1 - low, 1 + high))
    clipped = -ratio.clamp(*bounds) * advantages
    terms = torch.maximum(plain, clipped)
    if dual is not None:
        terms = torch.where(advantages < 0, torch.minimum(terms, -dual * advantages), terms)
    return terms, (clipped > plain).detach()


def divergence(logprobs: torch.Tensor, reference: torch.Tensor, form: str) -> torch.Tensor:
    """Return estimates of the KL divergence from the reference, token by token, [B, L].

    k1 = log p - log q; abs = |k1|; k2 = k1^2 / 2; k3 = q/p - log(q/p) - 1, within +-10: Schulman
    2020, http://joschu.net/blog/kl-approx.html.
    """
    difference = logprobs - reference
    if form == "k1":
        return difference
    if form == "abs":
        return difference.abs()
    if form == "k2":
        return 0.5 * difference.square()
    return ((-difference).exp() + difference - 1).clamp(-K3_BOUND, K3_BOUND)


def divergence_in_loss(
    logprobs: torch.Tensor, old: torch.Tensor, reference: torch.Tensor, settings: Kl
) -> torch.Tensor:
    """Return the divergence as the loss has it, times rho if `corrected`, shape [B, L]."""
    kl = divergence(logprobs, reference, settings.form)
    return kl * (logprobs - old).exp() if settings.is_corrected else kl


def row_weights(
    lengths: Integers, share: Floats, aggregation: Sequence[str], longest: int
) -> Floats:
    """Return the weight of each response's tokens, with which their sum is the mean loss, [B].

    Responses with different aggregations have means of their own, weighted by their numbers.

    Args:
        lengths: tokens of each response, shape [B].
        share: weight of each response, e.g. by its agent, shape [B].
        aggregation: of each response, see `MarlSettings.aggregation`.
        longest: the fixed length of "seq-mean-token-sum-norm".
    """
    weights = np.zeros(len(lengths))
    names = np.array(aggregation)
    for name in np.unique(names):
        mine = names == name
        total = (share[mine] * (lengths[mine] if name == "token-mean" else 1)).sum()
        if not total:
            continue
        each = share[mine] / total
        if name == "seq-mean-token-mean":
            each = each / np.maximum(lengths[mine], 1)
        elif name == "seq-mean-token-sum-norm":
            each = each / longest
        weights[mine] = each * mine.mean()
    return weights


def _padded(rows: Sequence[Sequence[float] | Floats], device: torch.device) -> torch.Tensor:
    """Return rows of different lengths as one tensor, padded with 0 at the end."""
    tensors = [torch.as_tensor(row, dtype=torch.float32) for row in rows]
    return pad_sequence(tensors, batch_first=True).to(device)
