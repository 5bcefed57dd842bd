"""What policies with a torch network share; only who has torch imports this."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from orchestrion import Array, CheckpointError, Key, Saved
from orchestrion_encoders.interfaces import Encoded

Floats = NDArray[np.float64]


class Inputs(NamedTuple):
    """m situations: what encoders give (`Encoded`), with turns padded to [m, t, u]."""

    context: Any
    choices: Any
    prior: Any = None
    turns: Any = None
    lengths: Any = None

    def take(self, rows: Tensor) -> Inputs:
        """Return some of the situations."""
        return Inputs(*(None if part is None else part[rows] for part in self))

    @property
    def flat(self) -> Tensor:
        """Return one row for each [m, f]: the situation, and means over its choices and turns."""
        parts = [self.context, self.choices.mean(1)]
        if self.turns is not None:
            parts.append(self.turns.sum(1) / self.lengths.clamp(min=1).unsqueeze(1))
        return torch.cat(parts, 1)


def tensors(encoded: Encoded, dtype: torch.dtype) -> Inputs:
    """Return what a network is fed, of what encoders give."""

    def tensor(array: Floats | None) -> Tensor | None:
        return None if array is None else torch.tensor(array, dtype=dtype)

    turns = (None, None) if encoded.turns is None else padded(encoded.turns, dtype)
    return Inputs(tensor(encoded.context), tensor(encoded.choices), tensor(encoded.prior), *turns)


def padded(turns: Sequence[Floats], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return sequences [t, u] as one tensor [m, longest, u], and their lengths [m]."""
    lengths = torch.tensor([len(rows) for rows in turns])
    width = turns[0].shape[1] if len(turns) else 0
    result = torch.zeros(len(turns), int(lengths.max()) if len(turns) else 0, width, dtype=dtype)
    for row, sequence in zip(result, turns, strict=True):
        row[: len(sequence)] = torch.from_numpy(sequence)
    return result, lengths


def generator_of(key: Key) -> torch.Generator:
    """Return a generator of its own for a key; torch's global one is never touched."""
    return torch.Generator().manual_seed(key.integer() % 2**63)


@contextmanager
def serial() -> Iterator[None]:
    """Use one thread: fastest for small products, and sums are the same on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def pack(tensor: Tensor) -> Array:
    """Return a tensor as it goes into a checkpoint: single precision, little-endian."""
    data = tensor.detach().float().contiguous().numpy().astype("<f4")
    return Array("F32", tuple(data.shape), data.tobytes())


def unpack(saved: Saved, name: str, like: Tensor, path: str) -> Tensor:
    """Return the saved array of this name, of the shape of `like`.

    Raises:
        CheckpointError: it is missing, or has another type or shape.
    """
    array, shape = saved.arrays.get(name), tuple(like.shape)
    if array is None:
        raise CheckpointError(f"{path}: the checkpoint has no array {name!r}")
    if array.dtype != "F32" or tuple(array.shape) != shape or len(array.data) != 4 * like.numel():
        raise CheckpointError(
            f"{path}: the saved array {name!r} is {array.dtype} {tuple(array.shape)}, expected "
            f"F32 {shape}"
        )
    return torch.from_numpy(np.frombuffer(array.data, "<f4").reshape(shape).astype(np.float32))


class Network(nn.Module):
    """A module whose weights are saved by name."""

    def save(self, prefix: str = "") -> dict[str, Array]:
        """Return its weights."""
        return {prefix + name: pack(weight) for name, weight in self.named_parameters()}

    def load(self, saved: Saved, path: str, prefix: str = "") -> None:
        """Take over saved weights; raise `CheckpointError` if one is missing or does not fit."""
        for name, weight in self.named_parameters():
            weight.data = unpack(saved, prefix + name, weight, path)


class Adam:
    """Adam (Kingma and Ba 2015) for all weights of a module as one vector, with saved moments.

    `torch.optim` loads the compiler's front end, which takes as long as torch itself. Epsilon is
    1e-5: near-zero second moments must not turn noise into steps.
    """

    def __init__(self) -> None:
        self.steps, self.moments = 0, torch.zeros(2, 0)

    def step(self, module: nn.Module, loss: Tensor, rate: float, limit: float | None) -> float:
        """Return the gradient's norm before limiting; a norm that is not finite makes no step."""
        weights = [*module.parameters()]
        gradient = parameters_to_vector(torch.autograd.grad(loss, weights))
        norm = float(gradient.norm())
        if not np.isfinite(norm):
            return norm
        if limit is not None and norm > limit:
            gradient *= limit / norm
        if not self.steps:
            self.moments = torch.zeros(2, len(gradient))
        self.steps += 1
        first, second = self.moments
        first.lerp_(gradient, 0.1)
        second.lerp_(gradient.square(), 0.001)
        scale = (second / (1 - 0.999**self.steps)).sqrt_().add_(1e-5)
        with torch.no_grad():
            change = (rate / (1 - 0.9**self.steps)) * first / scale
            vector_to_parameters(parameters_to_vector(weights) - change, weights)
        return norm

    def load(self, saved: Saved, name: str, steps: int, path: str) -> None:
        """Take over the moments saved under this name, after this many steps."""
        size = saved.arrays[name].shape[-1] if name in saved.arrays else 0
        self.moments, self.steps = unpack(saved, name, torch.zeros(2, size), path), int(steps)


def reader(
    kind: Literal["gru", "transformer"], inputs: int, width: int, generator: torch.Generator
) -> nn.Module:
    """Return a module from sequences [n, t, inputs] and lengths [n] to [n, width]; 0 if empty."""
    with torch.random.fork_rng([]):  # its own first weights come from the global generator
        module: nn.Module = _Gru(inputs, width) if kind == "gru" else _Transformer(inputs, width)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.orthogonal_(parameter, generator=generator)
        else:
            nn.init.zeros_(parameter)
    for layer in module.modules():
        if isinstance(layer, nn.LayerNorm):
            nn.init.ones_(layer.weight)
    return module


class _Gru(nn.Module):
    """The state of a recurrent network after the last turn (Cho et al. 2014)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.cells = nn.GRU(inputs, width, batch_first=True)

    def forward(self, turns: Tensor, lengths: Tensor) -> Tensor:
        if not turns.shape[1]:
            return turns.new_zeros(len(turns), self.cells.hidden_size)
        states, _ = self.cells(turns)
        return _last(states, lengths)


class _Transformer(nn.Module):
    """One layer of attention over all turns, read off at the last one (Vaswani et al. 2017).

    Places are told by a turn's distance, which is among its numbers.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.width = width

    def forward(self, turns: Tensor, lengths: Tensor) -> Tensor:
        if not turns.shape[1]:
            return turns.new_zeros(len(turns), self.width)
        beyond = torch.arange(turns.shape[1]) >= lengths.clamp(min=1).unsqueeze(1)
        states = self.layer(self.enter(turns), src_key_padding_mask=beyond)
        return _last(states, lengths)


def _last(states: Tensor, lengths: Tensor) -> Tensor:
    """Return the state after the last turn [n, width]; 0 where there was none."""
    last: Tensor = states[torch.arange(len(states)), (lengths - 1).clamp(min=0)]
    return last * (lengths > 0).unsqueeze(1)
