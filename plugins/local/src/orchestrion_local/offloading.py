"""Tensors that move to a device when they are needed, and away when others need the room.

A `Resident` moves the tensors of one model or optimizer together. A tensor that moves stays the
same object, so optimizers, layers that share it, and adapters on it need no change. A `Pool` is the
memory of one device: what is needed is pinned and moved in, the least recently used moves out.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, Protocol

import torch

from orchestrion import RunError
from orchestrion_local.sizes import size_text

# ------------------------------------------------------------------------------------ the pool


class Guest(Protocol):
    """Something that a pool moves; compared by identity."""

    @property
    def name(self) -> str:
        """Name, for errors."""
        ...

    @property
    def size(self) -> int:
        """Bytes it takes in the pool."""
        ...

    def enter(self) -> None:
        """Move in."""
        ...

    def leave(self) -> None:
        """Move out."""
        ...


class Pool:
    """A memory that guests share by turns; one thread at a time computes with it.

    A thread pins all guests that it needs together. The least recently used ones make room.

    Args:
        name: of the device, for errors.
        memory: bytes; None for no limit.
    """

    def __init__(self, name: str, memory: int | None) -> None:
        self.name, self.memory = name, memory
        self.moves = 0
        """Number of moves in or out."""
        self._inside: dict[Guest, None] = {}
        self._pinned: Counter[Guest] = Counter()
        self._turn = threading.RLock()

    @property
    def inside(self) -> tuple[Guest, ...]:
        """Guests that are on the device, the least recently used first."""
        return tuple(self._inside)

    def check(self, wanted: Collection[Guest]) -> None:
        """Check that guests could be in together.

        Raises:
            RunError: they are too large; names who takes how much.
        """
        total = sum(guest.size for guest in wanted)
        if self.memory is not None and total > self.memory:
            sizes = ", ".join(f"{guest.name} {size_text(guest.size)}" for guest in wanted)
            raise RunError(
                f"{self.name}: {size_text(total)} are needed at once and there are "
                f"{size_text(self.memory)} ({sizes}); use smaller models, bfloat16, a `lora`, or "
                "another device"
            )

    @contextmanager
    def pinned(self, guests: Collection[Guest]) -> Iterator[None]:
        """Keep guests in while the context lasts; other threads wait.

        Raises:
            RunError: they never fit.
            RuntimeError: they do not fit beside what this thread has pinned.
        """
        wanted = list(dict.fromkeys(guests))
        with self._turn:
            if not self._pinned:
                self.check(wanted)
            self._admit(wanted)
            self._pinned.update(wanted)
            try:
                yield
            finally:
                self._pinned.subtract(wanted)
                self._pinned = +self._pinned
                for guest in wanted:
                    self._use(guest)

    def evict(self, guest: Guest) -> None:
        """Move out a guest that is not pinned, and what was added to it while it was out."""
        with self._turn:
            if guest in self._pinned:
                raise RuntimeError(f"{self.name}: {guest.name} is pinned")
            guest.leave()
            self._inside.pop(guest, None)

    def _admit(self, wanted: Sequence[Guest]) -> None:
        staying = dict.fromkeys((*self._pinned, *wanted))
        if self.memory is not None:
            if sum(guest.size for guest in staying) > self.memory:
                names = ", ".join(guest.name for guest in wanted)
                raise RuntimeError(
                    f"{self.name}: no room for {names} beside what is pinned; pin together what is "
                    "needed together"
                )
            total = sum(guest.size for guest in self._inside | staying)
            for guest in [guest for guest in self._inside if guest not in staying]:
                if total <= self.memory:
                    break
                guest.leave()
                self.moves += 1
                del self._inside[guest]
                total -= guest.size
        for guest in wanted:
            if guest not in self._inside:
                guest.enter()
                self.moves += 1
            self._use(guest)

    def _use(self, guest: Guest) -> None:
        """Make a guest the most recently used."""
        self._inside.pop(guest, None)
        self._inside[guest] = None


# ------------------------------------------------------------------------------------ tensors

Away = Callable[[torch.Tensor], torch.Tensor]
"""Copies a tensor to where it waits."""


def size_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def away(offload: Literal["cpu", "disk"], folder: Path | None = None) -> Away:
    """Return how tensors are copied to the processor's memory, or to files of a folder."""
    return _to_host if offload == "cpu" else lambda tensor: _to_disk(tensor, folder)


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def _to_disk(tensor: torch.Tensor, folder: Path | None) -> torch.Tensor:
    """Return a copy in a file without a name, so that a killed run leaves no file."""
    if not tensor.numel():
        return _to_host(tensor)
    # The copy keeps the order of the strides, so that sums keep their order.
    dense = _to_host(tensor)
    count = dense.numel()
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="offload-") as file:
            dense.as_strided((count,), (1,)).view(torch.uint8).numpy().tofile(file)
            file.flush()
            flat = torch.from_file(file.name, shared=True, size=count, dtype=dense.dtype)
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise RunError(f"{where}: weights cannot be offloaded there: {error}") from error
    return flat.as_strided(dense.shape, dense.stride())


