"""Merging of parameters: the identities that each method promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_local.merge_methods import dare, linear, slerp, task_arithmetic, ties

Tensors = dict[str, Any]


def model(seed: int, dtype: str = "float32") -> Tensors:
    """Two tensors."""
    rng = np.random.default_rng(seed)
    return {
        "layer.weight": rng.normal(size=(6, 5)).astype(dtype),
        "layer.bias": rng.normal(size=5).astype(dtype),
    }


def same(first: Tensors, second: Tensors, tolerance: float = 0.0) -> bool:
    """Whether two models are equal, to the last bit by default."""
    assert set(first) == set(second)
    for name in first:
        assert first[name].dtype == second[name].dtype
        if not np.allclose(first[name], second[name], rtol=0, atol=tolerance):
            return False
    return True


BASE, A, B, C = model(0), model(1), model(2), model(3)

NEAR = {name: tensor * 1.5 for name, tensor in A.items()}
IDENTITIES: dict[str, tuple[Tensors, Tensors, float]] = {
    "one model: linear": (linear([A], [0.3]), A, 0),
    "one model: task arithmetic": (task_arithmetic(BASE, [A]), A, 1e-6),
    "one model: ties": (ties(BASE, [A], density=1), A, 1e-6),
    "one model: dare": (dare(BASE, [A], density=1), A, 1e-6),
    "equal models: linear": (linear([A, A]), A, 0),
    "equal models: slerp": (slerp(A, A, 0.3), A, 1e-6),
    "equal models: ties": (ties(BASE, [A, A, A], density=1), A, 1e-6),
    "slerp at 0": (slerp(A, B, 0), A, 0),
    "slerp at 1": (slerp(A, B, 1), B, 0),
    "slerp of nearly parallel models": (slerp(A, NEAR, 0.25), linear([A, NEAR], [3, 1]), 1e-6),
    "weights of 0: task arithmetic": (task_arithmetic(BASE, [A, B], [0, 0]), BASE, 0),
    "weights of 0: dare": (dare(BASE, [A, B], [0, 0]), BASE, 0),
    "weights of sum 1": (task_arithmetic(BASE, [A, B], [0.4, 0.6]), linear([A, B], [2, 3]), 1e-5),
    "dare that drops nothing": (
        dare(BASE, [A, B], [0.7, 0.2], density=1),
        task_arithmetic(BASE, [A, B], [0.7, 0.2]),
        0,
    ),
}


@pytest.mark.parametrize(("merged", "expected", "tolerance"), IDENTITIES.values(), ids=IDENTITIES)
def test_what_a_merge_must_leave_as_it_is(
    merged: Tensors, expected: Tensors, tolerance: float
) -> None:
    assert same(merged, expected, tolerance)


# ------------------------------------------------------------------ linear


def test_linear_is_the_weighted_mean() -> None:
    merged = linear([A, B], [3, 1])
    assert merged["layer.bias"] == pytest.approx(0.75 * A["layer.bias"] + 0.25 * B["layer.bias"])
    assert same(linear([A, B], [0.3, 0.1]), merged, 1e-6)
    with pytest.raises(ValueError, match="sum to 0"):
        linear([A, B], [1, -1])


@given(st.permutations([0, 1, 2]))
def test_permuting_pairs_of_model_and_weight_changes_no_bit(order: list[int]) -> None:
    models, weights = [A, B, C], [0.2, 0.5, 0.3]
    shuffled, own = [models[i] for i in order], [weights[i] for i in order]
    assert same(linear(shuffled, own), linear(models, weights))
    assert same(task_arithmetic(BASE, shuffled, own), task_arithmetic(BASE, models, weights))
    assert same(ties(BASE, shuffled, own), ties(BASE, models, weights))


# ------------------------------------------------------------------ slerp


def test_slerp_goes_along_the_arc() -> None:
    first, second = {"w": np.array([1.0, 0.0])}, {"w": np.array([0.0, 1.0])}
    assert slerp(first, second, 0.5)["w"] == pytest.approx([0.5**0.5, 0.5**0.5])
    third = slerp(first, second, 1 / 3)["w"]
    assert third == pytest.approx([np.cos(np.pi / 6), np.sin(np.pi / 6)])


@given(st.floats(0, 1))
def test_slerp_is_the_same_from_the_other_end(t: float) -> None:
    assert same(slerp(A, B, t), slerp(B, A, 1 - t), 1e-5)


def test_opposite_models_are_refused_not_averaged_to_nothing() -> None:
    opposite = {name: -tensor for name, tensor in A.items()}
    with pytest.raises(ValueError, match=r"layer\.weight: .* opposite directions"):
        slerp(A, opposite, 0.5)


def test_a_tensor_of_zeros_has_no_angle_and_is_interpolated() -> None:
    zero, one = {"w": np.zeros(2)}, {"w": np.array([2.0, 0.0])}
    assert slerp(zero, one, 0.25)["w"].tolist() == [0.5, 0.0]


@pytest.mark.parametrize("t", [-0.1, 1.1])
def test_slerp_does_not_extrapolate(t: float) -> None:
    with pytest.raises(ValueError, match="t must be"):
        slerp(A, B, t)


# ------------------------------------------------------------------ task arithmetic, TIES, DARE


def test_task_arithmetic_adds_and_takes_away_changes() -> None:
    merged = task_arithmetic(BASE, [A, B], [1, -0.5])["layer.bias"]
    base, a, b = BASE["layer.bias"], A["layer.bias"], B["layer.bias"]
    assert merged == pytest.approx(base + (a - base) - 0.5 * (b - base), abs=1e-6)


def test_ties_at_full_density_with_agreeing_signs_is_the_mean_change() -> None:
    base = {"w": np.zeros(3)}
    models = [{"w": np.array([1.0, -2.0, 3.0])}, {"w": np.array([3.0, -4.0, 1.0])}]
    assert ties(base, models, density=1)["w"].tolist() == [2.0, -3.0, 2.0]
    halves = task_arithmetic(base, models, [0.5, 0.5])["w"]
    assert ties(base, models, density=1)["w"].tolist() == halves.tolist()


def test_ties_on_an_example_worked_by_hand() -> None:
    """Trim to the 2 largest of 4, elect signs by sum, average what agrees."""
    base = {"w": np.zeros(4)}
    one = {"w": np.array([4.0, -3.0, 0.5, 0.1])}  # keeps 4, -3
    two = {"w": np.array([-1.0, -2.0, 6.0, 0.2])}  # keeps -2, 6
    three = {"w": np.array([-5.0, 0.3, 0.4, -0.6])}  # keeps -5, -0.6
    merged = ties(base, [one, two, three], density=0.5)["w"]
    # Signs: 4 - 5 < 0, -3 - 2 < 0, 6 > 0, -0.6 < 0.
    assert merged.tolist() == [-5.0, -2.5, 6.0, -0.6]
    weighted = ties(base, [one, two, three], [2, 1, 1], density=0.5)["w"]
    # Now 8 - 5 > 0 in the first place, and (2 * -3 - 2) / 3 in the second.
    assert weighted == pytest.approx([4.0, -8 / 3, 6.0, -0.6])


@pytest.mark.parametrize(("density", "kept"), [(0.2, 6), (0.1, 3), (1.0, 30), (0.01, 1)])
def test_ties_keeps_its_share_and_never_erases_everything(density: float, kept: int) -> None:
    base = {"w": np.zeros(30)}
    tuned = {"w": np.random.default_rng(1).permutation(np.arange(1.0, 31.0))}
    merged = ties(base, [tuned], density=density)["w"]
    assert (merged != 0).sum() == kept
    assert sorted(merged[merged != 0]) == list(np.arange(31.0 - kept, 31.0))


def test_dare_keeps_the_expected_change_and_follows_its_seed() -> None:
    base, tuned = {"w": np.zeros(20_000)}, {"w": np.ones(20_000)}
    merged = dare(base, [tuned], density=0.25, seed=3)["w"]
    assert set(merged.tolist()) == {0.0, 4.0}
    assert merged.mean() == pytest.approx(1, abs=0.05)
    assert (merged == dare(base, [tuned], density=0.25, seed=3)["w"]).all()
    assert (merged != dare(base, [tuned], density=0.25, seed=4)["w"]).any()
    two = dare(base, [tuned, tuned], density=0.25, seed=3)["w"]
    assert set(two.tolist()) == {0.0, 4.0, 8.0}, "each model drops on its own"


# ------------------------------------------------------------------ what does not fit

MERGES: list[Callable[[list[Tensors]], Tensors]] = [
    lambda models: linear(models),
    lambda models: slerp(models[0], models[1], 0.5),
    lambda models: task_arithmetic(models[0], models[1:]),
    lambda models: ties(models[0], models[1:]),
    lambda models: dare(models[0], models[1:]),
]


@pytest.mark.parametrize("merge", MERGES)
def test_differing_tensors_are_refused(merge: Callable[..., Tensors]) -> None:
    missing = {"layer.weight": A["layer.weight"]}
    with pytest.raises(ValueError, match=r"other tensors .*layer\.bias"):
        merge([A, missing])
    reshaped = {**A, "layer.bias": np.zeros(4, dtype="float32")}
    with pytest.raises(ValueError, match=r"layer\.bias: shapes or dtypes differ"):
        merge([A, reshaped])
    with pytest.raises(ValueError, match="shapes or dtypes differ"):
        merge([A, model(1, "float64")])
    whole = {"w": np.zeros(2, dtype="int64")}
    with pytest.raises(ValueError, match="expected a floating-point"):
        merge([whole, whole])


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_model_keeps_its_dtype_and_its_inputs_stay_as_they_are(
    merge: Callable[..., Tensors], dtype: str
) -> None:
    models = [model(1, dtype), model(2, dtype)]
    before = [{name: tensor.copy() for name, tensor in parameters.items()} for parameters in models]
    merged = merge(models)
    assert {tensor.dtype for tensor in merged.values()} == {np.dtype(dtype)}
    assert all(same(now, old) for now, old in zip(models, before, strict=True))


def test_halves_are_averaged_in_single_precision() -> None:
    big = {"w": np.array([60_000.0], dtype="float16")}
    assert linear([big, big])["w"].tolist() == [float(np.float16(60_000))]


@pytest.mark.parametrize("density", [0.0, 1.5])
def test_a_density_is_a_share(density: float) -> None:
    for merge in (ties, dare):
        with pytest.raises(ValueError, match="a density must be"):
            merge(BASE, [A], density=density)


def test_merging_nothing_or_with_odd_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="no model"):
        linear([])
    with pytest.raises(ValueError, match="2 models"):
        linear([A, B], [1.0])
    with pytest.raises(ValueError, match="2 models"):
        task_arithmetic(BASE, [A, B], [float("nan"), 1.0])
    with pytest.raises(ValueError, match="negative"):
        ties(BASE, [A], [-1.0])
