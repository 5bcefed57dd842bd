"""The memory that a model needs, in bytes, computed from the sizes of its network.

The formulas follow the layers of transformers' `llama`-like networks (Llama, Qwen 2 and 3, Mistral)
and of `gpt2`, as PyTorch's autograd keeps their inputs. Here b is the bytes of a weight, h the
width, i the width of the feed-forward part, a and k those of all heads and of the heads of keys,
and r the rank of an adapter. In training, a llama-like layer keeps for each token

    2 h (4 + 2 b) + 4 a b + 4 i b     all weights (in float32: inputs, norms, heads, gates)
    2 h 4 + 4 a b + 3 i b + 4 sum(inputs of adapters) + 4 r (number of adapters)     an adapter

and, for a batch with padding, a mask of b bytes for each token of the row. The tests compare these
with what autograd keeps, to the byte.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from orchestrion_local.networks import Network
from orchestrion_local.settings import ModelSettings, settings_of

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
LOGITS = 2**25
"""How many logits are computed at once: 128 MB in float32."""
COPIES_OF_LOGITS = 5
"""Logits, logits over temperature, their softmax, and the gradients of two of these."""
MICRO_BATCH = 16_384
"""Tokens in one forward pass where there is room for them."""
BATCH = 256
"""Completions computed together where there is room for them."""
SPARE = 0.06
"""Share of free memory that is kept for gaps of the allocator and the workspace of kernels."""
REMEDIES = (
    "set `gradient_checkpointing: true`, a `lora`, `dtype: bfloat16`, `ranks` or a smaller "
    "`context` on the model, or use a larger device"
)
ROW = 4096
"""Tokens of a row whose length no setting limits."""


@frozen
class Footprint:
    """The memory that one model needs. Sizes are in bytes.

    Args:
        network: its sizes.
        width: bytes of a weight.
        adapter: its rank and the names of its matrices (none for all); None if all weights learn.
        again: whether layers are computed again in the backward pass.
        row: maximum number of tokens of a row.
        shares: whether the weights under the adapter are another model's.
        ranks: number of processes that train it.
        here: how many of them share the memory of the model's device: all on a processor.
    """

    network: Network
    width: int
    adapter: tuple[int, tuple[str, ...]] | None
    again: bool
    row: int
    shares: bool = False
    ranks: int = 1
    here: int = 1

    @property
    def _adapted(self) -> list[tuple[int, int]]:
        """Inputs and outputs of the matrices of a layer that have an adapter."""
        assert self.adapter is not None
        linear, (_, targets) = self.network.linear, self.adapter
        return [end for name in targets or linear for end in linear.get(name, ())]

    @property
    def trained(self) -> int:
        """Number of weights that learn."""
        if self.adapter is None:
            return self.network.weights
        return self.network.layers * self.adapter[0] * sum(n + m for n, m in self._adapted)

    @property
    def weights(self) -> int:
        """Size of the weights and of the adapter, whose weights have four bytes at least."""
        under = 0 if self.shares else self.network.weights * self.width
        return under + (self.trained * max(4, self.width) if self.adapter else 0)

    @property
    def state(self) -> int:
        """Size of gradients, two moments and, for weights of two bytes, masters.

        With ranks, the size of all parts on this device, those of the weights that learn included.
        """
        full = max(4, self.width)
        if self.ranks > 1:
            return self.here * 4 * self.trained * full // self.ranks
        masters = self.trained * 4 if self.adapter is None and self.width < 4 else 0
        return 3 * self.trained * full + masters

    def shared(self, learns: bool) -> int:
        """Return the size of what ranks have on this device beside `state`.

        That is their parts of weights that do not learn; and, whole, the weights in use, which are
        the two tables and two layers, with the gradients of those that learn.

        Args:
            learns: whether the weights or adapters on them are trained.
        """
        if self.ranks == 1:
            return 0
        net, learns = self.network, learns and self.adapter is None
        frozen = 0 if learns else net.weights * self.width // self.ranks
        tables = (1 if net.tied else 2) * net.vocabulary * net.width
        used = tables + 2 * (net.weights - tables) // net.layers
        gradients = used * (self.width + max(4, self.width)) if learns else 0
        return self.here * (frozen + used * self.width + gradients)

    @property
    def layer(self) -> int:
        """Size of what a layer keeps of a token for the backward pass."""
        net, b, full = self.network, self.width, max(4, self.width)
        h, i, a, k = net.width, net.inner, net.queries, net.keys
        kept = self.row * b + 4 * net.heads
        if net.type == "gpt2":
            kept += 4 * b + (6 * h + i) * b
        else:
            kept += 8 + 2 * h * full + 4 * a * b + 3 * i * b
        if net.type == "qwen3":
            kept += (a + k) * full + 4 * (net.heads + net.key_heads)
        if self.adapter is None:
            kept += (2 * h + i) * b  # inputs of matrices
            kept += 0 if net.type == "gpt2" else 2 * h * b
            return kept + ((a + k) * b if net.type == "qwen3" else 0)
        rank, targets = self.adapter
        inputs = [n for n, _ in self._adapted]
        if b >= full:
            # Without a copy of higher precision, matrices of one input share it.
            names = set(targets or net.linear)
            groups = [("q_proj", "k_proj", "v_proj", "c_attn"), ("gate_proj", "up_proj", "c_fc")]
            inputs = [h for group in groups if names & set(group)]
            inputs += [i] if names & {"down_proj", "c_proj"} else []
        return kept + (sum(inputs) + len(self._adapted) * rank) * full

    @property
    def token(self) -> int:
        """Size of what all layers keep of a token, with the gradients of the backward pass."""
        net, b = self.network, self.width
        moving = (2 * net.width + 4 * net.inner) * b
        if self.again:
            return net.layers * net.width * b + self.layer + moving
        return net.layers * self.layer + moving

    def training(self, tokens: int) -> int:
        """Return the size of a micro-batch in training, on all ranks of this device."""
        vocabulary = self.network.vocabulary
        at_once = max(1, LOGITS // vocabulary)
        logits = COPIES_OF_LOGITS * 4 * min(at_once, tokens) * vocabulary
        return self.here * (logits + tokens * self.token)

    def forward(self, tokens: int) -> int:
        """Return the size of a pass without gradient: one layer's results, and logits."""
        net = self.network
        logits = 2 * 4 * min(LOGITS, tokens * net.vocabulary)
        return logits + tokens * (2 * net.width + 3 * net.inner) * self.width

    @property
    def completion(self) -> int:
        """Size of a completion while it is sampled: keys and values, and the prompt's pass."""
        net, b = self.network, self.width
        cache = 2 * net.layers * net.keys * b
        return self.row * (cache + (2 * net.width + 3 * net.inner) * b) + 28 * net.vocabulary

    def micro_batch(self, room: int | None) -> int:
        """Return the tokens of a forward pass that fit, at most MICRO_BATCH or one row."""
        return _halved(max(MICRO_BATCH, self.row), room, self.training)

    def batch(self, room: int | None) -> int:
        """Return how many completions fit, at most BATCH."""
        return _halved(BATCH, room, lambda count: count * self.completion)

    @property
    def flops(self) -> tuple[float, float]:
        """Operations for a token: sampled, and learned from (Kaplan et al. 2020, 2001.08361)."""
        count = self.network.weights
        passes = 3 - (1 if self.adapter else 0) + (1 if self.again else 0)
        return 2.0 * count, 2.0 * passes * count


def _halved(most: int, room: int | None, size: Callable[[int], int]) -> int:
    """Return the largest of `most`, its half, its quarter, ... that has room, at least 1."""
    free = None if room is None else (1 - SPARE) * room
    while most > 1 and free is not None and size(most) > free:
        most //= 2
    return most


def footprint_of(settings: ModelSettings, network: Network) -> Footprint:
    """Return the memory that a model of these settings needs."""
    lora, base = settings.lora, settings_of(settings.base)
    shares = lora is not None and base is not None
    ranks = settings.inherited("ranks") or 1
    # An adapter in the model that is copied is merged.
    return Footprint(
        network,
        BYTES[settings.root().dtype],
        (lora.rank, tuple(lora.targets)) if lora is not None else None,
        bool(settings.inherited("gradient_checkpointing")),
        min(settings.inherited("context") or ROW, network.context),
        shares,
        ranks,
        1 if device_name(settings).startswith("cuda") else ranks,
    )


def device_name(settings: ModelSettings) -> str:
    """Return torch's name of the device of a model, opened or not."""
    device = settings.inherited("device")
    return str(getattr(device, "device", None) or getattr(device, "name", "cpu"))
