"""One network trained by several processes: PyTorch's FSDP2 (Zhao et al. 2023, arXiv 2304.11277).

The process of the run leads. It has all weights, samples with them, scores without gradient, and
computes losses. Ranks, a process each, share the network: each has a part of every weight, of its
gradient and of its moments. Of a micro-batch, each rank computes the log-probabilities of its rows;
the leading process computes the loss of all rows and its gradient with respect to them; each rank
takes its rows' part of that back through the network. So a loss is normalised over all rows,
whichever rank has them, and trainers need not know of ranks.

Deviations from what FSDP2 does by default: gradients are summed, not averaged; bfloat16 weights
that learn are float32 in the ranks, and rounded where they compute (`MixedPrecisionPolicy`).
"""

from __future__ import annotations

import io
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import torch

from orchestrion import Array, RunError, Saved
from orchestrion_local.interfaces import EntropyOf, Generation, Scored
from orchestrion_local.optimizing import MASTER, MOMENTS, Stepped, Steps, is_low, parts_of
from orchestrion_local.scoring import layers_of, score
from orchestrion_local.settings import Optimizer
from orchestrion_local.weights import DTYPES, learnable_of, pack, plain_network, unpack

if TYPE_CHECKING:
    from orchestrion_local.weights import Weights

__all__ = ["RankedSteps", "Ranks"]

REMEDY = "set a smaller `micro_batch` on the trainer, or more `ranks` on the model"
PATIENCE = 2.0
"""Seconds to wait for the end of a process that another one misses."""
PRELOADED = ("torch.distributed.fsdp", "transformers", "peft", __name__)

# ------------------------------------------------------------------------ the leading process


