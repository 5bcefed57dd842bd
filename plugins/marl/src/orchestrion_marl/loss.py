"""The policy loss over tokens: PPO's clip, the dual clip, divergences, aggregations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from orchestrion_marl.rows import Floats, Integers

__all__ = ["divergence", "policy_terms", "row_weights"]

_MOST = 10.0
"""k3 is cut there: exp would overflow on a token that a model has all but excluded."""


def policy_terms(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    low: float,
    high: float,
    dual: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What each token adds to the loss, and whether its ratio was clipped, both [B, L].

    max(-rho A, -clip(rho, 1 - low, 1 + high) A): Schulman et al. 2017 (arXiv 1707.06347); for A < 0
    at most -`dual` A: Ye et al. 2020 (arXiv 1912.09729).

    Args:
        logprobs: now, with gradients, shape [B, L].
        old: when the tokens were sampled, shape [B, L].
        advantages: shape [B, L].
        low: see above.
        high: see above.
        dual: see above; None for no cut.
    """
    ratio = (logprobs - old).exp()
    plain = -ratio * advantages
    clipped = -ratio.clamp(1 - low, 1 + high) * advantages
    terms = torch.maximum(plain, clipped)
    if dual is not None:
        terms = torch.where(advantages < 0, torch.minimum(terms, -dual * advantages), terms)
    return terms, (clipped > plain).detach()


def divergence(logprobs: torch.Tensor, reference: torch.Tensor, form: str) -> torch.Tensor:
    """Estimates of the KL divergence from the reference, token by token, [B, L].

    k1 = log p - log q; abs = |k1|; k2 = k1^2 / 2; k3 = q/p - log(q/p) - 1, cut at +-10: Schulman
    2020, http://joschu.net/blog/kl-approx.html.
    """
    difference = logprobs - reference
    if form == "k1":
        return difference
    if form == "abs":
        return difference.abs()
    if form == "k2":
        return 0.5 * difference.square()
    return ((-difference).exp() + difference - 1).clamp(-_MOST, _MOST)


def row_weights(
    lengths: Integers, share: Floats, aggregation: Sequence[str], longest: int
) -> Floats:
    """What each token of a response weighs in the loss, shape [B]: they make the mean of a batch.

    Responses whose aggregations differ are averaged apart, and these means by how many they are.

    Args:
        lengths: tokens of each response, shape [B].
        share: weight of each response, e.g. by its agent, shape [B].
        aggregation: of each response, see `Marl.aggregation`.
        longest: the fixed length of "seq-mean-token-sum-norm".
    """
    weights = np.zeros(len(lengths))
    names = np.array(aggregation)
    for name in np.unique(names):
        mine = names == name
        if name == "token-mean":
            total = (share[mine] * lengths[mine]).sum()
        else:
            total = share[mine].sum()
        if not total:
            continue
        each = share[mine] / total
        if name == "seq-mean-token-mean":
            each = each / np.maximum(lengths[mine], 1)
        elif name == "seq-mean-token-sum-norm":
            each = each / longest
        weights[mine] = each * mine.mean()
    return weights
