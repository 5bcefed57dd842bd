"""A model with local weights: answers in batches, scores generations, saves itself.

All models on one network (a base and the adapters on it) share the network, move together, and
compute one at a time. Of bits: on a processor, an answer depends on the weights, the prompt and the
call's key only, so that a resumed run computes it again.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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
    RunError,
    Saved,
    Usage,
)
from orchestrion_local.batching import Batcher
from orchestrion_local.devices import Device
from orchestrion_local.interfaces import EntropyOf, Generation, Scored
from orchestrion_local.memory import (
    BATCH,
    MICRO_BATCH,
    REMEDIES,
    Footprint,
    footprint_of,
)
from orchestrion_local.networks import Network
from orchestrion_local.offloading import Resident
from orchestrion_local.sampling import Completion, Prompt, sample
from orchestrion_local.scoring import score
from orchestrion_local.settings import UNSUPPORTED, Limits, ModelSettings
from orchestrion_local.tokenizers import Tokenizer

__all__ = ["LocalModel", "limits_of", "pack", "placed_on", "sampled", "unpack"]

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
        adapter: name of the adapter that is this model; None for the network itself.
        base: the model whose network this adapter is on, if it is another model's.
    """

    unsupported = UNSUPPORTED
    together = True

    def __init__(
        self,
        settings: ModelSettings,
        name: str,
        module: Any,
        tokenizer: Tokenizer,
        adapter: str | None = None,
        base: LocalModel | None = None,
    ) -> None:
        self.settings, self.name, self.tokenizer = settings, name, tokenizer
        self.adapter, self._base, self._module = adapter, base, module
        self.limits = settings.sampling()
        self.version = 0
        self.frozen = False
        """Whether its weights have no gradients now, because adapters are on them."""
        self.resident: Resident = _resident(self) if base is None else base.resident
        self._turn: threading.RLock = threading.RLock() if base is None else base._turn
        self._anchor: dict[str, torch.Tensor] | None = None
        self._anchor_in_path = False
        """Whether `_anchor` holds the weights as `path` has them."""
        self._digest: str | None = None
        self._plain_head: bool | None = None
        self.resident.settle()
        self._teacher: Model | None = None
        self.served: Any = None
        """A `serving.Served`, which samples in place of this process; None without a server."""
        self.batcher: Batcher[Prompt, Completion] = Batcher(
            self._sample, self.batch, settings.overlap
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
        """See `Trainable.root`."""
        return self if self._base is None else self._base

    @property
    def device(self) -> torch.device:
        """See `Trainable.device`."""
        return self.resident.device

    @property
    def context(self) -> int:
        """Maximum number of tokens of prompt and response together."""
        largest = int(getattr(self.module.config, "max_position_embeddings", 1 << 30))
        return min(self.settings.inherited("context") or largest, largest)

    @property
    def footprint(self) -> Footprint | None:
        """What it takes, reckoned; None for types of networks without formulas."""
        network = Network.from_config(self._network.config.to_dict())
        return None if network is None else footprint_of(self.settings, network)

    def _left(self, state: int) -> int | None:
        """Return the bytes for computing; None if there is no limit."""
        device = placed_on(self.settings)
        return None if device is None else device.left(self.resident.size + state)

    def training(self, tokens: int) -> int:
        """See `Trainable.training`."""
        return self.footprint.training(tokens) if self.footprint is not None else 0

    @contextmanager
    def working(self, room: int, *others: Resident) -> Iterator[None]:
        """See `Trainable.working`."""
        pool = self.resident.pool
        if pool is None:
            yield
            return
        left = self._left(sum(other.size for other in others))
        size = room if left is None else max(0, min(room, left))
        space = Resident(f"{self.name}'s batch", tuple, self.device, pool, size=size)
        try:
            with self.resident.pinned(space, *others):
                yield
        finally:
            pool.evict(space)

    def fitting(self, state: int) -> int:
        """See `Trainable.fitting`."""
        footprint, room = self.footprint, self._left(state)
        if footprint is None:
            return MICRO_BATCH
        tokens = footprint.micro_batch(room)
        if tokens < footprint.row and self.settings.inherited("context"):
            raise RunError(f"model {self.name}: {footprint.shortage(room)}; {self.remedy(state)}")
        return tokens

    def remedy(self, state: int) -> str:
        """See `Trainable.remedy`."""
        footprint, room = self.footprint, self._left(state)
        return footprint.remedy(room) if footprint is not None else REMEDIES

    @property
    def max_tokens(self) -> int:
        """See `Trainable.max_tokens`."""
        return self.limits.max_tokens

    # ------------------------------------------------------------------ answering

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """See `Model.complete`; the answer's data has a `generation` beside the text.

        Raises:
            CallError: (permanent) see `limits_of`.
        """
        if self._teacher is not None:
            return await self._ask_teacher(self._teacher, request, key, calls)
        prompt = self.encode(request["messages"])
        limits = limits_of(self.name, request, self.limits, len(prompt), self.context)
        if self.served is not None:
            answer: Answer = await self.served.complete(
                request["messages"], prompt, limits, key, calls
            )
            return answer
        wanted = Prompt(prompt, key.uniforms(limits.max_tokens), limits.temperature, limits.top_p)

        async def do() -> Answer:
            completion = await self.batcher(wanted)
            return self.answer(prompt, completion, limits.temperature, self.version)

        settings = {
            "model": self.name,
            "version": self.version,
            "max_tokens": limits.max_tokens,
            "temperature": limits.temperature,
            "top_p": limits.top_p,
        }
        call = sampled(self.name, settings, prompt, request, key)
        return await calls.run(call, do, Usage(1, len(prompt), limits.max_tokens))

    async def embed(self, texts: Sequence[str], calls: Calls) -> Answer:
        """See `Model.embed`: the mean of the last layer's hidden states over a text's tokens.

        Raises:
            CallError: (permanent) a text is longer than the model's context.
        """
        prompts = [self.tokenizer.encode_response(text) for text in texts]
        longest = max(map(len, prompts), default=0)
        if longest > self.context:
            raise CallError(
                f"{self.name}: a text of {longest} tokens does not fit the context of "
                f"{self.context}",
                "permanent",
            )
        usage = Usage(1, sum(map(len, prompts)))

        async def do() -> Answer:
            return Answer({"vectors": [self._embedded(prompt) for prompt in prompts]}, usage)

        content = {"model": self.name, "version": self.version, "texts": list(texts)}
        call = Request(f"local:{self.name}", content, VERSION, cache=True, computed=True)
        return await calls.run(call, do, usage)

    def embedding_ceiling(self, tokens: int) -> Usage:
        """Return the maximum usage of embedding texts of `tokens` tokens."""
        return Usage(1, tokens)

    def _embedded(self, prompt: Sequence[int]) -> list[float]:
        """Return the vector of one text, alone: other texts must not change its last bits."""
        if not prompt:
            return [0.0] * int(self.module.config.hidden_size)
        with torch.inference_mode(), self.resident.pinned(), self.active():
            ids = torch.tensor([list(prompt)], device=self.device)
            states = self.module(input_ids=ids, output_hidden_states=True).hidden_states
            vector: list[float] = states[-1][0].double().mean(dim=0).tolist()
            return vector

    def batch(self) -> int:
        """Return how many completions are computed together."""
        given: int | None = self.settings.inherited("batch")
        if given is not None:
            return given
        footprint = self.footprint
        return BATCH if footprint is None else footprint.batch(self._left(0))

    def _sample(self, wanted: Sequence[Prompt]) -> list[Completion]:
        each = self.footprint.completion if self.footprint is not None else 0
        with self.working(len(wanted) * each), self.active():
            return sample(self.module, wanted, self.tokenizer.ends, self.tokenizer.pad)

    def generation(
        self, prompt: Sequence[int], completion: Completion, temperature: float, version: int
    ) -> Generation:
        """Return a completion as a generation to learn from."""
        stop = "end" if completion.ended else "length"
        return Generation(
            self.name,
            version,
            tuple(prompt),
            completion.ids,
            completion.logprobs,
            temperature,
            stop,
        )

    def answer(
        self, prompt: Sequence[int], completion: Completion, temperature: float, version: int
    ) -> Answer:
        """Return a completion by some version of the weights as an answer."""
        generation = self.generation(prompt, completion, temperature, version)
        data = {
            "text": self.tokenizer.decode(completion.ids),
            "stop": generation.stop,
            "tool_calls": [],
            "model": self.name,
            "generation": generation.to_json(),
        }
        return Answer(data, Usage(1, len(prompt), len(completion.ids)))

    def ceiling(self, tokens: int) -> Usage:
        """Return the maximum usage of a completion whose prompt has at most `tokens` tokens."""
        return Usage(1, min(tokens, self.context), self.limits.max_tokens)

    # ------------------------------------------------------------------ teachers

    @contextmanager
    def answered_by(self, teacher: Model) -> Iterator[None]:
        """See `Trainable.answered_by`."""
        before, self._teacher = self._teacher, teacher
        try:
            yield
        finally:
            self._teacher = before

    async def _ask_teacher(
        self, teacher: Model, request: Mapping[str, JSON], key: Key, calls: Calls
    ) -> Answer:
        answer = await teacher.complete(request, key, calls)
        generation = self.as_generation(request["messages"], answer.data["text"])
        return Answer({**answer.data, "generation": generation.to_json()}, answer.usage)

    def as_generation(self, messages: Sequence[Mapping[str, JSON]], text: str) -> Generation:
        """See `Trainable.as_generation`."""
        prompt, response = self.encode(messages), self.encode_response(text)
        tokens = len(prompt) + len(response)
        if tokens > self.context:
            raise CallError(
                f"{self.name}: {tokens} tokens to learn from do not fit a context of "
                f"{self.context}; the text begins {text[:80]!r}",
                "permanent",
            )
        # It was not sampled here: its log-probabilities at sampling are unknown.
        unknown = (0.0,) * len(response)
        return Generation(self.name, self.version, tuple(prompt), tuple(response), unknown)

    def encode(self, messages: Sequence[Mapping[str, JSON]]) -> list[int]:
        """See `Trainable.encode`."""
        return self.tokenizer.encode(messages)

    def encode_response(self, text: str) -> list[int]:
        """See `Trainable.encode_response`."""
        return self.tokenizer.encode_response(text)

    # ------------------------------------------------------------------ training

    def parameters(self) -> Iterable[tuple[str, torch.nn.Parameter]]:
        """See `Trainable.parameters`: all weights, or those of the adapter."""
        for name, parameter in self.module.named_parameters():
            if self.adapter is None:
                # Adapters on this model are no part of it, and must not change its names.
                if "lora_" not in name:
                    plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
                    yield plain, parameter
            elif f".{self.adapter}." in name:
                yield name, parameter

    def updated(self) -> None:
        """See `Trainable.updated`."""
        self.version += 1

    @contextmanager
    def reference(self) -> Iterator[None]:
        """See `Trainable.reference`."""
        if self._anchor is None:
            raise RuntimeError(f"{self.name}: call anchor() before reference()")
        with self.resident.pinned(), self._turn:
            present = self._copied()
            self._set(self._anchor)
            try:
                yield
            finally:
                self._set(present)

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
        """Make the network this model, none of the others on it, while the context lasts.

        Pin `resident` before: a thread that waits for memory must not hold the others up.
        """
        if not hasattr(self.module, "peft_config"):
            yield
            return
        with self._turn:
            # When sampling as well: `requires_grad` changes how torch multiplies, and the last bit.
            self._require_gradients()
            if self.adapter is None:
                with self.module.disable_adapter():
                    yield
                return
            if self.module.active_adapter != self.adapter:
                self.module.set_adapter(self.adapter)
            yield

    def _require_gradients(self) -> None:
        """Let gradients flow to the weights of a base, or to those of adapters on it."""
        root, frozen = self.root, self.adapter is not None
        if root.adapter is None and root.frozen != frozen:
            for _, parameter in root.parameters():
                parameter.requires_grad_(not frozen)
            root.frozen = frozen

    def score(
        self,
        generations: Sequence[Generation],
        *,
        hidden: bool = False,
        entropy: EntropyOf = "none",
    ) -> Scored:
        """See `Trainable.score`; one pass over all of them."""
        longest = max(len(item.prompt) for item in generations) + max(
            len(item.response) for item in generations
        )
        room = 0  # a pass with gradient is in the context of one that keeps room for it
        if self.footprint is not None and not torch.is_grad_enabled():
            room = self.footprint.forward(len(generations) * longest)
        with self.working(room), self.active():
            return score(
                self._network,
                generations,
                self.tokenizer.pad,
                entropy=entropy,
                hidden=hidden,
                whole=not self._has_plain_head(),
                recompute_layers=bool(self.settings.inherited("gradient_checkpointing")),
                within=self.active,
            )

    @property
    def _network(self) -> Any:
        """The network of transformers, with its adapters in it."""
        module = self.module
        return module.get_base_model() if hasattr(module, "peft_config") else module

    def _has_plain_head(self) -> bool:
        """Return whether logits are what the last matrix gives, neither scaled nor capped.

        It is tried out once, with one token and large values.
        """
        if self._plain_head is None:
            network, seen = self._network, list[torch.Tensor]()
            head = network.get_output_embeddings()

            def enlarge(module: Any, given: Any, result: torch.Tensor) -> torch.Tensor:
                seen.append(1000 + result)
                return seen[0]

            hook = head.register_forward_hook(enlarge)
            try:
                with torch.inference_mode():
                    ids = torch.tensor([[self.tokenizer.pad]], device=self.device)
                    mask = torch.ones_like(ids)
                    logits = network(input_ids=ids, attention_mask=mask, use_cache=False).logits
            finally:
                hook.remove()
            self._plain_head = torch.equal(seen[0], logits)
        return self._plain_head

    def plain(self) -> Any:
        """Return a copy of the network with the adapter merged into it."""
        module = copy.deepcopy(self.module)
        if not hasattr(module, "peft_config"):
            return module
        if self.adapter is None:
            return module.unload()
        return module.merge_and_unload(adapter_names=[self.adapter])

    # ------------------------------------------------------------------ checkpoints

    def save(self) -> Saved:
        """Return the weights that training changes, and those of the anchor.

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
        """See `Stateful.load`.

        Raises:
            CheckpointError: it is another model's, or the weights in `path` have changed.
        """
        if saved.data.get("anchor"):
            self._check_path(saved.data["anchor"])
            self.anchor()
        if saved.data.get("digest"):
            self._check_path(saved.data["digest"])
        else:
            self._set(self._saved(saved, ""))
        if any(name.startswith(_ANCHOR) for name in saved.arrays):
            values = self._saved(saved, _ANCHOR)
            self._anchor = {name: self.resident.copy_away(value) for name, value in values.items()}
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
            array = saved.arrays.get(prefix + name)
            if array is None or tuple(array.shape) != tuple(parameter.shape):
                raise CheckpointError(
                    f"{self.name}: the checkpoint has no {name} of shape {tuple(parameter.shape)}"
                )
            values[name] = unpack(array)
        return values


def _resident(model: LocalModel) -> Resident:
    def tensors() -> Iterator[torch.Tensor]:
        yield from model.module.parameters()
        yield from model.module.buffers()

    device = placed_on(model.settings)
    if device is None:
        return Resident(model.name, tensors, torch.device("cpu"))
    return device.resident(model.name, tensors)


def placed_on(settings: ModelSettings) -> Device | None:
    """Return the device of a model, or of its base."""
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
    """Return the call of sampling from weights: identified by its tokens, shown as messages."""
    return Request(
        f"local:{name}",
        {**settings, "prompt": prompt},
        VERSION,
        sample=key.hex(),
        timeout=86400,
        shown={**settings, "messages": request["messages"]},
        computed=True,
    )


def limits_of(
    name: str, request: Mapping[str, JSON], default: Limits, prompt: int, context: int
) -> Limits:
    """Return how a request is sampled, with `default` for what it leaves out.

    Raises:
        CallError: (permanent) it does not fit the context, or weights do not support a setting.
    """
    for unsupported in sorted(UNSUPPORTED):
        if request.get(unsupported):
            raise CallError(f"{name}: local weights do not support `{unsupported}`", "permanent")
    longest = int(request.get("max_tokens") or default.max_tokens)
    if prompt + longest > context:
        raise CallError(
            f"{name}: a prompt of {prompt} tokens and a response of {longest} do not fit a "
            f"context of {context}",
            "permanent",
        )
    temperature, top_p = request.get("temperature"), request.get("top_p")
    return Limits(
        longest,
        default.temperature if temperature is None else float(temperature),
        default.top_p if top_p is None else float(top_p),
    )


def pack(value: torch.Tensor) -> Array:
    """Return a tensor as checkpoints hold it."""
    plain = value.detach().cpu().contiguous()
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return Array(_DTYPES[plain.dtype], tuple(plain.shape), raw)


def unpack(array: Array) -> torch.Tensor:
    """Return the inverse of `pack`."""
    dtype = next(dtype for dtype, name in _DTYPES.items() if name == array.dtype)
    flat = torch.frombuffer(bytearray(array.data), dtype=dtype)
    return flat.reshape(array.shape)
