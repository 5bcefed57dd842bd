"""Settings without behaviour, shared by models and trainers. Importing this needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from attrs import Attribute, evolve, field, fields, frozen

from orchestrion import Meta, Model, refuse_idle
from orchestrion_local.devices import Device

UNSUPPORTED = frozenset(("tools", "schema", "stop"))
"""Fields of a request that sampling from weights cannot honour; see `Model.unsupported`."""

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, lt=1)]


@frozen
class Architecture:
    """A new network with random weights.

    Args:
        type: type of the network.
        layers: number of layers.
        width: size of the hidden state; a multiple of `heads`.
        heads: number of attention heads.
        inner: width of the feed-forward part; by default 4 (gpt2) or 8/3 (llama) of `width`.
        context: maximum number of tokens of prompt and response together.
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
        rank: rank of the change of each matrix.
        alpha: the change is scaled by alpha / rank.
        targets: names of the layers that get an adapter; all linear ones by default.
    """

    rank: Count = 8
    alpha: Annotated[float, Meta(gt=0)] = 16.0
    targets: Sequence[str] = ()


@frozen
class SamplingLimits:
    """How one response is sampled."""

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0


@frozen
class Optimizer:
    """AdamW.

    Args:
        learning_rate: maximum learning rate.
        schedule: how it decreases after the warm-up, over all planned steps.
        warmup: number of steps over which it rises to its maximum.
        weight_decay: per step, times the learning rate.
        beta1: decay rate of the mean of the gradient.
        beta2: decay rate of the mean of its square.
        epsilon: added to the denominator.
        max_gradient_norm: longer gradients are scaled down to it; null for no limit.
    """

    learning_rate: Annotated[float, Meta(gt=0)] = 1e-5
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: Annotated[int, Meta(ge=0)] = 0
    weight_decay: Annotated[float, Meta(ge=0)] = 0.0
    beta1: Share = 0.9
    beta2: Share = 0.999
    epsilon: Annotated[float, Meta(gt=0)] = 1e-8
    max_gradient_norm: Annotated[float, Meta(gt=0)] | None = 1.0


def _check_address(instance: object, attribute: Attribute[Any], value: str) -> None:
    parts = urlsplit(value)
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError(
            "base_url: must be an address like http://127.0.0.1:8000/v1, without password or query"
        )


@frozen
class Server:
    """A server that samples in place of this process: vLLM, SGLang, or another that has OpenAI's
    completions endpoint, and takes and returns token ids.

    Args:
        base_url: its address, usually ending in "/v1".
        model: name of the weights there; with `sync: lora`, name of the base.
        key_env: environment variable with its key; null sends none.
        sync: how it gets changed weights. `none`: never; its responses have version 0. `lora`: the
            adapter is written to `folder` and loaded under a new name (vLLM). `disk`: the whole
            model is written there, and the server loads it (SGLang).
        folder: where weights are written; the server must see it under the same path.
        timeout: maximum number of seconds of a request.
    """

    base_url: str = field(validator=_check_address)
    model: Annotated[str, Meta(min_length=1)]
    key_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    sync: Literal["none", "lora", "disk"] = "none"
    folder: Annotated[str, Meta(min_length=1)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=86400)] = 600.0

    def __attrs_post_init__(self) -> None:
        if self.sync == "none" and self.folder is not None:
            raise ValueError("folder: has no effect with `sync: none`; remove it")
        if self.sync != "none" and self.folder is None:
            raise ValueError(
                f"folder: `sync: {self.sync}` needs a folder that the server sees under the same "
                "path"
            )


@frozen
class ModelSettings:
    """Settings of the model `hf`.

    Args:
        path: a folder with the model, or its name on a hub.
        architecture: a new network.
        base: another `hf` model, see above; its tokenizer and dtype are used, too.
        lora: train an adapter; the weights under it do not change.
        copy: take a copy of the weights of `base`.
        alphabet: the characters of a tokenizer of one token a character, for `architecture`.
        tokenizer: folder or hub name of a tokenizer in place of the model's own.
        chat_template: Jinja text; by default the tokenizer's own.
        max_tokens: maximum length of a response if the request gives none; by default as `base`,
            or 256, or half the context of an `architecture` with a smaller context.
        temperature: if the request gives none, by default as `base`, or 1; 0 takes the likeliest
            token.
        top_p: if the request gives none, by default as `base`, or 1.
        context: maximum number of tokens of prompt and response together; by default as `base`, or
            what the network was made for. Memory for training is reckoned with rows of this length.
        dtype: of the weights.
        device: where it is placed; by default the processor.
        batch: maximum number of completions computed together; by default as `base`, or 256, or as
            many as there is memory for.
        overlap: sample in a thread, beside other agents' calls. Which requests share a batch then
            depends on time, and with it the last bit of log-probabilities.
        gradient_checkpointing: keep the inputs of layers only in training, and compute the rest
            again in the backward pass: a third more time, a small part of the memory. By default as
            `base`, or false.
        ranks: number of processes that train it, each with a part of weights, gradients and moments
            (FSDP2): on a GPU each, beginning with that of `device`; at most as many as this machine
            has, or has processors. By default as `base`, or this process trains it.
        server: samples in place of this process; the weights are also here, and are trained
            here. `batch` and `overlap` have no effect then.
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
    context: Annotated[int, Meta(ge=2)] | None = None
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    device: Device | None = None
    batch: Count | None = None
    gradient_checkpointing: bool | None = None
    ranks: Count | None = field(default=None, metadata={"decisive": False})
    overlap: bool = field(default=False)
    server: Server | None = field(default=None)

    @overlap.validator
    def _check_source(self, attribute: Attribute[Any], value: bool) -> None:
        given = [name for name in ("path", "architecture", "base") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                "give one of `path`, `architecture` and `base`"
                + (f", not {' and '.join(given)}" if given else "")
            )
        if self.architecture is not None and self.context is not None:
            raise ValueError("context: is part of `architecture`; set it there")
        if self.copy and (self.base is None or self.lora is not None):
            raise ValueError("`copy` needs a `base`, and no `lora`")
        if (self.inherited("ranks") or 1) > 1 and getattr(
            self.inherited("device"), "offload", None
        ):
            raise ValueError("ranks: stay on their devices; remove `offload` from `device`")
        if self.base is not None:
            self._check_on_base()
        if self.architecture is not None and (self.alphabet is None) == (self.tokenizer is None):
            raise ValueError("`architecture` needs an `alphabet` or a `tokenizer`")
        if self.alphabet is not None and self.architecture is None:
            raise ValueError("`alphabet` needs `architecture`: a trained model has its tokenizer")
        if self.alphabet is not None and len(set(self.alphabet)) < len(self.alphabet):
            raise ValueError("alphabet: a character is listed twice")

    def _check_on_base(self) -> None:
        """Refuse settings that are the base's."""
        common = [
            "tokenizer",
            "chat_template",
            "dtype",
            *([] if self.copy else ["device", "ranks"]),
        ]
        reason = "whose setting is used"
        if self.is_alias:
            common = [
                attribute.name for attribute in fields(ModelSettings) if attribute.name != "base"
            ]
            reason = "whose other name this is; give it a `lora` or `copy: true`"
        refuse_idle(self, common, f"beside `base`, {reason}")

    @server.validator
    def _check_server(self, attribute: Attribute[Any], value: Server | None) -> None:
        if value is None:
            return
        if value.sync == "lora" and self.lora is None:
            raise ValueError(
                "server: `sync: lora` needs a `lora`; for all weights use `sync: disk`"
            )
        if self.overlap or self.batch is not None:
            raise ValueError("server: `batch` and `overlap` have no effect with it; remove them")

    @property
    def is_alias(self) -> bool:
        """Whether it is another name of its base."""
        return self.base is not None and self.lora is None and not self.copy

    def inherited(self, name: str) -> Any:
        """Return a setting of this model, or that of its base if this one has none."""
        value, base = getattr(self, name), settings_of(self.base)
        return value if value is not None or base is None else base.inherited(name)

    def root(self) -> ModelSettings:
        """Return the settings of the model whose weights these are, were copied from, or adapt."""
        base = settings_of(self.base)
        return self if base is None else base.root()

    def sampling(self) -> SamplingLimits:
        """Return how it samples if a request has no settings of its own."""
        base = settings_of(self.base)
        limits = base.sampling() if base is not None else SamplingLimits()
        if self.architecture is not None and self.architecture.context <= limits.max_tokens:
            limits = evolve(limits, max_tokens=self.architecture.context // 2)
        own = {name: getattr(self, name) for name in ("max_tokens", "temperature", "top_p")}
        return evolve(limits, **{name: value for name, value in own.items() if value is not None})


def settings_of(model: object) -> ModelSettings | None:
    """Return the settings of an `hf` model, opened or not; those of its base if it is an alias."""
    settings = model if isinstance(model, ModelSettings) else getattr(model, "settings", None)
    if not isinstance(settings, ModelSettings):
        return None
    return settings_of(settings.base) if settings.is_alias else settings
