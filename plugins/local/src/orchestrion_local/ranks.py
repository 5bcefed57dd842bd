"""One network trained by several processes: PyTorch's FSDP2 (Zhao et al. 2023, arXiv 2304.11277).

The process of the run leads. It has all weights, samples with them, scores without gradient, and
computes losses. Ranks, a process each (`rank`), share the network: each has a part of every weight,
of its gradient and of its moments. Each rank computes the log-probabilities of its rows of a
micro-batch; the leading process computes the loss of all rows and its gradient with respect to
them; each rank takes its rows' part of that back through the network. So a loss is normalised over
all rows, whichever rank has them, and trainers need not know of ranks.

Weights and moments are sent tensor by tensor, and saved whole, as `Steps` saves them: a run goes on
with them on another number of ranks, or without any.
"""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import torch

from orchestrion import Array, RunError, Saved
from orchestrion_local.interfaces import EntropyOf, Generation, Scored
from orchestrion_local.rank import SkeletonPickler, serve
from orchestrion_local.settings import Optimizer
from orchestrion_local.steps import MASTER, MOMENTS, Stepped, is_low, parts_of
from orchestrion_local.weights import DTYPES, Weights, pack, unpack

REMEDY = "set a smaller `micro_batch` on the trainer, or more `ranks` on the model"
PATIENCE = 2.0
"""Seconds to wait for the end of a process that another one misses."""
PRELOADED = ("torch.distributed.fsdp", "transformers", "peft", "orchestrion_local.rank")


