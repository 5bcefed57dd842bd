"""The loss, compared with published formulas, and the lemma behind Dr.MAS."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_local import micro_batches
from orchestrion_marl.advantages import amplification, drmas, grpo
from orchestrion_marl.rows import Rows
from orchestrion_marl.settings import Advantage, Kl
from orchestrion_marl.updating import (
    clipped_loss,
    divergence,
    divergence_in_loss,
    row_weights,
)


def trl_grpo_loss(
    logps: torch.Tensor,
    old: torch.Tensor,
    ref: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    low: float,
    high: float,
    beta: float,
    loss_type: str,
    max_completion_length: int,
) -> torch.Tensor:
    """GRPO's loss as TRL's GRPOTrainer computes it, by its documentation ("Loss types").

    https://huggingface.co/docs/trl/grpo_trainer: per token -min(rho A, clip(rho) A) + beta k3; then
    `grpo` means over tokens of each sequence and then over sequences, `dapo` over all tokens, and
    `dr_grpo` sums over sequences times the greatest length.
    """
    ratio = torch.exp(logps - old)
    clipped = torch.clamp(ratio, 1 - low, 1 + high)
    token = -torch.min(ratio * advantages[:, None], clipped * advantages[:, None])
    token = token + beta * (torch.exp(ref - logps) - (ref - logps) - 1)
    if loss_type == "grpo":
        return ((token * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()
    if loss_type == "dapo":
        return (token * mask).sum() / mask.sum()
    return (token * mask).sum() / (len(token) * max_completion_length)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("grpo", "seq-mean-token-mean"),
        ("dapo", "token-mean"),
        ("dr_grpo", "seq-mean-token-sum-norm"),
    ],
)
def test_the_loss_of_one_model_with_one_call_an_episode_is_that_of_trl(
    theirs: str, ours: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, length, longest = 12, 7, 9
    shape = (rows, length)
    logps = -torch.rand(shape, generator=generator) * 3
    old = logps + 0.4 * torch.randn(shape, generator=generator)
    ref = logps + 0.3 * torch.randn(shape, generator=generator)
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    mask = (torch.arange(length) < lengths[:, None]).float()
    rewards = torch.randint(0, 2, (rows,), generator=generator).float()
    calls = Rows(rewards.numpy(), np.arange(rows) // 4, np.arange(rows), np.zeros(rows))
    # TRL divides by std + 1e-4; here both sides have the same advantages.
    advantages = torch.from_numpy(grpo(calls)).float()
    expected = trl_grpo_loss(logps, old, ref, advantages, mask, 0.2, 0.28, 0.04, theirs, longest)
    terms, _ = clipped_loss(logps, old, advantages[:, None].expand(shape), 0.2, 0.28, None)
    terms = terms + 0.04 * divergence(logps, ref, "k3")
    weights = row_weights(lengths.numpy(), np.ones(rows), [ours] * rows, longest)
    computed = (terms * mask * torch.from_numpy(weights).float()[:, None]).sum()
    assert float(computed) == pytest.approx(float(expected), abs=1e-5)


def test_the_dual_clip_bounds_the_loss_of_a_bad_token_that_became_likely() -> None:
    old, now = torch.zeros(1, 3), torch.log(torch.tensor([[10.0, 2.0, 0.5]]))
    bad = torch.full((1, 3), -1.0)
    plain, _ = clipped_loss(now, old, bad, 0.2, 0.2, None)
    cut, _ = clipped_loss(now, old, bad, 0.2, 0.2, 3.0)
    assert plain[0].tolist() == pytest.approx([10, 2, 0.8])
    assert cut[0].tolist() == pytest.approx([3, 2, 0.8])
    good, clipped = clipped_loss(now, old, -bad, 0.2, 0.2, 3.0)
    assert good[0].tolist() == pytest.approx([-1.2, -1.2, -0.5])
    assert clipped[0].tolist() == [True, True, False]


def test_divergences_have_the_right_expectation() -> None:
    """The means of k1 and k3 over samples of p are KL(p, q); k2 is half the squared k1."""
    p, q = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.3, 0.3, 0.4]).double()
    exact = float((p * (p / q).log()).sum())
    for form in ("k1", "k3"):
        computed = divergence(p.log(), q.log(), form)
        assert float((p * computed).sum()) == pytest.approx(exact)
    assert divergence(p.log(), q.log(), "k2").tolist() == pytest.approx(
        (0.5 * (p / q).log() ** 2).tolist()
    )
    assert (divergence(p.log(), q.log(), "abs") >= 0).all()
    assert float(divergence(torch.tensor([0.0]), torch.tensor([50.0]), "k3")) == 10


@pytest.mark.parametrize("form", ["k1", "k3"])
def test_the_corrected_divergence_has_the_gradient_of_the_exact_one(form: str) -> None:
    """Over samples of an earlier policy, the mean gradient of rho k is that of KL(p, q)."""
    old, q = torch.tensor([0.2, 0.2, 0.6]).double(), torch.tensor([0.3, 0.3, 0.4]).double()
    logits = torch.tensor([0.7, 0.1, -0.4]).double().requires_grad_()
    p = logits.log_softmax(0)
    exact = torch.autograd.grad((p.exp() * (p - q.log())).sum(), logits, retain_graph=True)[0]
    settings = Kl(weight=1.0, form=form)  # type: ignore[arg-type]
    estimates = divergence_in_loss(p, old.log(), q.log(), settings)
    assert torch.autograd.grad((old * estimates).sum(), logits)[0].tolist() == pytest.approx(
        exact.tolist()
    )
    plain = Kl(weight=1.0, form=form, corrected=False)  # type: ignore[arg-type]
    assert divergence_in_loss(p, old.log(), q.log(), plain).tolist() == pytest.approx(
        divergence(p, q.log(), form).tolist()
    )


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.sampled_from(["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"]),
)
def test_row_weights_give_a_mean(lengths: list[int], aggregation: str) -> None:
    count = np.array(lengths)
    weights = row_weights(count, np.ones(len(count)), [aggregation] * len(count), 9)
    assert (weights * (1 if aggregation == "seq-mean-token-sum" else count)).sum() == (
        pytest.approx(1)
    )


def test_an_agent_with_long_responses_can_have_less_weight() -> None:
    lengths, share = np.array([10, 2]), np.array([0.1, 0.5])
    weights = row_weights(lengths, share, ["token-mean"] * 2, 10)
    assert (weights * lengths).tolist() == pytest.approx([0.5, 0.5])
    assert row_weights(lengths, np.zeros(2), ["token-mean"] * 2, 10).tolist() == [0, 0]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 200))
def test_micro_batches_hold_every_row_once_within_the_budget(sizes: list[int], budget: int) -> None:
    lengths = np.array(sizes)
    parts = list(micro_batches(lengths, budget))
    assert sorted(i for part in parts for i in part.tolist()) == list(range(len(sizes)))
    assert all(len(part) == 1 or len(part) * lengths[part].max() <= budget for part in parts)


def test_lemma_4_2_holds_exactly() -> None:
    """E|g|^2 = E|z|^2 f + Cov(|z|^2, A^2): lemma 4.2 of Feng et al. 2026, call by call.

    A policy of one softmax, 4 actions, in double precision; g = A z for each call.
    """
    generator = np.random.default_rng(0)
    logits = generator.normal(size=4)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    rewards = np.array([1.0, 1, 0, 0, 0, 1, 0, 1])
    episodes = [e for e in range(8) for _ in range(1 + e % 3)]
    rows = Rows(rewards[episodes], [0] * len(episodes), episodes, [0] * len(episodes))
    actions = generator.integers(0, 4, len(episodes))
    scores = np.eye(4)[actions] - probabilities
    norms = (scores**2).sum(1)
    population = Advantage(std="population")
    advantages = grpo(rows, population)
    left = (norms * advantages**2).mean()
    covariance = np.cov(norms, advantages**2, ddof=0)[0, 1]
    right = norms.mean() * amplification(rows, 0) + covariance
    assert left == pytest.approx(right, rel=1e-6)
    # By agent the factor is 1.
    own = drmas(rows, population)
    assert (own**2).mean() == pytest.approx(1)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8).filter(any))
def test_the_factor_is_at_most_the_size_of_a_group(calls: list[int]) -> None:
    rewards = [float(i % 2) for i in range(len(calls))]
    episodes = [e for e, count in enumerate(calls) for _ in range(1 + count)]
    # Agent 0 is called once in every episode, agent 1 as often as `calls` says.
    agents = [0 if i == 0 else 1 for count in calls for i in range(1 + count)]
    rows = Rows([rewards[e] for e in episodes], [0] * len(episodes), episodes, agents)
    n = len(calls)
    assert amplification(rows, 0) == pytest.approx(1)
    assert 0 <= amplification(rows, 1) <= n + 1e-9
    assert math.isfinite(amplification(rows, 1))
