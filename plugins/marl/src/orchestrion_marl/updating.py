"""One model's optimizer steps on the calls of an iteration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from attrs import define, field
from orchestrion_local.interfaces import Generation, Scored, Trainable
from orchestrion_local.optimizing import WeightOptimizer

from orchestrion import Key
from orchestrion_marl.calls import Call, lengths_of
from orchestrion_marl.loss import divergence, policy_terms, row_weights
from orchestrion_marl.marl import AgentSettings, Kl, Marl
from orchestrion_marl.rows import Floats, Integers

__all__ = ["Lesson", "Progress", "micro_batches", "update"]


SHORTEST, FEWEST = 0.7, 32
"""Rows shorter than this share of the longest go apart, unless there are fewer than so many."""


@define
class Lesson:
    """What one model learns from.

    Args:
        calls: of its agents.
        advantages: one array a call, of a number a token.
    """

    calls: list[Call]
    advantages: list[Floats]
    reference: list[Floats] = field(factory=list)
    """Log-probabilities under the weights that training began with, if a divergence is taken."""


@define
class Progress:
    """What happened in an iteration's steps; sums over tokens by agent."""

    norms: list[float] = field(factory=list)
    skipped: int = 0
    tokens: dict[str, float] = field(factory=dict)
    sums: dict[str, dict[str, float]] = field(factory=dict)

    def note(self, agent: str, tokens: float, **sums: float) -> None:
        """Add what one agent's tokens gave."""
        self.tokens[agent] = self.tokens.get(agent, 0.0) + tokens
        mine = self.sums.setdefault(agent, {})
        for name, value in sums.items():
            mine[name] = mine.get(name, 0.0) + value

    def metrics(self, model: str) -> dict[str, float]:
        """Gradient norms (before clipping) of the model, the rest by agent."""
        found = {f"{model}/skipped": float(self.skipped), f"{model}/steps": float(len(self.norms))}
        if self.norms:
            found[f"{model}/norm_median"] = float(np.median(self.norms))
            found[f"{model}/norm_max"] = max(self.norms)
        for agent, sums in self.sums.items():
            for name, value in sums.items():
                found[f"{agent}/{name}"] = value / max(1.0, self.tokens[agent])
        return found


def micro_batches(lengths: Integers, most: int) -> Iterator[Integers]:
    """Places of rows, the longest first, so many that rows times longest row stays below `most`.

    A row longer than that is alone. Much shorter rows go apart, since they would be mostly padding.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        fits = order[start : start + max(1, most // longest)]
        alike = int((lengths[fits] >= SHORTEST * longest).sum())
        count = min(len(fits), max(alike, FEWEST))
        yield order[start : start + count]
        start += count


def update(
    model: Trainable,
    optimizer: WeightOptimizer,
    lesson: Lesson,
    settings: Marl,
    agents: Mapping[str, AgentSettings],
    key: Key,
) -> Progress:
    """All steps of an iteration; the weights stand still where a gradient is not finite."""
    progress = Progress()
    if not lesson.calls:
        return progress
    for epoch in range(settings.epochs):
        order = sorted(
            range(len(lesson.calls)), key=key.child(epoch).uniforms(len(lesson.calls)).__getitem__
        )
        parts = np.array_split(np.array(order), min(settings.updates, len(order)))
        for part in parts:
            _step(model, optimizer, lesson, part, settings, agents, progress)
    model.updated()
    return progress


def _step(
    model: Trainable,
    optimizer: WeightOptimizer,
    lesson: Lesson,
    part: Integers,
    settings: Marl,
    agents: Mapping[str, AgentSettings],
    progress: Progress,
) -> None:
    calls = [lesson.calls[i] for i in part]
    lengths = lengths_of(calls)
    weights = row_weights(
        lengths,
        np.array([agents[call.agent].weight for call in calls]),
        [agents[call.agent].aggregation or "" for call in calls],
        model.max_tokens,
    )
    sizes = lengths + np.array([len(call.generation.prompt) for call in calls])
    optimizer.zero()
    for chosen in micro_batches(sizes, settings.micro_batch):
        optimizer.backward(_loss(model, lesson, part[chosen], weights[chosen], settings, progress))
    stepped = optimizer.step()
    if stepped.skipped:
        progress.skipped += 1
    else:
        progress.norms.append(stepped.norm)


def _loss(
    model: Trainable,
    lesson: Lesson,
    places: Integers,
    weights: Floats,
    settings: Marl,
    progress: Progress,
) -> torch.Tensor:
    calls = [lesson.calls[i] for i in places]
    scored = model.score([call.generation for call in calls])
    old = _padded([call.generation.logprobs for call in calls], scored)
    advantages = _padded([lesson.advantages[i] for i in places], scored)
    terms, clipped = policy_terms(
        scored.logprobs, old, advantages, settings.clip_low, settings.clip_high, settings.dual_clip
    )
    parts = {"clipped": clipped.float(), "entropy": scored.entropy.detach()}
    parts["shift"] = (old - scored.logprobs).detach()
    parts["mismatch"] = parts["shift"].abs()
    if settings.entropy:
        terms = terms - settings.entropy * scored.entropy
    if lesson.reference:
        reference = _padded([lesson.reference[i] for i in places], scored)
        parts["kl"] = divergence(scored.logprobs, reference, settings.kl.form).detach()
        if settings.kl.where == "loss":
            kl = token_divergence(scored.logprobs, old, reference, settings.kl)
            terms = terms + settings.kl.weight * kl
    _note(progress, calls, scored, parts)
    by_row = torch.as_tensor(weights, dtype=terms.dtype, device=terms.device)
    return (terms * scored.mask * by_row[:, None]).sum()


def token_divergence(
    logprobs: torch.Tensor, old: torch.Tensor, reference: torch.Tensor, settings: Kl
) -> torch.Tensor:
    """Return what the divergence adds to the loss token by token, shape [B, L]."""
    kl = divergence(logprobs, reference, settings.form)
    return kl * (logprobs - old).exp() if settings.is_corrected else kl


def _note(
    progress: Progress, calls: Sequence[Call], scored: Scored, parts: Mapping[str, torch.Tensor]
) -> None:
    sums = {name: (part * scored.mask).sum(1).tolist() for name, part in parts.items()}
    tokens = scored.mask.sum(1).tolist()
    for i, call in enumerate(calls):
        progress.note(call.agent, tokens[i], **{name: one[i] for name, one in sums.items()})


def _padded(rows: Sequence[Sequence[float] | Floats], scored: Scored) -> torch.Tensor:
    """Ragged numbers as a tensor shaped like `scored.mask`."""
    padded = np.zeros(tuple(scored.mask.shape), np.float32)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded).to(scored.mask.device)


@torch.no_grad()
def reference_logprobs(
    model: Trainable, generations: Sequence[Generation], most: int
) -> list[Floats]:
    """Log-probabilities of responses by the weights that training began with."""
    found: list[Floats] = [np.zeros(0)] * len(generations)
    sizes = np.array([len(one.prompt) + len(one.response) for one in generations], np.int64)
    with model.reference():
        for chosen in micro_batches(sizes, most):
            rows = model.score([generations[i] for i in chosen]).logprobs.cpu().numpy()
            for i, row in zip(chosen, rows, strict=True):
                found[i] = row[: len(generations[i].response)].astype(np.float64)
    return found
