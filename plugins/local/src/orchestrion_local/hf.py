"""The model `hf`: its settings. What it does stands in `runtime`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from attrs import Attribute, evolve, field, fields, frozen

from orchestrion import (
    JSON,
    Answer,
    Calls,
    Key,
    Meta,
    Model,
    OpenContext,
    Usage,
    UsageError,
    refuse_idle,
)
from orchestrion_local.devices import Device
from orchestrion_local.server import Server
from orchestrion_local.settings import UNSUPPORTED, Limits

__all__ = ["HF", "Architecture", "Lora", "itself"]

Count = Annotated[int, Meta(ge=1)]
_BATCH = 256


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
        targets: names of the layers that get one; all linear ones by default.
    """

    rank: Count = 8
    alpha: Annotated[float, Meta(gt=0)] = 16.0
    targets: Sequence[str] = ()


@frozen
class HF(Model):
    """A causal language model of the transformers library, sampled in batches on this machine.

    Give it `path`, `architecture` or `base`. Agents that name the same model share its weights.
    A model with a `base` has an adapter on the base's weights with `lora`, weights of its own that
    begin as the base's with `copy`, and is the base by another name with neither.

    Args:
        path: a folder with the model, or its name on a hub.
        architecture: a network from nothing.
        base: another `hf` model, see above; its tokenizer and dtype are this one's too.
        lora: train an adapter; what it is put on stays as it is.
        copy: take weights of its own, which begin as those of `base`.
        alphabet: the characters of a tokenizer of one token a character, for `architecture`.
        tokenizer: folder or hub name of another tokenizer than the model's own.
        chat_template: Jinja text; by default the tokenizer's own.
        max_tokens: of a response, where the request does not say; by default as `base`, or 256, or
            half the context of an `architecture` that has no room for so many.
        temperature: likewise, or 1; 0 takes the likeliest token.
        top_p: likewise, or 1.
        dtype: of the weights.
        device: what it is placed on; by default the processor.
        batch: completions computed together at most.
        overlap: sample in a thread, beside other agents' calls. What meets in a batch then
            depends on time, and with it the last bit of log-probabilities.
        server: samples in this process's place; the weights are here as well, and are trained
            here. `batch` and `overlap` are its own affair.
    """

    unsupported = UNSUPPORTED

    path: str | None = None
    architecture: Architecture | None = None
    base: Model | None = None
    lora: Lora | None = None
    copy: bool = False
    alphabet: str | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    device: Device | None = None
    batch: Count = _BATCH
    overlap: bool = field(default=False)
    server: Server | None = field(default=None)

    @overlap.validator
    def _check_source(self, attribute: Attribute[Any], value: bool) -> None:
        given = [name for name in ("path", "architecture", "base") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                "give one of `path`, `architecture` and `base`, "
                + (f"not {' and '.join(given)}" if given else "and no more")
            )
        if self.copy and (self.base is None or self.lora is not None):
            raise ValueError("`copy` is for a `base`, in place of a `lora`")
        if self.base is not None:
            self._check_on_base()
        if self.architecture is not None and (self.alphabet is None) == (self.tokenizer is None):
            raise ValueError("`architecture` needs an `alphabet` or a `tokenizer`")
        if self.alphabet is not None and self.architecture is None:
            raise ValueError("`alphabet` is for `architecture`: a trained model has its tokenizer")
        if self.alphabet is not None and len(set(self.alphabet)) < len(self.alphabet):
            raise ValueError("alphabet: no character twice")

    def _check_on_base(self) -> None:
        """What the base says for both is not said again."""
        common = ["tokenizer", "chat_template", "dtype", *([] if self.copy else ["device"])]
        what = "which is of the base"
        if self.same:
            common = [one.name for one in fields(HF) if one.name != "base"]
            what = "which is that model by another name; give it a `lora` or `copy: true`"
        refuse_idle(self, common, f"beside `base`, {what}")

    @property
    def same(self) -> bool:
        """Whether it is its base by another name."""
        return self.base is not None and self.lora is None and not self.copy

    @server.validator
    def _check_server(self, attribute: Attribute[Any], value: Server | None) -> None:
        if value is None:
            return
        if value.sync == "lora" and self.lora is None:
            raise ValueError(
                "server: `sync: lora` needs a `lora`; for all weights use `sync: disk`"
            )
        if self.overlap or self.batch != _BATCH:
            raise ValueError("server: `batch` and `overlap` do nothing where a server samples")

    def ceiling(self, tokens: int) -> Usage:
        """The most that one completion takes which reads at most `tokens` tokens."""
        return Usage(1, tokens, self.sampling().max_tokens)

    def sampling(self) -> Limits:
        """How it samples where a request does not say."""
        base = getattr(self.base, "settings", self.base)
        known = base.sampling() if isinstance(base, HF) else Limits()
        if self.architecture is not None and self.architecture.context <= known.max_tokens:
            known = evolve(known, max_tokens=self.architecture.context // 2)
        given = {one: getattr(self, one) for one in ("max_tokens", "temperature", "top_p")}
        return evolve(known, **{name: one for name, one in given.items() if one is not None})

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """See `Model.complete`; the open model does it."""
        raise NotImplementedError("an `hf` model must be opened")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Model]:
        """Load or make the weights; for a trial, only look whether they could be.

        Raises:
            UsageError: `base` is no `hf` model, or an adapter that another would be put on.
        """
        base = itself(self.base)
        if self.lora is not None and isinstance(base, HF) and base.lora is not None:
            raise UsageError(
                f"{ctx.path}.base: is an adapter, and a `lora` is put on weights; name those, or a "
                "`copy: true` of the adapter, which has it folded in"
            )
        if ctx.trial:
            if self.base is not None and not isinstance(self.base, HF):
                raise UsageError(f"{ctx.path}.base: names no `hf` model")
            yield self
            return
        from orchestrion_local.loading import load

        model = load(self, ctx)
        if self.server is None:
            yield model
            return
        try:
            from orchestrion_local.serving import served
        except ImportError as error:
            raise UsageError(
                f"{ctx.path}.server: needs {error.name}; pip install 'orchestrion-local[server]'"
            ) from error
        async with served(model, self.server, ctx):
            yield model


def itself(model: Model | None) -> Model | None:
    """The settings of a model, open or not, under the name where they are said."""
    settings: Model | None = getattr(model, "settings", model)
    return itself(settings.base) if isinstance(settings, HF) and settings.same else settings