class Resident:
    """Tensors that are moved together.

    Args:
        name: of the model, for errors.
        tensors: returns all of them; tensors that were added later and gradients move, too.
        device: where they are needed.
        pool: where they take turns; None if they stay on the device.
        to: copies a tensor to where it waits.
        size: bytes that they take; by default their present size, without gradients.
        reserve: reserves bytes for tensors that stay on the device.
    """

    def __init__(
        self,
        name: str,
        tensors: Callable[[], Iterable[torch.Tensor]],
        device: torch.device,
        pool: Pool | None = None,
        to: Away = _to_host,
        size: int | None = None,
        reserve: Callable[[str, int], None] | None = None,
    ) -> None:
        self.name, self.device, self.pool, self.copy_away = name, device, pool, to
        self._reserve, self._tensors, self._size = reserve, tensors, size
        self._waiting: dict[int, torch.Tensor] = {}
        """Copies of tensors by the tensor's identity, while these are away."""

    @property
    def size(self) -> int:
        return size_of(self._distinct()) if self._size is None else self._size

    def _distinct(self) -> Iterable[torch.Tensor]:
        return {id(tensor): tensor for tensor in self._tensors()}.values()

    def _each(self) -> Iterator[torch.Tensor]:
        for tensor in self._distinct():
            yield tensor
            if tensor.grad is not None:
                yield tensor.grad

    def enter(self) -> None:
        for tensor in self._each():
            # On a processor, a tensor in a file is on the same device: copy it all the same.
            tensor.data = tensor.detach().to(self.device, copy=True)
        self._waiting.clear()

    def leave(self) -> None:
        before, self._waiting = self._waiting, {}
        for tensor in self._each():
            copy = before.get(id(tensor))
            if copy is None or copy.data_ptr() != tensor.data_ptr():
                copy = tensor.data = self.copy_away(tensor)
            self._waiting[id(tensor)] = copy

    def settle(self) -> None:
        """Move the tensors to where they rest, after they were loaded or some were added.

        Raises:
            RunError: they are too large for the device.
        """
        if self.pool is not None:
            self.pool.check((self,))
            self.pool.evict(self)
        else:
            for tensor in self._each():
                tensor.data = tensor.detach().to(self.device)

    def beside(
        self, name: str, tensors: Callable[[], Iterable[torch.Tensor]], size: int
    ) -> Resident:
        """Return a resident for tensors on the same device that move on their own.

        Raises:
            RunError: both do not fit together.
        """
        other = Resident(name, tensors, self.device, self.pool, self.copy_away, size)
        if self.pool is not None:
            self.pool.check((self, other))
        elif self._reserve is not None:
            self._reserve(name, size)
        return other

    @contextmanager
    def pinned(self, *others: Resident) -> Iterator[None]:
        """Keep these tensors and others on their devices while the context lasts."""
        with ExitStack() as stack:
            for pool, guests in _by_pool((self, *others)):
                stack.enter_context(pool.pinned(guests))
            yield


def fits(*residents: Resident) -> None:
    """Raise RunError if residents cannot be on their devices together."""
    for pool, guests in _by_pool(residents):
        pool.check(guests)


def _by_pool(residents: Iterable[Resident]) -> list[tuple[Pool, list[Resident]]]:
    """Return residents by pool, in one order everywhere: threads cannot wait for each other."""
    pools: dict[Pool, list[Resident]] = {}
    for resident in dict.fromkeys(residents):
        if resident.pool is not None:
            pools.setdefault(resident.pool, []).append(resident)
    return sorted(pools.items(), key=lambda pair: pair[0].name)
