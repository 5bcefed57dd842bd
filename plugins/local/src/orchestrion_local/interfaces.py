"""What a model with local weights gives a trainer. Importing this needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import frozen

from orchestrion import JSON, Model

if TYPE_CHECKING:
    import torch

    from orchestrion_local.offloading import Resident

__all__ = ["Generation", "Scored", "Trainable", "generations_of"]


@frozen
class Generation:
    """One completion as it was sampled: never text that is tokenised again.

    Args:
        model: config name of the model.
        version: how often its weights had been changed.
        prompt: token ids.
        response: token ids, the end-of-sequence token included if it was sampled.
        logprobs: of each response token under the distribution it was drawn from (temperature
            applied), at the moment of sampling.
        temperature: the one it was sampled with.
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
        """As it stands in an answer's data, under "generation"."""
        return {
            "model": self.model,
            "version": self.version,
            "prompt": list(self.prompt),
            "response": list(self.response),
            "logprobs": list(self.logprobs),
            "temperature": self.temperature,
            "stop": self.stop,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Generation:
        """The inverse of `to_json`."""
        return cls(
            data["model"],
            data["version"],
            tuple(data["prompt"]),
            tuple(data["response"]),
            tuple(data["logprobs"]),
            data["temperature"],
            data["stop"],
        )


def generations_of(metadata: Mapping[str, JSON]) -> Iterator[Generation]:
    """The completions behind a turn, from its output's metadata."""
    for one in metadata.get("generations", ()):
        yield Generation.from_json(one)


@frozen
class Scored:
    """What a model makes of generations now; gradients flow through it.

    Args:
        logprobs: of the response tokens, shape [B, L], padded with 0 at the end.
        mask: 1 where a token is, shape [B, L].
        entropy: of the distribution each token is drawn from, in nats, shape [B, L].
        hidden: the last layer before the first response token, shape [B, width], if asked for.
    """

    logprobs: torch.Tensor
    mask: torch.Tensor
    entropy: torch.Tensor
    hidden: torch.Tensor | None = None


@runtime_checkable
class Trainable(Protocol):
    """The runtime of a model whose weights can be trained."""

    name: str
    version: int
    resident: Resident
    """Keeps the weights where they compute, while it is pinned. Who goes backward through what was
    scored pins it from before the forward pass (`WeightOptimizer.pinned` does, with the moments):
    on a device with `offload`, weights may otherwise have made room for others by then."""

    @property
    def root(self) -> Trainable:
        """The model whose weights lie under its adapter; without one, itself."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    @property
    def max_tokens(self) -> int:
        """Tokens of a response at most, unless an agent asks for another number."""
        ...

    def parameters(self) -> Iterable[tuple[str, torch.nn.Parameter]]:
        """What training changes, with names, in a fixed order."""
        ...

    def encode(self, messages: Sequence[Mapping[str, JSON]]) -> list[int]:
        """The token ids of a prompt."""
        ...

    def encode_response(self, text: str) -> list[int]:
        """The token ids of an answer, with the end-of-sequence token."""
        ...

    def told(self, messages: Sequence[Mapping[str, JSON]], text: str) -> Generation:
        """What somebody else answered, as it is learned from.

        Raises:
            CallError: (permanent) the tokenizer does not know it, or it does not fit the context.
        """
        ...

    def score(self, generations: Sequence[Generation], *, hidden: bool = False) -> Scored:
        """Log-probabilities and entropies of what was sampled, with gradients."""
        ...

    def reference(self) -> AbstractContextManager[None]:
        """While it lasts, `score` is by the weights at the last `anchor`."""
        ...

    def anchor(self) -> None:
        """Remember the weights as they are now, also in checkpoints."""
        ...

    def updated(self) -> None:
        """The weights were changed: later generations bear the next version."""
        ...

    def taught(self, teacher: Model) -> AbstractContextManager[None]:
        """While it lasts, `teacher` answers in this model's place."""
        ...
