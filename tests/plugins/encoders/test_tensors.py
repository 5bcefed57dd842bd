"""What policies with a torch network share: rows and batches of numbers, and the optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from orchestrion_encoders.interfaces import Encoded
from orchestrion_encoders.tensors import Adam, Network, generator_of, pack, serial, tensors

from orchestrion import CheckpointError, Key, Saved


def encoded(n: int, turns: bool, prior: bool) -> Encoded:
    """n situations with 3 choices; each has as many turns as its place says."""
    draws = np.random.Generator(np.random.PCG64(3))
    return Encoded(
        draws.standard_normal((n, 2)),
        draws.standard_normal((n, 3, 4)),
        draws.random((n, 3)) if prior else None,
        tuple(draws.standard_normal((i, 5)) for i in range(n)) if turns else None,
    )


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("prior", [False, True])
def test_situations_come_apart_and_together_again(turns: bool, prior: bool) -> None:
    whole = encoded(4, turns, prior)
    rows = whole.rows
    assert len({row.content for row in rows}) == 4
    again = Encoded.of([rows[2], rows[0], rows[2]])
    assert [row.content for row in again.rows] == [rows[i].content for i in (2, 0, 2)]


def test_some_situations_of_a_batch_are_the_same_numbers() -> None:
    batch = tensors(encoded(4, turns=True, prior=True), torch.float32)
    some = batch.take(torch.tensor([3, 1]))
    assert some.lengths.tolist() == [3, 1]
    assert torch.equal(some.flat, batch.flat[[3, 1]])
    assert batch.flat.shape == (4, 2 + 4 + 5)
    assert batch.flat[3, 6:].tolist() == pytest.approx(batch.turns[3, :3].mean(0).tolist())


def test_adam_steps_as_the_paper_says() -> None:
    """Algorithm 1 of Kingma and Ba 2015, with epsilon 1e-5, on a quadratic."""
    module, adam = torch.nn.Linear(2, 1, bias=False), Adam()
    w = module.weight.detach().double().numpy()[0].copy()
    m, v = np.zeros(2), np.zeros(2)
    for t in range(1, 6):
        gradient = 2 * w * [1, 10]
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        w -= 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-5)
        loss = (module.weight[0] ** 2 * torch.tensor([1.0, 10.0])).sum()
        assert adam.step(module, loss, 0.01, None) == pytest.approx(np.linalg.norm(gradient))
        assert module.weight.detach().numpy()[0] == pytest.approx(w, rel=1e-4)


def test_moments_that_are_missing_are_refused() -> None:
    with pytest.raises(CheckpointError, match="no array 'adam'"):
        Adam().load(Saved(), "adam", 3, "trainer")


def test_a_gradient_is_limited_and_one_that_is_not_finite_makes_no_step() -> None:
    """After one step the first moment is a tenth of the gradient."""
    module, adam = Weights(), Adam()
    assert adam.step(module, (module.w * torch.tensor([3.0, 4.0])).sum(), 0.1, 1.0) == 5.0
    assert adam.moments[0].tolist() == pytest.approx([0.06, 0.08])
    before = module.w.tolist()
    assert not np.isfinite(adam.step(module, (module.w * torch.inf).sum(), 0.1, 1.0))
    assert (adam.steps, module.w.tolist()) == (1, before)


class Weights(Network):
    """Two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([1.0, -0.1]))


def test_weights_and_moments_come_back_from_a_checkpoint() -> None:
    module, adam, again, other = Weights(), Adam(), Weights(), Adam()
    adam.step(module, module.w.square().sum(), 0.1, None)
    saved = Saved({**module.save("net/"), "adam": pack(adam.moments)})
    again.load(saved, "policy", "net/")
    other.load(saved, "adam", adam.steps, "policy")
    assert again.w.tolist() == module.w.tolist() != [1.0, -0.1]
    assert (other.steps, other.moments.tolist()) == (1, adam.moments.tolist())
    wrong = Saved({"net/w": pack(torch.zeros(3))})
    with pytest.raises(CheckpointError, match=r"policy: .*'net/w' is F32 \(3,\), expected F32 \(2"):
        again.load(wrong, "policy", "net/")


def test_draws_follow_their_key_and_sums_one_thread() -> None:
    first, again, other = (torch.rand(3, generator=generator_of(Key(n))) for n in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()
    before = torch.get_num_threads()
    with serial():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
