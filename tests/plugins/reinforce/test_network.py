"""The network: its gradient, its layout, its optimiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from orchestrion_reinforce.network import Adam, Network, clip_norm


def network(embedding: Any = None, activation: Any = "tanh") -> Network:
    generator = np.random.Generator(np.random.PCG64(3))
    return Network((5, 7, 6, 4), activation, generator, embedding=embedding)


def rows(n: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(n)).standard_normal((n, 5))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize("n", [1, 64, 150])
def test_the_gradient_is_that_of_finite_differences(
    activation: Any, embedded: bool, n: int
) -> None:
    words = np.random.Generator(np.random.PCG64(9)).standard_normal((4, 3)) if embedded else None
    net, x = network(words, activation), rows(n)
    slope = np.random.Generator(np.random.PCG64(1)).standard_normal((n, 4))
    found = net.gradient(net.record(x, np.float64), slope)
    step = 1e-6
    for i in range(0, len(net.parameters), 5):
        kept = net.parameters[i]
        net.parameters[i] = kept + step
        above = (net.forward(x) * slope).sum()
        net.parameters[i] = kept - step
        below = (net.forward(x) * slope).sum()
        net.parameters[i] = kept
        assert found[i] == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-6)


def test_single_precision_gradients_agree_with_double() -> None:
    net, x = network(), rows(150)
    slope = np.ones((150, 4)) / 150
    single, double = (net.gradient(net.record(x, t), slope) for t in (np.float32, np.float64))
    assert single == pytest.approx(double, abs=1e-5)


def test_recording_and_inference_compute_the_same() -> None:
    net, x = network(), rows(150)
    assert net.record(x, np.float64).out == pytest.approx(net.forward(x), abs=1e-12)


def test_the_first_weights_are_orthogonal_and_repeatable() -> None:
    first, second = network(), network()
    assert (first.parameters == second.parameters).all()
    weight = first.views(first.parameters)[0][0]
    assert weight.T @ weight == pytest.approx(2 * np.eye(5), abs=1e-12)


def test_outputs_with_equal_features_share_their_weights() -> None:
    same = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    out = network(same).forward(rows(3))
    assert out[:, 0] == pytest.approx(out[:, 1])
    assert abs(out[:, 0] - out[:, 2]).min() > 1e-3


def test_adam_takes_first_steps_of_the_learning_rate() -> None:
    parameters = np.zeros(3)
    Adam(3).step(parameters, np.array([5.0, -0.1, 0.0]), 0.01)
    assert parameters == pytest.approx([-0.01, 0.01, 0.0], rel=1e-3)


def test_adam_finds_a_minimum() -> None:
    parameters, adam, target = np.zeros(2), Adam(2), np.array([1.0, -2.0])
    for _ in range(2000):
        adam.step(parameters, parameters - target, 0.01)
    assert parameters == pytest.approx(target, abs=1e-3)


def test_long_gradients_are_scaled_down_and_short_ones_kept() -> None:
    clipped, norm = clip_norm(np.array([3.0, 4.0]), 1.0)
    assert (clipped.tolist(), norm) == (pytest.approx([0.6, 0.8]), 5.0)
    assert clip_norm(np.array([3.0, 4.0]), None)[0].tolist() == [3.0, 4.0]
