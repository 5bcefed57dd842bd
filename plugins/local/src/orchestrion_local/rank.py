"""The work of one rank: a process that trains a part of a network; `ranks` leads all of them.

Deviations from what FSDP2 does by default: gradients are summed, not averaged; bfloat16 weights
that learn are float32 here, and rounded where they compute (`MixedPrecisionPolicy`).
"""

from __future__ import annotations

import io
import pickle
import signal
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from orchestrion import Saved
from orchestrion_local.interfaces import EntropyOf, Generation
from orchestrion_local.scoring import layers_of, score
from orchestrion_local.settings import Optimizer
from orchestrion_local.steps import MOMENTS, Stepped, Steps, is_low
from orchestrion_local.weights import learnable_of, pack, plain_network


class SkeletonPickler(pickle.Pickler):
    """Writes a network without its parameters; which of them are one object is kept."""

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, torch.nn.Parameter):
            return id(value), tuple(value.shape), value.dtype
        return None


class _Unpickler(pickle.Unpickler):
    """Reads a network whose parameters have a shape and no memory."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._known: dict[int, torch.nn.Parameter] = {}

    def persistent_load(self, what: Any) -> torch.nn.Parameter:
        number, shape, dtype = what
        if number not in self._known:
            empty = torch.empty(shape, dtype=dtype, device="meta")
            self._known[number] = torch.nn.Parameter(empty)
        return self._known[number]


class _Scorer(torch.nn.Module):
    """A network in the form that FSDP2 needs: one call, which includes the head."""

    def __init__(self, network: Any, pad: int, whole: bool, again: bool) -> None:
        super().__init__()
        self.network, self._how = network, (pad, whole, again)

    def forward(
        self, generations: Sequence[Generation], entropy: EntropyOf
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        pad, whole, again = self._how
        scored = score(
            self.network, generations, pad, entropy=entropy, whole=whole, recompute_layers=again
        )
        return scored.logprobs, scored.entropy


class _Rank:
    """One rank. The leading process calls its methods."""

    def __init__(self, link: Connection, rank: int, count: int, port: int, device: str) -> None:
        from torch import distributed

        self._link, self._device = link, torch.device(device)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        self._rounded: torch.dtype | None = None
        """Type of the weights in the leading process, if it is another than here."""
        self._steps: dict[int, tuple[Steps, list[tuple[str, Any, torch.nn.Parameter]]]] = {}
        store = distributed.TCPStore("127.0.0.1", port, is_master=False)
        backend = "gloo" if device == "cpu" else "nccl"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=count)
        self._mesh = distributed.init_device_mesh(self._device.type, (count,))

    def build(self, skeleton: bytes, adapters: bool, pad: int, whole: bool, again: bool) -> None:
        """Build the network with empty memory for this rank's part of the weights."""
        from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

        self._module = module = _Unpickler(io.BytesIO(skeleton)).load()
        policy = MixedPrecisionPolicy()
        if not adapters:
            if hasattr(module, "peft_config"):
                module.base_model.disable_adapter_layers()
            dtype = next(weight.dtype for _, weight in learnable_of(module, None))
            if is_low(dtype):
                self._rounded = dtype
                policy = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
                for weight in module.parameters():
                    weight.data = weight.data.float()
        self._require_gradients(adapters)
        scorer = _Scorer(plain_network(module), pad, whole, again).eval()
        for part in (*layers_of(scorer), scorer):
            fully_shard(part, mesh=self._mesh, mp_policy=policy)
        for part in scorer.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)
                part.set_force_sum_reduction_for_comms(True)
        kept = {name: buffer.to(self._device) for name, buffer in scorer.named_buffers()}
        scorer.to_empty(device=self._device)
        for name, buffer in scorer.named_buffers():
            buffer.copy_(kept[name])
        self._scorer = scorer

    def _require_gradients(self, adapters: bool) -> None:
        for name, weight in self._module.named_parameters():
            weight.requires_grad_(("lora_" in name) == adapters)

    def _read(self, into: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        raw = bytearray(self._link.recv())
        if raw:
            values = torch.frombuffer(raw, dtype=dtype or into.dtype)
            into.copy_(values.reshape(into.shape))
        return into

    def receive(self) -> None:
        """Receive the weights."""
        for name, weight in self._module.named_parameters():
            self._read(_part(weight), None if "lora_" in name else self._rounded)

    def weights(self, adapter: str | None) -> None:
        """Send the weights of a model."""
        for _, weight in learnable_of(self._module, adapter):
            self._link.send(pack(_part(weight).to(self._rounded or weight.dtype)).data)

    def forward(
        self, adapter: str | None, entropy: EntropyOf, generations: Sequence[Generation]
    ) -> list[Any]:
        """Return log-probabilities and entropies of this rank's rows."""
        if adapter is not None and self._module.active_adapter != adapter:
            self._module.set_adapter(adapter)
            self._require_gradients(True)
        self._passed = self._scorer(generations, entropy)
        return [value.detach().cpu().numpy() for value in self._passed if value is not None]

    def backward(self, gradients: Sequence[Any]) -> None:
        """Add the gradients of the last pass."""
        pairs = [
            (value, torch.from_numpy(gradient).to(self._device))
            for value, gradient in zip(self._passed, gradients, strict=False)
            if value.requires_grad
        ]
        values, given = zip(*pairs, strict=True)
        torch.autograd.backward(values, given)
        del self._passed

    def open(self, number: int, adapter: str | None, settings: Optimizer, total: int) -> None:
        """Begin to take steps with a model."""
        from torch import distributed

        def of_all(value: float) -> float:
            total = torch.tensor(value, dtype=torch.float64, device=self._device)
            distributed.all_reduce(total)
            return float(total)

        mine = [
            (name, weight, torch.nn.Parameter(_part(weight)))
            for name, weight in learnable_of(self._module, adapter)
        ]
        named = [(name, part) for name, _, part in mine]
        self._steps[number] = Steps(named, settings, total, of_all), mine

    def zero(self, number: int) -> None:
        """Set the gradients of a model to zero."""
        steps, mine = self._steps[number]
        steps.zero()
        for _, weight, _ in mine:
            weight.grad = None

    def step(self, number: int) -> Stepped:
        """Take a step."""
        steps, mine = self._steps[number]
        for _, weight, part in mine:
            part.grad = None if weight.grad is None else weight.grad.to_local()
        stepped = steps.step()
        self.zero(number)
        return stepped

    def taken(self, number: int) -> Any:
        """Return how many steps were taken, in all and with each weight."""
        return self._steps[number][0].data

    def state(self, number: int) -> None:
        """Send moments, and the weights if they are masters of those elsewhere."""
        steps, mine = self._steps[number]
        weights = {name: part for name, _, part in mine}
        for name, part, value in steps.parts():
            self._link.send(pack(value).data)
            if self._rounded and part == MOMENTS[-1]:
                self._link.send(pack(weights[name]).data)

    def restore(self, number: int, data: Any) -> None:
        """Receive what `state` sent."""
        steps, mine = self._steps[number]
        parts = {name: part for name, _, part in mine}
        arrays = {}
        for name in data["taken"]:
            for moment in MOMENTS:
                arrays[f"{name}.{moment}"] = pack(self._read(torch.empty_like(parts[name])))
            if self._rounded:
                self._read(parts[name].data)
        steps.load(Saved(arrays, data))


def _part(weight: Any) -> torch.Tensor:
    """Return this rank's rows of a weight."""
    part: torch.Tensor = weight.to_local().detach()
    return part


def serve(link: Connection, rank: int, count: int, port: int, device: str, threads: int) -> None:
    """Call methods for the leading process until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    with suppress(EOFError, BrokenPipeError):
        try:
            served = _Rank(link, rank, count, port, device)
            while True:
                method, arguments = link.recv()
                link.send((None, getattr(served, method)(*arguments)))
        except EOFError:
            raise
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()), "")
            link.send((f"{type(error).__name__}: {reason}", None))
            link.recv()  # until this process is ended: it must not seem to be the cause
