"""What a model with local weights gives a trainer. Importing this needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec
from attrs import frozen

from orchestrion import JSON, Model

if TYPE_CHECKING:
    import torch

    from orchestrion_local.offloading import Resident

__all__ = ["EntropyOf", "Generation", "Scored", "Trainable", "generations_of"]


EntropyOf = Literal["none", "value", "gradient"]
"""Whether `Trainable.score` computes entropies, and whether gradients flow through them."""


class Generation(msgspec.Struct, frozen=True):
    """One completion as it was sampled; its text is never tokenised again.

    Args:
        model: config name of the model.
        version: number of changes of its weights before.
        prompt: token ids.
        response: token ids, with the end-of-sequence token if it was sampled.
        logprobs: log-probability of each response token when it was sampled, temperature applied.
        temperature: temperature of sampling.
        stop: "end", or "length" if it was cut.
    """

    model: str
    version: int
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    logprobs: tuple[float, ...]
    temperature: float = 1.0
    stop: str = "end"

    def to_json(self) -> JSON:
        """Return it as an answer's data holds it, under "generation"."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Generation:
        """Return the inverse of `to_json`."""
        return msgspec.convert(data, cls)


def generations_of(metadata: Mapping[str, JSON]) -> Iterator[Generation]:
    """Yield the completions of a turn, from its output's metadata."""
    return map(Generation.from_json, metadata.get("generations", ()))


@frozen
class Scored:
    """The likelihood of generations under the present weights; gradients flow through it.

    Args:
        logprobs: of the response tokens, shape [B, L], padded with 0 at the end.
        mask: 1 where a token is, shape [B, L].
        entropy: of the distribution of each token, in nats, shape [B, L], if requested.
        hidden: the last layer before each response token, shape [B, L, width], if requested.
    """

    logprobs: torch.Tensor
    mask: torch.Tensor
    entropy: torch.Tensor | None = None
    hidden: torch.Tensor | None = None


@runtime_checkable
class Trainable(Protocol):
    """The runtime of a model whose weights can be trained."""

    name: str
    version: int
    resident: Resident
    """Keeps the weights on their device while it is pinned. A backward pass needs the pin from
    before its forward pass on (`WeightOptimizer.pinned` pins the moments, too, and makes room for a
    micro-batch): on a device with `offload`, the weights may otherwise have made room for others.
    """

    @property
    def root(self) -> Trainable:
        """The model whose weights lie under its adapter; without an adapter, itself."""
        ...

    @property
    def ranks(self) -> Any:
        """The processes that train it, see `ranks.Ranks`; None if this process does."""
        ...

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of a response, unless a request gives another."""
        ...

    def parameters(self) -> Iterable[tuple[str, torch.nn.Parameter]]:
        """Return the parameters that training changes, by name, in a fixed order."""
        ...

    def as_generation(self, messages: Sequence[Mapping[str, JSON]], text: str) -> Generation:
        """Return another's response as a generation to learn from.

        Raises:
            CallError: (permanent) a character is not in the vocabulary, or it does not fit the
                context.
        """
        ...

    def score(
        self,
        generations: Sequence[Generation],
        *,
        hidden: bool = False,
        entropy: EntropyOf = "none",
    ) -> Scored:
        """Return log-probabilities of generations, with gradients, and what else is requested."""
        ...

    def training(self, tokens: int) -> int:
        """Return the bytes for learning from a number of tokens, beside weights and optimizer."""
        ...

    def working(self, room: int, *others: Resident) -> AbstractContextManager[None]:
        """Keep weights and others on their device while the context lasts, and room for computing.

        Of `room` bytes only what the device has is kept free.
        """
        ...

    def fitting(self, state: int) -> int:
        """Return how many tokens, padding included, it can learn from in one pass.

        Args:
            state: bytes of masters, gradients and moments beside the weights.

        Raises:
            RunError: not even a row's tokens; says which settings help.
        """
        ...

    def reference(self) -> AbstractContextManager[None]:
        """Let `score` use the weights of the last `anchor` while the context lasts."""
        ...

    def anchor(self) -> None:
        """Keep a copy of the present weights as the reference, also in checkpoints."""
        ...

    def updated(self) -> None:
        """Count a change of the weights: later generations have the next version."""
        ...

    def holding(self) -> AbstractAsyncContextManager[bool]:
        """Let a server answer from the weights of now while the context lasts.

        Yields whether one does. If so, the model may learn meanwhile; if not, answers are computed
        from the weights here, which must not change.
        """
        ...

    def answered_by(self, teacher: Model) -> AbstractContextManager[None]:
        """Let `teacher` answer in place of this model while the context lasts."""
        ...
