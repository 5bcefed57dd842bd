"""The weights of a model: where they are, which of the models on a network is active, checkpoints.

All models on one network (a base and the adapters on it) share the network, move together, and
compute one at a time.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Self

import torch

from orchestrion import JSON, Array, CheckpointError, Model, RunError, Saved
from orchestrion_local.devices import Device
from orchestrion_local.interfaces import EntropyOf, Generation, Scored
from orchestrion_local.memory import MICRO_BATCH, REMEDIES, Footprint, footprint_of
from orchestrion_local.networks import Network
from orchestrion_local.offloading import Resident
from orchestrion_local.scoring import has_plain_head, score
from orchestrion_local.settings import ModelSettings
from orchestrion_local.sizes import size_text
from orchestrion_local.tokenizers import Tokenizer

_ANCHOR = "anchor/"
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}


class Weights(Model):
    """See `Trainable` for what a trainer does with it.

    Args:
        settings: the component.
        name: its config name.
        module: the network, of transformers or, with adapters, of peft.
        tokenizer: fits the network.
        adapter: name of the adapter that is this model; None for the network itself.
        base: the model whose network this adapter is on, if it is another model's.
    """

    def __init__(
        self,
        settings: ModelSettings,
        name: str,
        module: Any,
        tokenizer: Tokenizer,
        adapter: str | None = None,
        base: Self | None = None,
    ) -> None:
        self.settings, self.name, self.tokenizer = settings, name, tokenizer
        self.adapter, self._base, self._module = adapter, base, module
        self.version = 0
        self.frozen = False
        """Whether its weights have no gradients now, because adapters are on them."""
        self.resident: Resident = _resident(self) if base is None else base.resident
        self._turn: threading.RLock = threading.RLock() if base is None else base._turn
        self._anchor: dict[str, torch.Tensor] | None = None
        self._anchor_in_path = False
        """Whether `_anchor` holds the weights as `path` has them."""
        self._digest: str | None = None
        self._ranks: dict[bool, Any] = {}
        """The ranks that train the weights (False), and the adapters on them (True)."""
        self.resident.settle()
        module.eval()

    @property
    def module(self) -> Any:
        """The network; models on one base have the same."""
        return self._module if self._base is None else self._base.module

    @module.setter
    def module(self, module: Any) -> None:
        self._module = module

    @property
    def root(self) -> Self:
        return self if self._base is None else self._base

    @property
    def device(self) -> torch.device:
        return self.resident.device

    @property
    def context(self) -> int:
        """Maximum number of tokens of prompt and response together."""
        largest = int(getattr(self.module.config, "max_position_embeddings", 1 << 30))
        return min(self.settings.inherited("context") or largest, largest)

    @property
    def footprint(self) -> Footprint | None:
        """The memory that it needs; None for types of networks without formulas."""
        network = Network.from_config(self._network.config.to_dict())
        return None if network is None else footprint_of(self.settings, network)

    def _left(self, state: int) -> int | None:
        """Return the bytes for computing; None if there is no limit."""
        device = placed_on(self.settings)
        return None if device is None else device.left(self.resident.size + state)

    def training(self, tokens: int) -> int:
        return self.footprint.training(tokens) if self.footprint is not None else 0

    @contextmanager
    def working(self, room: int, *others: Resident) -> Iterator[None]:
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
        footprint, room = self.footprint, self._left(state)
        if footprint is None:
            return MICRO_BATCH
        tokens = footprint.micro_batch(room)
        if tokens < footprint.row and self.settings.inherited("context"):
            left = "" if room is None else f", and {size_text(max(0, room))} are left"
            raise RunError(
                f"model {self.name}: learning from a row of {footprint.row} tokens takes "
                f"{size_text(footprint.training(footprint.row))} beside weights and optimizer"
                f"{left}; {REMEDIES}"
            )
        return tokens

    # ------------------------------------------------------------------ training

    def parameters(self) -> Iterable[tuple[str, torch.nn.Parameter]]:
        """See `Trainable.parameters`: all weights, or those of the adapter."""
        return learnable_of(self.module, self.adapter)

    def updated(self) -> None:
        self.version += 1
        if self.ranks is not None:
            self.ranks.pull(self)
            self._outdate(self.ranks)

    @property
    def ranks(self) -> Any:
        """See `Trainable.ranks`: those of the weights, or of all adapters on them."""
        count = self.settings.inherited("ranks") or 1
        kind, groups = self.adapter is not None, self.root._ranks
        if count > 1 and kind not in groups:
            from orchestrion_local.ranks import Ranks

            groups[kind] = Ranks(self.root, count, kind)
        return groups.get(kind)

    def _outdate(self, but: Any = None) -> None:
        """Mark the weights of ranks as older than those here."""
        for ranks in self.root._ranks.values():
            ranks.is_stale |= ranks is not but

    def close(self) -> None:
        """End the ranks."""
        for ranks in self._ranks.values():
            ranks.close()

    @contextmanager
    def reference(self) -> Iterator[None]:
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
        """See `Trainable.score`; one pass over all of them.

        With gradient it is a pass of the ranks, if there are any.
        """
        if self.ranks is not None and torch.is_grad_enabled():
            if hidden:
                raise ValueError(f"{self.name}: hidden states have no gradient with `ranks`")
            ranked: Scored = self.ranks.score(self, generations, entropy)
            return ranked
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
                whole=not self.has_plain_head,
                recompute_layers=bool(self.settings.inherited("gradient_checkpointing")),
                within=self.active,
            )

    @property
    def _network(self) -> Any:
        """The network of transformers, with its adapters in it."""
        return plain_network(self.module)

    @cached_property
    def has_plain_head(self) -> bool:
        """Whether logits are what the last matrix gives, neither scaled nor capped."""
        return has_plain_head(self._network, self.tokenizer.pad)

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
        self._outdate()

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


def plain_network(module: Any) -> Any:
    """Return the network of transformers, with its adapters in it."""
    return module.get_base_model() if hasattr(module, "peft_config") else module


def learnable_of(module: Any, adapter: str | None) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield the weights of an adapter, or all but those of adapters, by name."""
    for name, parameter in module.named_parameters():
        if adapter is None:
            # Adapters on a model are no part of it, and must not change its names.
            if "lora_" not in name:
                yield name.removeprefix("base_model.model.").replace(".base_layer", ""), parameter
        elif f".{adapter}." in name:
            yield name, parameter


def _resident(model: Weights) -> Resident:
    def tensors() -> Iterator[torch.Tensor]:
        yield from model.module.parameters()
        yield from model.module.buffers()

    device = placed_on(model.settings)
    if device is None:
        return Resident(model.name, tensors, torch.device("cpu"))
    return device.resident(model.name, tensors)


def placed_on(settings: ModelSettings) -> Device | None:
    """Return the device of a model, or of its base."""
    while settings.device is None and isinstance(settings.base, Weights):
        settings = settings.base.settings
    return settings.device


def pack(value: torch.Tensor) -> Array:
    """Return a tensor as checkpoints hold it."""
    plain = value.detach().cpu().contiguous()
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return Array(DTYPES[plain.dtype], tuple(plain.shape), raw)


def unpack(array: Array) -> torch.Tensor:
    """Return the inverse of `pack`."""
    dtype = next(dtype for dtype, name in DTYPES.items() if name == array.dtype)
    flat = torch.frombuffer(bytearray(array.data), dtype=dtype)
    return flat.reshape(array.shape)
