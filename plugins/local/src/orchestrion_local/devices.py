"""What models are placed on: the kind `device`, whose members make up a run's pool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from attrs import define, field, frozen

from orchestrion import Meta, OpenContext, RunError
from orchestrion_local.residency import Pool, said

if TYPE_CHECKING:
    import torch

    from orchestrion_local.offloading import Resident

__all__ = ["Device", "Place", "Torch", "parse_size"]

_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
Size = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)? ?[KMGT]?B$")]


def parse_size(text: str) -> int:
    """Bytes of a size like "40 GB"."""
    number = text.rstrip("KMGTB ")
    return int(float(number) * _UNITS[text[len(number) :].strip()])


class Device(Protocol):
    """A place for models. Several models on one device share its memory.

    Other placements (another machine, a scheduler's) are other components of this kind.
    """

    def torch_device(self) -> torch.device:
        """Where tensors go."""
        ...

    def place(self, model: str, needed: int) -> None:
        """Set bytes aside for a model.

        Raises:
            RunError: there is no room for it; names who has how much.
        """
        ...

    def resident(self, model: str, tensors: Callable[[], Iterable[torch.Tensor]]) -> Resident:
        """Who sees to it that a model's tensors are here when they are needed."""
        ...


@define
class Place:
    """A device at work.

    Args:
        name: its config name.
        device: for torch.
        memory: bytes that may be given away; None means no limit is known.
        offload: where models are that have to make room for others; None means that all stay.
        folder: for what is offloaded to disk; by default the system's for temporary files.
    """

    name: str
    device: torch.device
    memory: int | None
    offload: Literal["cpu", "disk"] | None = None
    folder: Path | None = None
    taken: dict[str, int] = field(factory=dict)
    pool: Pool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.pool = Pool(self.name, self.memory)

    def torch_device(self) -> torch.device:
        """See `Device.torch_device`."""
        return self.device

    def place(self, model: str, needed: int) -> None:
        """See `Device.place`."""
        total = sum(self.taken.values()) + needed
        # Of models that take turns only those that are needed together must fit: `Pool.check`.
        if self.memory is not None and total > self.memory and self.offload is None:
            others = ", ".join(f"{who} {said(size)}" for who, size in self.taken.items())
            raise RunError(
                f"{self.name}: {model} needs {said(needed)}, and "
                f"{said(self.memory - total + needed)} of {said(self.memory)} are left"
                + (f" (taken: {others})" if others else "")
                + "; take a smaller model, bfloat16, a `lora`, or another device"
                + (", or let models take turns with `offload`" if others else "")
            )
        self.taken[model] = self.taken.get(model, 0) + needed

    def resident(self, model: str, tensors: Callable[[], Iterable[torch.Tensor]]) -> Resident:
        """See `Device.resident`."""
        from orchestrion_local.offloading import Resident, away

        if self.offload is None:
            return Resident(model, tensors, self.device, reserve=self.place)
        return Resident(model, tensors, self.device, self.pool, away(self.offload, self.folder))


@frozen
class Torch:
    """Processors or a GPU of this machine, as torch knows them.

    Args:
        name: "cpu", "cuda", "cuda:1" and so on.
        memory: how much may be given to models; by default what is free when the run starts.
        threads: that torch computes with, for "cpu".
        offload: models take turns: as many are here as fit, and those that rested longest wait in
            the memory of the processor ("cpu", for a GPU) or in files ("disk") with their
            optimizers' moments. Without it all must fit at once.
    """

    name: Annotated[str, Meta(pattern=r"^(cpu|cuda(:[0-9]+)?)$")] = "cpu"
    memory: Size | None = None
    threads: Annotated[int, Meta(ge=1)] | None = None
    offload: Literal["cpu", "disk"] | None = None

    def __attrs_post_init__(self) -> None:
        if self.threads is not None and self.name != "cpu":
            raise ValueError(f"threads: does nothing on {self.name}")
        if self.offload == "cpu" == self.name:
            raise ValueError("offload: cpu does nothing for models that are there; use disk")

    def torch_device(self) -> torch.device:
        """See `Device.torch_device`."""
        raise NotImplementedError("a device must be opened")

    def place(self, model: str, needed: int) -> None:
        """See `Device.place`."""
        raise NotImplementedError("a device must be opened")

    def resident(self, model: str, tensors: Callable[[], Iterable[torch.Tensor]]) -> Resident:
        """See `Device.resident`."""
        raise NotImplementedError("a device must be opened")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Device]:
        """Look whether it is there and how much memory it has free.

        Raises:
            RunError: torch sees no such GPU.
        """
        if ctx.trial:
            yield self
            return
        import torch

        device = torch.device(self.name)
        before = torch.get_num_threads()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            memory = self._memory(ctx.path, device)
            yield Place(ctx.path, device, memory, self.offload, ctx.directory)
        finally:
            torch.set_num_threads(before)

    def _memory(self, path: str, device: torch.device) -> int | None:
        import torch

        if device.type == "cuda":
            found = torch.cuda.device_count() if torch.cuda.is_available() else 0
            if (device.index or 0) >= found:
                raise RunError(
                    f"{path}: torch sees {found} GPUs and no {self.name}; use `name: cpu`, or "
                    "install a build of torch for your GPU"
                )
            if self.memory is None:
                return int(torch.cuda.mem_get_info(device)[0])
        return parse_size(self.memory) if self.memory is not None else _free_memory()


def _free_memory() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
