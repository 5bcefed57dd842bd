"""The learned value: it fits, whatever the scale of the returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from orchestrion_reinforce.ppo import Value  # type: ignore[attr-defined]

from orchestrion import CheckpointError, Key


def data(n: int = 200) -> tuple[torch.Tensor, np.ndarray]:
    inputs = np.random.Generator(np.random.PCG64(1)).standard_normal((n, 3))
    return torch.tensor(inputs, dtype=torch.float32), inputs[:, 0] - 0.5 * inputs[:, 1]


def step(value: Value, inputs: torch.Tensor, targets: np.ndarray) -> float:
    loss = value.error(inputs, torch.from_numpy(targets), torch.arange(len(targets)))
    return value.step(loss, 0.01, 1.0)


def fitted(scale: float, offset: float, steps: int = 300) -> tuple[Value, float]:
    """A value after some steps, and the share of the variance it does not explain."""
    value, (inputs, targets) = Value([16], Key(1)), data()
    targets = scale * targets + offset
    for _ in range(steps):
        value.rescale(3, targets)
        step(value, inputs, targets)
    return value, float(np.var(value.predict(inputs) - targets) / np.var(targets))


@pytest.mark.parametrize("scale", [0.01, 1.0, 5000.0])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_it_learns_at_any_scale(scale: float, offset: float) -> None:
    assert fitted(scale, offset * scale)[1] < 0.05


def test_following_the_scale_does_not_change_predictions() -> None:
    value, _ = fitted(1.0, 0.0, steps=20)
    inputs, targets = data()
    before = value.predict(inputs)
    value.rescale(3, 40 * targets + 7)
    assert value.predict(inputs) == pytest.approx(before, abs=1e-4)


def test_equal_returns_are_no_reason_to_divide_by_0() -> None:
    value, (inputs, _) = Value([4], Key(1)), data()
    for _ in range(3):
        value.rescale(3, np.full(200, 0.5))
        assert np.isfinite(step(value, inputs, np.full(200, 0.5)))
    assert np.isfinite(value.predict(inputs)).all()


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    value, _ = fitted(1.0, 0.0, steps=5)
    inputs, targets = data()
    before = value.predict(inputs)
    assert np.isnan(step(value, inputs, np.full_like(targets, np.nan)))
    assert (value.predict(inputs) == before).all()


def test_it_goes_on_from_what_it_saved() -> None:
    first, _ = fitted(3.0, 1.0, steps=10)
    saved = first.save()
    second = Value([16], Key(2))
    second.load(saved, "trainer")
    assert second.save() == saved
    inputs, targets = data()
    for value in (first, second):
        value.rescale(3, targets)
        step(value, inputs, targets)
    assert (first.predict(inputs) == second.predict(inputs)).all()
    with pytest.raises(CheckpointError, match=r"'value\.0\.weight' is F32 \(16, 3\)"):
        Value([17], Key(2)).load(saved, "trainer")
