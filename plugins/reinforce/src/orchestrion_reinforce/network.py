"""A small feed-forward network with its gradient, and Adam; numpy only.

Inference is in double precision. Gradients are in single precision on double-precision weights:
four times as fast, and their rounding is far below their sampling noise.

Networks here are tiny, and BLAS libraries that spread tiny products over threads lose a factor
of ten on a busy machine. So rows are worked on in blocks that stay below the size at which they
start to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["Adam", "Floats", "Network", "Tape", "clip_norm"]

Floats = NDArray[np.float64]
Array = NDArray[Any]

SERIAL = 2**18
"""Multiplications up to which OpenBLAS works on a product in one thread."""


@frozen(eq=False)
class Tape:
    """What a forward pass leaves for its gradient: every layer's input, in blocks [b, r, k]."""

    inputs: tuple[Array, ...]
    weights: tuple[Array, ...]
    output: Array
    rows: int

    @property
    def out(self) -> Floats:
        """The network's output [n, outputs]."""
        flat = self.output.reshape(-1, self.output.shape[-1])[: self.rows]
        return flat.astype(np.float64)


class Network:
    """Layers of `widths`, all weights in one flat vector.

    Args:
        widths: inputs, hidden layers, outputs.
        activation: between layers.
        generator: draws the first weights, orthogonal as in PPO's reference implementations.
        gain: scale of the last layer's first weights.
        embedding: fixed features of the outputs [outputs, w]; the last layer's weights are then
            `embedding @ U` with U learned, so that similar outputs share what was learned.
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation: Literal["tanh", "relu"],
        generator: np.random.Generator,
        gain: float = 1.0,
        embedding: Floats | None = None,
    ) -> None:
        self.widths, self.activation = tuple(widths), activation
        self.embedding = embedding
        self.shapes = [(b, a) for a, b in pairwise(widths)]
        if embedding is not None:
            self.shapes[-1] = (embedding.shape[1], widths[-2])
        self.biases = list(widths[1:])
        sizes = [a * b + c for (a, b), c in zip(self.shapes, self.biases, strict=True)]
        self.parameters: Floats = np.zeros(sum(sizes))
        for i, (weight, _) in enumerate(self.views(self.parameters)):
            last = i == len(self.shapes) - 1
            scale = gain if last else np.sqrt(2.0)
            weight[:] = scale * _orthogonal(weight.shape, generator)
        # Windows on the parameters, transposed: they follow every change.
        self._layers = [(weight.T, bias) for weight, bias in self.views(self.parameters)]
        widest = max(a * b for a, b in pairwise(widths))
        self._block = max(8, min(64, SERIAL // widest))

    def views(self, flat: Array) -> list[tuple[Array, Array]]:
        """Weights [out, in] and biases [out] of each layer, as windows on a flat vector."""
        result, at = [], 0
        for (a, b), c in zip(self.shapes, self.biases, strict=True):
            weight, at = flat[at : at + a * b].reshape(a, b), at + a * b
            bias, at = flat[at : at + c], at + c
            result.append((weight, bias))
        return result

    def forward(self, rows: Floats) -> Floats:
        """Outputs [n, outputs] of inputs [n, inputs], in double precision."""
        n, block = len(rows), self._block
        if n <= block:
            return self._run(rows)
        return np.concatenate([self._run(rows[i : i + block]) for i in range(0, n, block)])

    def _run(self, x: Floats) -> Floats:
        for weight, bias in self._layers[:-1]:
            x = x @ weight
            x += bias
            self._activate(x)
        weight, bias = self._layers[-1]
        if self.embedding is not None:
            weight = weight @ self.embedding.T
        x = x @ weight
        x += bias
        return x

    def _activate(self, z: Array) -> None:
        if self.activation == "tanh":
            np.tanh(z, out=z)
        else:
            np.maximum(z, 0, out=z)

    def record(self, rows: Floats, dtype: Any = np.float32) -> Tape:
        """A forward pass that `gradient` can go back over."""
        n, width = rows.shape
        blocks = max(1, -(-n // self._block))
        x: Array = np.zeros((blocks * self._block, width), dtype)
        x[:n] = rows
        x = x.reshape(blocks, self._block, width)
        layers = self.views(self.parameters.astype(dtype))
        inputs, weights = [], []
        for i, (weight, bias) in enumerate(layers):
            if i == len(layers) - 1 and self.embedding is not None:
                weight = self.embedding.astype(dtype) @ weight
            inputs.append(x)
            weights.append(weight)
            x = x @ weight.T
            x += bias
            if i < len(layers) - 1:
                self._activate(x)
        return Tape(tuple(inputs), tuple(weights), x, n)

    def gradient(self, tape: Tape, by_output: Floats) -> Floats:
        """The flat gradient of a loss whose gradient by the output [n, outputs] is given."""
        blocks, block, outputs = tape.output.shape
        dtype = tape.output.dtype
        flat: Array = np.zeros(len(self.parameters), dtype)
        g: Array = np.zeros((blocks * block, outputs), dtype)
        g[: tape.rows] = by_output
        layers = self.views(flat)
        for i in range(len(layers) - 1, -1, -1):
            weight, bias = layers[i]
            x = tape.inputs[i]
            g.sum(0, out=bias)
            g = g.reshape(blocks, block, -1)
            by_weight = np.matmul(g.transpose(0, 2, 1), x).sum(0)
            if i == len(layers) - 1 and self.embedding is not None:
                by_weight = self.embedding.astype(dtype).T @ by_weight
            weight[:] = by_weight
            if i:
                g = g @ tape.weights[i]
                g *= (1 - x * x) if self.activation == "tanh" else x > 0
                g = g.reshape(blocks * block, -1)
        return flat.astype(np.float64)


def _orthogonal(shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    rows, columns = shape
    draw = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(draw)
    q *= np.sign(np.diag(r))  # makes the factorisation, and so the draw, unique
    return q if rows >= columns else q.T


class Adam:
    """Adam (Kingma and Ba 2015) on a flat vector, with its state in the open."""

    def __init__(self, size: int) -> None:
        self.first: Floats = np.zeros(size)
        self.second: Floats = np.zeros(size)
        self.steps = 0

    def step(self, parameters: Floats, gradient: Floats, rate: float) -> None:
        """Change `parameters` in place."""
        self.steps += 1
        self.first *= 0.9
        self.first += 0.1 * gradient
        self.second *= 0.999
        self.second += 0.001 * gradient * gradient
        scale = np.sqrt(self.second / (1 - 0.999**self.steps))
        # 1e-5 instead of 1e-8: near-zero second moments must not turn noise into steps.
        scale += 1e-5
        step = self.first / scale
        step *= rate / (1 - 0.9**self.steps)
        parameters -= step


def clip_norm(gradient: Floats, limit: float | None) -> tuple[Floats, float]:
    """The gradient scaled down to a norm of at most `limit`, and its norm before that."""
    norm = float(np.sqrt(gradient @ gradient))
    if limit is None or norm <= limit:
        return gradient, norm
    return gradient * (limit / norm), norm
