"""The model `hf`: its settings. What it does stands in `runtime`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from attrs import Attribute, field, frozen

from orchestrion import JSON, Answer, Calls, Key, Meta, Model, OpenContext, Usage, UsageError
from orchestrion_local.devices import Device

__all__ = ["HF", "Architecture", "Lora"]

Count = Annotated[int, Meta(ge=1)]


@frozen
class Architecture:
    """A network from nothing, with random weights.

    Args:
        type: the shape of the layers.
        layers: how many.
        width: of the hidden state; a multiple of `heads`.
        heads: attention heads.
        inner: width inside the feed-forward part; by default 4 (gpt2) or 8/3 (llama) of `width`.
        context: tokens of prompt and response together at most.
    """

    type: Literal["llama", "gpt2"] = "llama"
    layers: Count = 2
    width: Count = 64
    heads: Count = 2
    inner: Count | None = None
    context: Annotated[int, Meta(ge=2)] = 128

    def __attrs_post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} is not a multiple of heads: {self.heads}")


@frozen
class Lora:
    """A low-rank adapter (Hu et al. 2021, arXiv 2106.09685): it is trained, the base is not.

    Args:
        rank: of the change of each matrix.
        alpha: the change is scaled by alpha / rank.
        dropout: while training.
        targets: names of the layers that get one; all linear ones by default.
    """

    rank: Count = 8
    alpha: Annotated[float, Meta(gt=0)] = 16.0
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    targets: Sequence[str] = ()


@frozen
class HF(Model):
    """A causal language model of the transformers library, sampled in batches on this machine.

    Give it `path`, `architecture` or `base`. Agents that name the same model share its weights;
    models with the same `base` and a `lora` each share the base's.

    Args:
        path: a folder with the model, or its name on a hub.
        architecture: a network from nothing.
        base: another `hf` model whose weights this one uses, frozen, under its own `lora`.
        lora: train an adapter; what it is put on stays as it is.
        alphabet: the characters of a tokenizer of one token a character, for `architecture`.
        tokenizer: folder or hub name of another tokenizer than the model's own.
        chat_template: Jinja text; by default the tokenizer's own.
        max_tokens: of a response, where the request does not say.
        temperature: likewise; 0 takes the likeliest token.
        top_p: likewise.
        dtype: of the weights.
        device: what it is placed on; by default the processor.
        batch: completions computed together at most.
        overlap: sample in a thread, beside other agents' calls. What meets in a batch then
            depends on time, and with it the last bit of log-probabilities.
    """

    path: str | None = None
    architecture: Architecture | None = None
    base: Model | None = None
    lora: Lora | None = None
    alphabet: str | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    max_tokens: Count = 256
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    device: Device | None = None
    batch: Count = 256
    overlap: bool = field(default=False)

    @overlap.validator
    def _check_source(self, attribute: Attribute[Any], value: bool) -> None:
        given = [name for name in ("path", "architecture", "base") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                "give one of `path`, `architecture` and `base`, "
                + (f"not {' and '.join(given)}" if given else "and no more")
            )
        if self.base is not None and self.lora is None:
            raise ValueError("`base` needs a `lora`: without one, name the base itself")
        if self.architecture is not None and (self.alphabet is None) == (self.tokenizer is None):
            raise ValueError("`architecture` needs an `alphabet` or a `tokenizer`")
        if self.alphabet is not None and self.architecture is None:
            raise ValueError("`alphabet` is for `architecture`: a trained model has its tokenizer")
        if self.alphabet is not None and len(set(self.alphabet)) < len(self.alphabet):
            raise ValueError("alphabet: no character twice")

    def ceiling(self, tokens: int) -> Usage:
        """The most that one completion takes which reads at most `tokens` tokens."""
        return Usage(1, tokens, self.max_tokens)

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """See `Model.complete`; the open model does it."""
        raise NotImplementedError("an `hf` model must be opened")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Model]:
        """Load or make the weights; for a trial, only look whether they could be."""
        if ctx.trial:
            if self.base is not None and not isinstance(self.base, HF):
                raise UsageError(f"{ctx.path}.base: names no `hf` model")
            yield self
            return
        from orchestrion_local.loading import load

        yield load(self, ctx)