class Ranks:
    """The processes that train a network; they start when they are first needed.

    Args:
        model: the model with the weights.
        count: number of processes.
        adapters: whether the adapters on the weights learn, or the weights.

    Raises:
        RunError: there are fewer GPUs or processors.
    """

    def __init__(self, model: Weights, count: int, adapters: bool) -> None:
        self.model, self.count, self.adapters = model, count, adapters
        self.is_stale = True
        self._first, self._optimizers = model.device.index or 0, 0
        self._processes: list[Any] = []
        self._links: list[Connection] = []
        self._store: Any = None
        what, places = "processors", os.cpu_count() or 1
        if model.device.type == "cuda":
            what, places = f"GPUs from {model.device} on", torch.cuda.device_count() - self._first
        if count > places:
            raise RunError(
                f"model {model.name}: `ranks: {count}` need as many {what}, and this machine has "
                f"{places}; set `ranks: {places}` or less"
            )

    def steps(self, model: Any, settings: Optimizer, total: int) -> RankedSteps:
        """Return what takes a model's steps on the ranks."""
        footprint = self.model.footprint
        if not self._optimizers and footprint is not None:
            needed = footprint.shared(not self.adapters)
            self.model.resident.beside(f"{self.model.name}'s ranks", tuple, needed)
        self._optimizers += 1
        return RankedSteps(self, self._optimizers, model, settings, total)

    # ------------------------------------------------------------------ passes

    def score(
        self, model: Weights, generations: Sequence[Generation], entropy: EntropyOf
    ) -> Scored:
        """Return what `Trainable.score` does; gradients flow back to the ranks."""
        lengths = torch.tensor([len(item.response) for item in generations])
        mask = (torch.arange(int(lengths.max())) < lengths[:, None]).float()
        # A rank without a row computes another's, with a gradient of zero.
        rows = [generations[rank :: self.count] or generations[:1] for rank in range(self.count)]
        self.ready()
        parts = self.ask("forward", model.adapter, entropy, each=rows)
        values = [self._merged(part, mask) for part in zip(*parts, strict=True)]
        leaf = torch.zeros((), requires_grad=True)  # so that autograd records the call
        logprobs, *rest = _Passed.apply(leaf, self, parts, *values)  # type: ignore[no-untyped-call]
        return Scored(logprobs, mask.to(model.device), rest[0] if rest else None)

    def _merged(self, parts: Sequence[Any], mask: torch.Tensor) -> torch.Tensor:
        merged = torch.zeros_like(mask)
        for rank, part in enumerate(parts[: len(mask)]):
            merged[rank :: self.count, : part.shape[1]] = torch.from_numpy(part)
        return merged.to(self.model.device)

    def backward(self, parts: Sequence[Any], gradients: Sequence[torch.Tensor]) -> None:
        """Add the gradients of the last pass, given those with respect to what it returned."""
        each = []
        for rank, (logprobs, *_) in enumerate(parts):
            mine = [gradient[rank :: self.count, : logprobs.shape[1]] for gradient in gradients]
            each.append([part.cpu().numpy() if len(part) else 0 * logprobs for part in mine])
        self.ask("backward", each=each)

    # ------------------------------------------------------------------ tensors

    def pull(self, model: Weights) -> None:
        """Copy what a model has learned from the ranks, if they run, into its weights here."""
        if not self._processes:
            return
        self.send("weights", model.adapter)
        with torch.no_grad():
            for _, parameter in model.parameters():
                parameter.copy_(unpack(self.gathered(parameter.shape, parameter.dtype)))
        self.answers()

    def gathered(self, shape: Sequence[int], dtype: torch.dtype) -> Array:
        """Return the next array that the ranks send, of which each sends its rows."""
        parts = [self._hear(rank) for rank in range(self.count)]
        return Array(DTYPES[dtype], tuple(shape), b"".join(parts))

    def scatter(self, value: torch.Tensor) -> None:
        """Send each rank its rows of an array, as FSDP2 splits them."""
        size = -(-len(value) // self.count)
        for rank in range(self.count):
            self._tell(rank, pack(value[rank * size : (rank + 1) * size]).data)

    def ready(self) -> None:
        """Start the ranks if they do not run, and give them the weights if these have changed."""
        if not self._processes:
            self._start()
        if self.is_stale:
            self.send("receive")
            for parameter in self.model.module.parameters():
                self.scatter(parameter)
            self.answers()
            self.is_stale = False

    # ------------------------------------------------------------------ processes

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
            process = context.Process(target=serve, args=what, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._links.append(ours)
        skeleton = io.BytesIO()
        SkeletonPickler(skeleton).dump(self.model.module)
        again = bool(self.model.settings.inherited("gradient_checkpointing"))
        how = self.adapters, self.model.tokenizer.pad, not self.model.has_plain_head, again
        self.ask("build", skeleton.getvalue(), *how)

    def ask(self, method: str, *arguments: Any, each: Sequence[Any] = ()) -> list[Any]:
        """Call a method on all ranks as `send` does; return what each returned."""
        self.send(method, *arguments, each=each)
        return self.answers()

    def send(self, method: str, *arguments: Any, each: Sequence[Any] = ()) -> None:
        """Call a method on all ranks; `each` has a last argument for each of them."""
        for rank in range(self.count):
            self._tell(rank, (method, (*arguments, each[rank]) if each else arguments))

    def answers(self) -> list[Any]:
        """Return the answer of each rank.

        Raises:
            RunError: a rank ended or failed; the others are ended, too.
        """
        answers: dict[int, Any] = {}
        while len(answers) < self.count:
            for link in wait([link for i, link in enumerate(self._links) if i not in answers]):
                rank = self._links.index(link)  # type: ignore[arg-type]
                error, answers[rank] = self._hear(rank)
                if error is not None:
                    self._failed(rank, error)
        return [answers[rank] for rank in range(self.count)]

    def _tell(self, rank: int, what: Any) -> None:
        try:
            self._links[rank].send(what)
        except OSError:
            self._lost(rank)

    def _hear(self, rank: int) -> Any:
        try:
            return self._links[rank].recv()
        except (EOFError, OSError):
            self._lost(rank)

    def _failed(self, rank: int, reason: str) -> NoReturn:
        """Raise RunError; if another rank ended, that is the reason that this one failed."""
        ended = wait([process.sentinel for process in self._processes], PATIENCE)
        for other, process in enumerate(self._processes):
            if process.sentinel in ended:
                self._lost(other)
        self.close()
        advice = f"; {REMEDY}" if "OutOfMemory" in reason else ""
        raise RunError(f"model {self.model.name}: rank {rank} of {self.count}: {reason}{advice}")

    def _lost(self, rank: int) -> NoReturn:
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
        """End the processes; their state was sent before, or is lost."""
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
        ctx: Any, leaf: torch.Tensor, ranks: Ranks, parts: Any, *values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.ranks, ctx.parts = ranks, parts
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, ...]:
        ctx.ranks.backward(ctx.parts, gradients)
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
        """Bytes on the model's device; 0 if unknown."""
        self._saved: Saved | None = None
        """The loaded state, until the ranks get it."""

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield nothing: all tensors are on the ranks."""
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
