"""A model with local weights at work: answers in batches, scores what it said, saves itself."""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from orchestrion import (
    JSON,
    Answer,
    Array,
    CallError,
    Calls,
    CheckpointError,
    Key,
    Model,
    Request,
    Saved,
    Usage,
)
from orchestrion_local.batching import Batcher
from orchestrion_local.interfaces import Generation, Scored
from orchestrion_local.offloading import Resident
from orchestrion_local.sampling import Drawn, Wanted, sample
from orchestrion_local.settings import UNSUPPORTED, Limits
from orchestrion_local.tokenizers import Tokenizer

if TYPE_CHECKING:
    from orchestrion_local.devices import Device
    from orchestrion_local.hf import HF
    from orchestrion_local.serving import Served

__all__ = ["VERSION", "Limits", "LocalModel", "limits_of", "pack", "placed_on", "sampled", "unpack"]

VERSION = "1"
_ANCHOR = "anchor/"
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}


class LocalModel(Model):
    """See `HF` for the settings; `Trainable` for what a trainer does with it.

    Args:
        settings: the component.
        name: its config name.
        module: the network, of transformers or, with adapters, of peft.
        tokenizer: fits the network.
        adapter: the adapter that is this model; None for the network itself.
        base: whose module this adapter is on, if it is another model's.
    """

    unsupported = UNSUPPORTED

    def __init__(
        self,
        settings: HF,
        name: str,
        module: Any,
        tokenizer: Tokenizer,
        adapter: str | None = None,
        base: LocalModel | None = None,
    ) -> None:
        self.settings, self.name, self.tokenizer = settings, name, tokenizer
        self.adapter, self._base = adapter, base
        self._usual = settings.sampling()
        self.version = 0
        self.frozen = False
        """Whether its weights have no gradients now, because adapters were put on them."""
        self._module = module
        # Models on one network move together, and one of them computes at a time.
        self.resident: Resident = _resident(self) if base is None else base.resident
        self._turn: threading.RLock = threading.RLock() if base is None else base._turn
        self._anchor: dict[str, torch.Tensor] | None = None
        self._anchor_in_path = False
        """Whether `_anchor` holds the weights as `path` has them."""
        self._digest: str | None = None
        self.resident.settle()
        self._teacher: Model | None = None
        self.served: Served | None = None
        """The server that samples in this process's place, if there is one."""
        self.batcher: Batcher[Wanted, Drawn] = Batcher(
            self._sample, settings.batch, settings.overlap
        )
        module.eval()

    @property
    def module(self) -> Any:
        """The network; models on one base have the same."""
        return self._module if self._base is None else self._base.module

    @module.setter
    def module(self, module: Any) -> None:
        self._module = module

    @property
    def root(self) -> LocalModel:
        """The model whose weights lie under its adapter; without one, itself."""
        return self if self._base is None else self._base

    @property
    def device(self) -> torch.device:
        """See `Trainable.device`."""
        return self.resident.device

    @property
    def context(self) -> int:
        """Tokens of prompt and response together at most."""
        return int(getattr(self.module.config, "max_position_embeddings", 1 << 30))

    @property
    def max_tokens(self) -> int:
        """See `Trainable.max_tokens`."""
        return self._usual.max_tokens

    # ------------------------------------------------------------------ answering

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """See `Model.complete`; the answer's data has a `generation` beside the text.

        Raises:
            CallError: (permanent) see `limits_of`.
        """
        if self._teacher is not None:
            return await self._ask_teacher(request, key, calls)
        prompt = self.encode(request["messages"])
        limits = limits_of(self.name, request, self._usual, len(prompt), self.context)
        if self.served is not None:
            return await self.served.complete(request["messages"], prompt, limits, key, calls)
        longest, temperature = limits.max_tokens, limits.temperature
        wanted = Wanted(prompt, key.uniforms(longest), temperature, limits.top_p)

        async def do() -> Answer:
            drawn = await self.batcher(wanted)
            return self.answer(prompt, drawn, temperature, self.version)

        settings = {
            "model": self.name,
            "version": self.version,
            "max_tokens": longest,
            "temperature": temperature,
            "top_p": limits.top_p,
        }
        asked = sampled(self.name, settings, prompt, request, key)
        return await calls.run(asked, do, Usage(1, len(prompt), longest))

    async def embed(self, texts: Sequence[str], calls: Calls) -> Answer:
        """See `Model.embed`: the mean of the last layer's hidden states over a text's tokens.

        Raises:
            CallError: permanent; a text is longer than the model's context.
        """
        prompts = [self.tokenizer.encode_response(text) for text in texts]
        longest = max(map(len, prompts), default=0)
        if longest > self.context:
            raise CallError(
                f"{self.name}: a text of {longest} tokens does not fit the context of "
                f"{self.context}",
                "permanent",
            )

        async def do() -> Answer:
            return Answer(
                {"vectors": [self._embedded(prompt) for prompt in prompts]},
                Usage(1, sum(map(len, prompts))),
            )

        content = {"model": self.name, "version": self.version, "texts": list(texts)}
        asked = Request(f"local:{self.name}", content, VERSION, cache=True)
        return await calls.run(asked, do, Usage(1, sum(map(len, prompts))))

    def embedding_ceiling(self, tokens: int) -> Usage:
        """The most that embedding texts of so many tokens takes."""
        return Usage(1, tokens)

    def _embedded(self, prompt: Sequence[int]) -> list[float]:
        """One text alone, so that what is embedded beside it cannot change its last bits."""
        if not prompt:
            return [0.0] * int(self.module.config.hidden_size)
        with torch.inference_mode(), self.resident.pinned(), self.active():
            ids = torch.tensor([list(prompt)], device=self.device)
            states = self.module(input_ids=ids, output_hidden_states=True).hidden_states
            vector: list[float] = states[-1][0].double().mean(dim=0).tolist()
            return vector

    def _sample(self, wanted: Sequence[Wanted]) -> list[Drawn]:
        with self.resident.pinned(), self.active():
            return sample(self.module, wanted, self.tokenizer.ends, self.tokenizer.pad)

    def generation(
        self, prompt: Sequence[int], drawn: Drawn, temperature: float, version: int
    ) -> Generation:
        """What was drawn, as it is learned from."""
        stop = "end" if drawn.ended else "length"
        return Generation(
            self.name, version, tuple(prompt), drawn.ids, drawn.logprobs, temperature, stop
        )

    def answer(
        self, prompt: Sequence[int], drawn: Drawn, temperature: float, version: int
    ) -> Answer:
        """What was drawn by some version of the weights, as an answer."""
        generation = self.generation(prompt, drawn, temperature, version)
        data = {
            "text": self.tokenizer.decode(drawn.ids),
            "stop": generation.stop,
            "tool_calls": [],
            "model": self.name,
            "generation": generation.to_json(),
        }
        return Answer(data, Usage(1, len(prompt), len(drawn.ids)))

    def ceiling(self, tokens: int) -> Usage:
        """The most that one completion takes which reads at most `tokens` tokens."""
        return Usage(1, min(tokens, self.context), self._usual.max_tokens)

    # ------------------------------------------------------------------ being taught

    @contextmanager
    def taught(self, teacher: Model) -> Iterator[None]:
        """See `Trainable.taught`."""
        before, self._teacher = self._teacher, teacher
        try:
            yield
        finally:
            self._teacher = before

    async def _ask_teacher(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        assert self._teacher is not None
        answer = await self._teacher.complete(request, key, calls)
        generation = self.told(request["messages"], answer.data["text"])
        return Answer({**answer.data, "generation": generation.to_json()}, answer.usage)

    def told(self, messages: Sequence[Mapping[str, JSON]], text: str) -> Generation:
        """See `Trainable.told`."""
        prompt, response = self.encode(messages), self.encode_response(text)
        tokens = len(prompt) + len(response)
        if tokens > self.context:
            raise CallError(
                f"{self.name}: {tokens} tokens to learn from do not fit a context of "
                f"{self.context}; the text begins {text[:80]!r}",
                "permanent",
            )
        # Nobody sampled it here: what it would have been sampled with is not known.
        return Generation(
            self.name, self.version, tuple(prompt), tuple(response), (0.0,) * len(response)
        )

    def encode(self, messages: Sequence[Mapping[str, JSON]]) -> list[int]:
        """See `Trainable.encode`."""
        return self.tokenizer.encode(messages)

    def encode_response(self, text: str) -> list[int]:
        """See `Trainable.encode_response`."""
        return self.tokenizer.encode_response(text)

    # ------------------------------------------------------------------ being trained

    def parameters(self) -> Iterable[tuple[str, torch.nn.Parameter]]:
        """See `Trainable.parameters`: all weights, or those of the adapter."""
        for name, parameter in self.module.named_parameters():
            if self.adapter is None:
                # Another model's adapter that was put on this one is no part of it, nor may it
                # change the names of what is.
                if "lora_" not in name:
                    yield (
                        name.removeprefix("base_model.model.").replace(".base_layer", ""),
                        parameter,
                    )
            elif f".{self.adapter}." in name:
                yield name, parameter

    def updated(self) -> None:
        """See `Trainable.updated`."""
        self.version += 1

    @contextmanager
    def reference(self) -> Iterator[None]:
        """See `Trainable.reference`."""
        if self._anchor is None:
            raise RuntimeError(f"{self.name}: anchor() says what the reference is")
        with self.resident.pinned(), self._turn:
            now = self._copied()
            self._set(self._anchor)
            try:
                yield
            finally:
                self._set(now)

    def anchor(self) -> None:
        """See `Trainable.anchor`."""
        self._anchor = self._copied()
        self._anchor_in_path = self._in_path and self.version == 0

    @property
    def _in_path(self) -> bool:
        """Whether untrained weights can be read again from `path`."""
        return self.adapter is None and self.settings.path is not None

    def _copied(self) -> dict[str, torch.Tensor]:
        return {name: self.resident.copy_away(value) for name, value in self.parameters()}

    def _set(self, values: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters():
                parameter.copy_(values[name])

    @contextmanager
    def active(self) -> Iterator[None]:
        """While it lasts, the network is this model and none of the others on its base.

        Who pins `resident` does so before: a thread that waits for memory must not keep the others
        from finishing.
        """
        if not hasattr(self.module, "peft_config"):
            yield
            return
        with self._turn:
            # When sampling as well: how torch multiplies, and so the last bit, hangs on it.
            self._thaw()
            if self.adapter is None:
                with self.module.disable_adapter():
                    yield
                return
            if self.module.active_adapter != self.adapter:
                self.module.set_adapter(self.adapter)
            yield

    def _thaw(self) -> None:
        """Gradients flow to the weights of a base, or else to those of adapters on it."""
        root, frozen = self.root, self.adapter is not None
        if root.adapter is None and root.frozen != frozen:
            for _, parameter in root.parameters():
                parameter.requires_grad_(not frozen)
            root.frozen = frozen

    def score(self, generations: Sequence[Generation], *, hidden: bool = False) -> Scored:
        """See `Trainable.score`; one pass over all of them."""
        device = self.device
        ids, attention, longest = self._padded(generations)
        position = (attention.cumsum(1) - 1).clamp(min=0)
        with self.resident.pinned(), self.active():
            out = self.module(
                ids.to(device),
                attention_mask=attention.to(device),
                position_ids=position.to(device),
                logits_to_keep=longest + 1,
                output_hidden_states=hidden,
            )
        heat = torch.tensor([one.temperature or 1.0 for one in generations], device=device)
        logits = out.logits[:, :-1].float() / heat[:, None, None]
        logprobs = torch.log_softmax(logits, dim=-1)
        targets = ids[:, -longest:].to(device)
        mask = attention[:, -longest:].to(device, torch.float32)
        of_targets = logprobs.gather(2, targets[:, :, None])[:, :, 0]
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        before = out.hidden_states[-1][:, -longest - 1] if hidden else None
        return Scored(of_targets * mask, mask, entropy * mask, before)

    def _padded(self, generations: Sequence[Generation]) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Ids and mask: prompts end, and responses begin, in the same column."""
        before = max(len(one.prompt) for one in generations)
        longest = max(len(one.response) for one in generations)
        ids = np.full((len(generations), before + longest), self.tokenizer.pad)
        attention = np.zeros_like(ids)
        for i, one in enumerate(generations):
            begin, end = before - len(one.prompt), before + len(one.response)
            ids[i, begin:end] = (*one.prompt, *one.response)
            attention[i, begin:end] = 1
        return torch.from_numpy(ids), torch.from_numpy(attention), longest

    def plain(self) -> Any:
        """A network of the transformers library of its own: adapters are folded into the base."""
        if not hasattr(self.module, "peft_config"):
            return copy.deepcopy(self.module)
        module = copy.deepcopy(self.module)
        if self.adapter is None:
            return module.unload()
        return module.merge_and_unload(adapter_names=[self.adapter])

    # ------------------------------------------------------------------ being kept

    def save(self) -> Saved:
        """What was trained: the weights, or the adapter's; and what they are compared with.

        Of weights that are read from `path` and were not trained, a digest is enough.
        """
        arrays: dict[str, Array] = {}
        data: dict[str, JSON] = {"version": self.version}
        if self._in_path and self.version == 0:
            data["digest"] = self._digest_of_path()
        else:
            arrays.update((name, pack(value)) for name, value in self.parameters())
        if self._anchor_in_path:
            data["anchor"] = self._digest_of_path()
        else:
            for name, value in (self._anchor or {}).items():
                arrays[f"{_ANCHOR}{name}"] = pack(value)
        return Saved(arrays, data)

    def load(self, saved: Saved) -> None:
        """See `Stateful.load`."""
        if saved.data.get("anchor"):
            self._check_path(saved.data["anchor"])
            self.anchor()
        if saved.data.get("digest"):
            self._check_path(saved.data["digest"])
        else:
            self._set(self._saved(saved, ""))
        if any(name.startswith(_ANCHOR) for name in saved.arrays):
            kept = self._saved(saved, _ANCHOR)
            self._anchor = {name: self.resident.copy_away(value) for name, value in kept.items()}
            self._anchor_in_path = False
        self.version = int(saved.data["version"])

    def _digest_of_path(self) -> str:
        """Return a digest of the weights as they were read; taken once, before any training."""
        if self._digest is None:
            digest = hashlib.sha256()
            weights: Mapping[str, torch.Tensor] = dict(self.parameters())
            if self.version > 0 and self._anchor is not None:
                weights = self._anchor
            for name, value in weights.items():
                digest.update(name.encode())
                digest.update(pack(value).data)
            self._digest = digest.hexdigest()
        return self._digest

    def _check_path(self, digest: str) -> None:
        if self.version or self._digest_of_path() != digest:
            raise CheckpointError(
                f"{self.name}: the weights of {self.settings.path} are not those that the "
                "checkpoint was made with; put them back"
            )

    def _saved(self, saved: Saved, prefix: str) -> dict[str, torch.Tensor]:
        values = {}
        for name, parameter in self.parameters():
            found = saved.arrays.get(prefix + name)
            if found is None or tuple(found.shape) != tuple(parameter.shape):
                raise CheckpointError(
                    f"{self.name}: the checkpoint has no {name} of shape {tuple(parameter.shape)}"
                )
            values[name] = unpack(found)
        return values


def _resident(model: LocalModel) -> Resident:
    """By the device that a model, or else what it is made from, is placed on."""

    def tensors() -> Iterator[torch.Tensor]:
        yield from model.module.parameters()
        yield from model.module.buffers()

    device = placed_on(model.settings)
    if device is None:
        return Resident(model.name, tensors, torch.device("cpu"))
    return device.resident(model.name, tensors)


def placed_on(settings: HF) -> Device | None:
    """The device of a model, or else of what it is made from."""
    while settings.device is None and isinstance(settings.base, LocalModel):
        settings = settings.base.settings
    return settings.device


def sampled(
    name: str,
    settings: Mapping[str, JSON],
    prompt: Sequence[int],
    request: Mapping[str, JSON],
    key: Key,
) -> Request:
    """Return the call that sampling from weights is: its tokens name it, its messages are shown."""
    return Request(
        f"local:{name}",
        {**settings, "prompt": prompt},
        VERSION,
        sample=key.hex(),
        timeout=86400,
        shown={**settings, "messages": request["messages"]},
    )


def limits_of(
    name: str, request: Mapping[str, JSON], usual: Limits, prompt: int, context: int
) -> Limits:
    """What a request asks for, the rest as usual.

    Raises:
        CallError: (permanent) it does not fit the context, or weights alone cannot do it.
    """
    for unsupported in sorted(UNSUPPORTED):
        if request.get(unsupported):
            raise CallError(f"{name}: local weights do not support `{unsupported}`", "permanent")
    longest = int(request.get("max_tokens") or usual.max_tokens)
    if prompt + longest > context:
        raise CallError(
            f"{name}: a prompt of {prompt} tokens and a response of {longest} do not fit a "
            f"context of {context}",
            "permanent",
        )
    temperature = _or(request.get("temperature"), usual.temperature)
    return Limits(longest, temperature, _or(request.get("top_p"), usual.top_p))


def _or(value: Any, default: float) -> float:
    return default if value is None else float(value)


def pack(value: torch.Tensor) -> Array:
    """A tensor as it goes into checkpoints."""
    plain = value.detach().cpu().contiguous()
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return Array(_DTYPES[plain.dtype], tuple(plain.shape), raw)


def unpack(array: Array) -> torch.Tensor:
    """The inverse of `pack`."""
    dtype = next(one for one, name in _DTYPES.items() if name == array.dtype)
    flat = torch.frombuffer(bytearray(array.data), dtype=dtype)
    return flat.reshape(array.shape)