class Ranks:
    """The processes that train a network; they start when they are first needed.

    Args:
        model: the model with the weights.
        count: number of processes.
        adapters: whether the adapters on the weights learn, or the weights.

    Raises:
        RunError: there are fewer GPUs.
    """

    def __init__(self, model: Weights, count: int, adapters: bool) -> None:
        self.model, self.count, self.adapters = model, count, adapters
        self.is_stale = True
        """Whether the weights here have changed since the ranks got them."""
        self._first, self._optimizers = model.device.index or 0, 0
        self._processes: list[Any] = []
        self._links: list[Connection] = []
        self._store: Any = None
        if model.device.type == "cuda" and self._first + count > torch.cuda.device_count():
            raise RunError(
                f"model {model.name}: `ranks: {count}` from {model.device} on need as many GPUs, "
                f"and torch sees {torch.cuda.device_count()}"
            )

    def steps(self, model: Weights, settings: Optimizer, total: int) -> RankedSteps:
        """Return what takes a model's steps on the ranks."""
        footprint = self.model.footprint
        if not self._optimizers and footprint is not None:
            needed = footprint.shared(not self.adapters)
            self.model.resident.beside(f"{self.model.name}'s ranks", tuple, needed)
        self._optimizers += 1
        return RankedSteps(self, self._optimizers, model, settings, total)

    def score(
        self, model: Weights, generations: Sequence[Generation], entropy: EntropyOf
    ) -> Scored:
        """Return what `Trainable.score` does; gradients flow back to the ranks."""
        longest = max(len(item.response) for item in generations)
        shape = len(generations), longest
        # A rank without a row computes another's, with a gradient of zero.
        rows = [generations[rank :: self.count] or generations[:1] for rank in range(self.count)]
        self.ready()
        parts = self.ask("forward", model.adapter, entropy, each=rows)
        values = [self._merged([part[k] for part in parts], shape) for k in range(2)]
        if entropy == "none":
            values[1] = None
        given = [value for value in values if value is not None]
        leaf = torch.zeros((), requires_grad=True)  # so that autograd records the call
        logprobs, *entropies = _Passed.apply(leaf, self, rows, *given)  # type: ignore[no-untyped-call]
        mask = torch.zeros(shape)
        for i, item in enumerate(generations):
            mask[i, : len(item.response)] = 1
        found = entropies[0] if entropies else None
        if found is not None and entropy == "value":
            found = found.detach()
        return Scored(logprobs, mask.to(model.device), found)

    def _merged(self, parts: Sequence[Any], shape: tuple[int, int]) -> torch.Tensor | None:
        if parts[0] is None:
            return None
        merged = torch.zeros(shape)
        for rank, part in enumerate(parts):
            places = range(rank, shape[0], self.count)
            if places:
                merged[places.start :: self.count, : part.shape[1]] = torch.from_numpy(part)
        return merged.to(self.model.device)

    def pull(self, model: Weights) -> None:
        """Copy what a model has learned from the ranks into its weights here."""
        self.send("weights", model.adapter)
        with torch.no_grad():
            for _, parameter in model.parameters():
                parameter.copy_(unpack(self.gathered(parameter.shape, parameter.dtype)))
        self.answers()

    def gathered(self, shape: Sequence[int], dtype: torch.dtype) -> Array:
        """Return the next array that the ranks send, of which each sends its rows."""
        parts = []
        for rank, link in enumerate(self._links):
            try:
                parts.append(link.recv_bytes())
            except (EOFError, OSError):
                self._lost(rank)
        return Array(DTYPES[dtype], tuple(shape), b"".join(parts))

    def scatter(self, value: torch.Tensor) -> None:
        """Send each rank its rows of an array, as FSDP2 splits them."""
        size = -(-len(value) // self.count)
        for rank, link in enumerate(self._links):
            try:
                link.send_bytes(pack(value[rank * size : (rank + 1) * size]).data)
            except OSError:
                self._lost(rank)

    def ready(self) -> None:
        """Start the ranks if they do not run, and give them the weights if these have changed."""
        if not self._processes:
            self._start()
        if self.is_stale:
            self.send("receive")
            for _, parameter in self.model.module.named_parameters():
                self.scatter(parameter)
            self.answers()
            self.is_stale = False

    def _start(self) -> None:
        from torch.distributed import TCPStore

        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        context = get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        device, threads = self.model.device.type, max(1, torch.get_num_threads() // self.count)
        for rank in range(self.count):
            ours, theirs = context.Pipe()
            place = device if device == "cpu" else f"{device}:{self._first + rank}"
            what = theirs, rank, self.count, self._store.port, place, threads
            process = context.Process(target=_serve, args=what, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._links.append(ours)
        skeleton = io.BytesIO()
        _Pickler(skeleton).dump(self.model.module)
        again = bool(self.model.settings.inherited("gradient_checkpointing"))
        how = self.adapters, self.model.tokenizer.pad, not self.model.has_plain_head(), again
        self.ask("build", skeleton.getvalue(), *how)

    def ask(self, method: str, *arguments: Any, each: Sequence[Any] = ()) -> list[Any]:
        """Return what a method of the ranks returns; see `send`."""
        self.send(method, *arguments, each=each)
        return self.answers()

    def send(self, method: str, *arguments: Any, each: Sequence[Any] = ()) -> None:
        """Call a method on all ranks; `each` has a last argument for each of them."""
        for rank, link in enumerate(self._links):
            try:
                link.send((method, (*arguments, each[rank]) if each else arguments))
            except OSError:
                self._lost(rank)

    def answers(self) -> list[Any]:
        """Return the answer of each rank.

        Raises:
            RunError: a rank ended or failed; the others are ended, too.
        """
        answers: dict[int, Any] = {}
        while len(answers) < self.count:
            left = {link: i for i, link in enumerate(self._links) if i not in answers}
            for link in wait(list(left)):
                rank = left[link]  # type: ignore[index]
                try:
                    error, answers[rank] = link.recv()  # type: ignore[union-attr]
                except (EOFError, OSError):
                    self._lost(rank)
                if error is not None:
                    self._failed(rank, error)
        return [answers[rank] for rank in range(self.count)]

    def _failed(self, rank: int, reason: str) -> None:
        """Raise RunError; if another rank ended, that is the reason that this one failed."""
        ended = wait([process.sentinel for process in self._processes], PATIENCE)
        for other, process in enumerate(self._processes):
            if process.sentinel in ended:
                self._lost(other)
        self.close()
        help_ = f"; {REMEDY}" if "OutOfMemory" in reason else ""
        raise RunError(f"model {self.model.name}: rank {rank} of {self.count}: {reason}{help_}")

    def _lost(self, rank: int) -> None:
        process = self._processes[rank]
        process.join(PATIENCE)
        code = process.exitcode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        self.close()
        raise RunError(
            f"model {self.model.name}: rank {rank} of {self.count} (process {process.pid}) was "
            f"{how}; `orchestrion resume` goes on from the last checkpoint, with "
            f"`-o models.{self.model.name}.ranks=N` on another number of ranks"
        )

    def close(self) -> None:
        """End the processes: all that they know is elsewhere, or lost."""
        for process, link in zip(self._processes, self._links, strict=True):
            link.close()
            process.kill()
        for process in self._processes:
            process.join()
        self._processes, self._links, self._store, self.is_stale = [], [], None, True


class _Passed(torch.autograd.Function):
    """Values that the ranks computed; gradients with respect to them go to the ranks."""

    @staticmethod
    def forward(
        ctx: Any, leaf: torch.Tensor, ranks: Ranks, rows: Sequence[Any], *values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.ranks, ctx.rows, ctx.count = ranks, rows, len(values[0])
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, ...]:
        ranks: Ranks = ctx.ranks
        each = []
        for rank, rows in enumerate(ctx.rows):
            longest = max(len(item.response) for item in rows)
            mine = [gradient[rank :: ranks.count, :longest] for gradient in gradients]
            if rank >= ctx.count:
                mine = [torch.zeros((1, longest)) for _ in gradients]
            each.append([part.cpu().numpy() for part in mine])
        ranks.ask("backward", each=each)
        return (None,) * (3 + len(gradients))


class RankedSteps:
    """The steps of one model on the ranks; see `Steps` for the same in this process."""

    def __init__(
        self, ranks: Ranks, number: int, model: Weights, settings: Optimizer, total: int
    ) -> None:
        self._ranks, self._model = ranks, model
        self._opening = number, model.adapter, settings, total
        self._number, self._is_open = number, False
        footprint = model.footprint
        self.size = footprint.state if footprint is not None else 0
        """Bytes on the model's device, as far as they are known."""
        self._saved: Saved | None = None
        """What was loaded, until the ranks need it."""

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield nothing: it is all on the ranks."""
        return iter(())

    def zero(self) -> None:
        """Set the gradients to zero."""
        self._ranks.ready()
        if not self._is_open:
            self._ranks.ask("open", *self._opening)
            self._is_open = True
        if self._saved is not None:
            self._give(self._saved)
            self._saved = None
        self._ranks.ask("zero", self._number)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss to those since `zero`."""
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> Stepped:
        """Take a step with the sum of the gradients since `zero`."""
        stepped: Stepped = self._ranks.ask("step", self._number)[0]
        return stepped

    def save(self, prefix: str = "") -> Saved:
        """Return what `Steps.save` does, whole: any number of ranks can go on with it."""
        if not self._is_open or self._saved is not None:
            saved = self._saved or Saved({}, {"steps": 0, "taken": {}})
            arrays = {f"{prefix}{name}": array for name, array in saved.arrays.items()}
            return Saved(arrays, saved.data)
        data = self._ranks.ask("taken", self._number)[0]
        self._ranks.send("state", self._number)
        arrays = {}
        for name, parameter in self._model.parameters():
            if name in data["taken"]:
                wide = torch.float32 if is_low(parameter.dtype) else parameter.dtype
                for part in (*MOMENTS, *([MASTER] if is_low(parameter.dtype) else [])):
                    arrays[f"{prefix}{name}.{part}"] = self._ranks.gathered(parameter.shape, wide)
        self._ranks.answers()
        return Saved(arrays, data)

    def load(self, saved: Saved, prefix: str = "") -> None:
        """See `Steps.load`."""
        known = dict(self._model.parameters())
        arrays: dict[str, Array] = {}
        for name in saved.data["taken"]:
            for part, array in parts_of(saved, prefix, name, known):
                arrays[f"{name}.{part}"] = array
        self._saved = Saved(arrays, {key: saved.data[key] for key in ("steps", "taken")})

    def _give(self, saved: Saved) -> None:
        self._ranks.send("restore", self._number, saved.data)
        for array in saved.arrays.values():
            self._ranks.scatter(unpack(array))
        self._ranks.answers()


class _Pickler(pickle.Pickler):
    """Writes a network without its parameters; which of them are one object is kept."""

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, torch.nn.Parameter):
            return id(value), tuple(value.shape), value.dtype
        return None


# ------------------------------------------------------------------------ a rank


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
    """A network as FSDP2 sees it: one call, in which the head is part of the network."""

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
    """What one process does. The leading process calls its methods."""

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
        """Make the network with this rank's part of the weights, which are yet to come."""
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
        raw = bytearray(self._link.recv_bytes())
        if raw:
            values = torch.frombuffer(raw, dtype=dtype or into.dtype)
            into.copy_(values.reshape(into.shape))
        return into

    def receive(self) -> None:
        """Take the weights."""
        for name, weight in self._module.named_parameters():
            self._read(_part(weight), None if "lora_" in name else self._rounded)

    def weights(self, adapter: str | None) -> None:
        """Send the weights of a model."""
        for _, weight in learnable_of(self._module, adapter):
            self._link.send_bytes(pack(_part(weight).to(self._rounded or weight.dtype)).data)

    def forward(
        self, adapter: str | None, entropy: EntropyOf, generations: Sequence[Generation]
    ) -> list[Any]:
        """Return log-probabilities and entropies of this rank's rows."""
        if adapter is not None and self._module.active_adapter != adapter:
            self._module.set_adapter(adapter)
            self._require_gradients(True)
        self._passed = self._scorer(generations, entropy)
        return [value if value is None else _array(value) for value in self._passed]

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
        return self._steps[number][0].save().data

    def state(self, number: int) -> None:
        """Send moments, and the weights if they are masters of those elsewhere."""
        steps, mine = self._steps[number]
        arrays = steps.save().arrays
        for name, _, part in mine:
            if f"{name}.{MOMENTS[0]}" in arrays:
                for moment in MOMENTS:
                    self._link.send_bytes(arrays[f"{name}.{moment}"].data)
                if self._rounded:
                    self._link.send_bytes(pack(part).data)

    def restore(self, number: int, data: Any) -> None:
        """Take what `state` sent."""
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


def _array(value: torch.Tensor) -> Any:
    return value.detach().cpu().numpy()


def _serve(link: Connection, rank: int, count: int, port: int, device: str, threads: int) -> None:
    """Do what the leading process says until it ends."""
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
