"""The learned value: it fits, whatever the scale of the returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from orchestrion_encoders.tensors import Adam
from orchestrion_reinforce.networks import Value

from orchestrion import Key


def data(n: int = 200) -> tuple[torch.Tensor, np.ndarray]:
    inputs = np.random.Generator(np.random.PCG64(1)).standard_normal((n, 3))
    return torch.tensor(inputs, dtype=torch.float32), inputs[:, 0] - 0.5 * inputs[:, 1]


def step(value: Value, adam: Adam, inputs: torch.Tensor, targets: np.ndarray) -> float:
    loss = value.error(inputs, torch.from_numpy(targets), torch.arange(len(targets)))
    return adam.step(value, loss, 0.01, 1.0)


def fitted(scale: float, offset: float, steps: int = 300) -> tuple[Value, Adam, float]:
    """A value and its optimiser after some steps, and the share of the variance left."""
    value, adam, (inputs, targets) = Value(3, [16], Key(1)), Adam(), data()
    targets = scale * targets + offset
    for _ in range(steps):
        value.rescale(targets)
        step(value, adam, inputs, targets)
    return value, adam, float(np.var(value.predict(inputs) - targets) / np.var(targets))


@pytest.mark.parametrize("scale", [0.01, 1.0, 5000.0])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_it_learns_at_any_scale(scale: float, offset: float) -> None:
    assert fitted(scale, offset * scale)[2] < 0.05


def test_following_the_scale_does_not_change_predictions() -> None:
    value, _, _ = fitted(1.0, 0.0, steps=20)
    inputs, targets = data()
    before, unit = value.predict(inputs), value.unit
    value.rescale(40 * targets + 7)
    assert value.unit[0] > 0.3
    assert unit[1] < value.unit[1] < 40, "the deviation follows, too"
    assert value.predict(inputs) == pytest.approx(before, abs=1e-4)


def test_equal_returns_are_no_reason_to_divide_by_0() -> None:
    value, adam, (inputs, _) = Value(3, [4], Key(1)), Adam(), data()
    for _ in range(3):
        value.rescale(np.full(200, 0.5))
        assert np.isfinite(step(value, adam, inputs, np.full(200, 0.5)))
    assert np.isfinite(value.predict(inputs)).all()


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    value, adam, _ = fitted(1.0, 0.0, steps=5)
    inputs, targets = data()
    before, steps = value.predict(inputs), adam.steps
    assert np.isnan(step(value, adam, inputs, np.full_like(targets, np.nan)))
    assert (value.predict(inputs) == before).all()
    assert adam.steps == steps
