"""Steps of AdamW: the learning rate's course, the limit of the norm, and what is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from orchestrion_local.settings import Optimizer
from orchestrion_local.steps import Steps

from orchestrion import CheckpointError, Saved


def steps(**settings: Any) -> Steps:
    """An optimizer of two weights over eight planned steps."""
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    return Steps([("w", weight)], Optimizer(**{"learning_rate": 0.1, **settings}), 8)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [1 / 3, 2 / 3, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [1 / 3, 2 / 3, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0]),
        ("cosine", [1 / 3, 2 / 3, 1, 0.9330127, 0.75, 0.5, 0.25, 0.0669873, 0]),
    ],
)
def test_the_learning_rate_rises_in_the_warm_up_and_then_follows_its_schedule(
    schedule: str, rates: list[float]
) -> None:
    optimizer = steps(schedule=schedule, warmup=2)
    seen = []
    for optimizer.steps in range(9):
        seen.append(optimizer.learning_rate / 0.1)
    assert seen == pytest.approx(rates, abs=1e-6)


def test_a_step_is_that_of_the_paper_with_the_gradient_scaled_down_to_its_limit() -> None:
    """Algorithm 2 of Loshchilov and Hutter 2019."""
    given = {"beta1": 0.5, "beta2": 0.25, "epsilon": 0.1, "weight_decay": 0.2}
    optimizer = steps(max_gradient_norm=5.0, **given)
    [(_, weight)] = optimizer._named
    expected, m, v = weight.detach().clone(), torch.zeros(2), torch.zeros(2)
    for t, gradient in enumerate(([6.0, 8.0], [0.3, -0.4]), 1):
        optimizer.zero()
        optimizer.backward((weight * torch.tensor(gradient)).sum())
        stepped = optimizer.step()
        assert stepped.norm == pytest.approx((gradient[0] ** 2 + gradient[1] ** 2) ** 0.5)
        assert not stepped.skipped
        g = torch.tensor(gradient) * min(1.0, 5.0 / stepped.norm)
        m, v = 0.5 * m + 0.5 * g, 0.25 * v + 0.75 * g**2
        change = m / (1 - 0.5**t) / ((v / (1 - 0.25**t)).sqrt() + 0.1) + 0.2 * expected
        expected = expected - 0.1 * change
        assert weight.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert optimizer.data == {"steps": 2, "taken": {"w": 2.0}}
    assert weight.grad is None


def test_a_gradient_that_is_not_finite_changes_nothing_and_no_gradient_is_no_step() -> None:
    optimizer = steps(max_gradient_norm=None)
    [(_, weight)] = optimizer._named
    assert (optimizer.step().norm, optimizer.step().skipped) == (0.0, False)
    optimizer.backward((weight * torch.tensor([1.0, float("nan")])).sum())
    assert optimizer.step().skipped
    assert weight.tolist() == [1.0, -2.0]
    assert optimizer.data == {"steps": 0, "taken": {}}
    assert optimizer.size == 3 * 2 * 4, "a gradient and two moments"
    half = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    assert Steps([("h", half)], Optimizer(), 1).size == 4 * 3 * 4, "and a master"


@pytest.mark.parametrize("name", ["w", "other"])
def test_the_state_of_another_model_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match=f"weight {name}"):
        steps().load(Saved({}, {"steps": 1, "taken": {name: 1.0}}))
