"""Where models are placed: the kind `device`, and the component `torch`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from attrs import define, field, frozen

from orchestrion import Meta, OpenContext, RunError
from orchestrion_local.sizes import Size, parse_size, size_text

if TYPE_CHECKING:
    import torch

    from orchestrion_local.offloading import Pool, Resident


class Device(Protocol):
    """A place for models. Several models on one device share its memory.

    Other placements (another machine, a scheduler's) are other components of this kind.
    """

    def place(self, model: str, needed: int) -> None:
        """Reserve bytes for a model.

        Raises:
            RunError: there is no room for it; names who has how much.
        """
        ...

    def left(self, needed: int) -> int | None:
        """Return the bytes for computing, beside `needed` bytes of a model that computes.

        None if there is no limit.
        """
        ...

    def resident(self, model: str, tensors: Callable[[], Iterable[torch.Tensor]]) -> Resident:
        """Return what moves a model's tensors here when they are needed."""
        ...


@define
class Place:
    """A device of this machine.

    Args:
        name: its config path.
        device: its name in torch.
        memory: bytes that models may take; None for no limit.
        offload: where models wait that make room for others; None if all stay.
        folder: for offloading to disk; by default the system's for temporary files.
    """

    name: str
    device: str
    memory: int | None
    offload: Literal["cpu", "disk"] | None = None
    folder: Path | None = None
    taken: dict[str, int] = field(factory=dict)
    pool: Pool | None = field(init=False, default=None)

    def place(self, model: str, needed: int) -> None:
        total = sum(self.taken.values()) + needed
        # Of models that take turns, only those needed together must fit: `Pool.check`.
        if self.memory is not None and total > self.memory and self.offload is None:
            others = ", ".join(f"{who} {size_text(size)}" for who, size in self.taken.items())
            raise RunError(
                f"{self.name}: {model} needs {size_text(needed)}, and "
                f"{size_text(self.memory - total + needed)} of {size_text(self.memory)} are left"
                + (f" (taken: {others})" if others else "")
                + "; use a smaller model, bfloat16, a `lora`, or another device"
                + (", or let models take turns with `offload`" if others else "")
            )
        self.taken[model] = self.taken.get(model, 0) + needed

    def left(self, needed: int) -> int | None:
        if self.memory is None:
            return None
        return self.memory - (sum(self.taken.values()) if self.offload is None else needed)

    def resident(self, model: str, tensors: Callable[[], Iterable[torch.Tensor]]) -> Resident:
        import torch

        from orchestrion_local.offloading import Pool, Resident, away

        device = torch.device(self.device)
        if self.offload is None:
            return Resident(model, tensors, device, reserve=self.place)
        if self.pool is None:
            self.pool = Pool(self.name, self.memory)
        return Resident(model, tensors, device, self.pool, away(self.offload, self.folder))


@frozen
class Torch:
    """Processors or a GPU of this machine, as torch names them.

    Args:
        name: "cpu", "cuda", "cuda:1" and so on.
        memory: how much models may take; by default what is free when the run starts.
        threads: number of threads of torch, for "cpu".
        offload: models take turns: as many are here as fit, and the least recently used wait in
            the memory of the processor ("cpu", for a GPU) or in files ("disk") with their
            optimizers' moments. Without it all must fit at once.
    """

    name: Annotated[str, Meta(pattern=r"^(cpu|cuda(:[0-9]+)?)$")] = "cpu"
    memory: Size | None = None
    threads: Annotated[int, Meta(ge=1)] | None = None
    offload: Literal["cpu", "disk"] | None = None

    def __attrs_post_init__(self) -> None:
        if self.threads is not None and self.name != "cpu":
            raise ValueError(f"threads: has no effect on {self.name}; remove it")
        if self.offload == "cpu" == self.name:
            raise ValueError("offload: `cpu` has no effect with `name: cpu`; use `disk`")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Device]:
        """Give the device, with its free memory or that of the settings.

        Raises:
            RunError: torch sees no such GPU.
        """
        if ctx.trial:
            yield Place(ctx.path, self.name, None)
            return
        import torch

        before = torch.get_num_threads()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            memory = self._memory(ctx.path)
            yield Place(ctx.path, self.name, memory, self.offload, ctx.directory)
        finally:
            torch.set_num_threads(before)

    def _memory(self, path: str) -> int | None:
        import torch

        device = torch.device(self.name)
        if device.type == "cuda":
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            if (device.index or 0) >= count:
                raise RunError(
                    f"{path}: torch sees {count} GPUs and no {self.name}; use `name: cpu`, or "
                    "install a build of torch for your GPU"
                )
            if self.memory is None:
                return int(torch.cuda.mem_get_info(device)[0])
        return parse_size(self.memory) if self.memory is not None else free_memory()


def free_memory() -> int | None:
    """Return the bytes of this machine's memory that are free; None if that is not known."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
