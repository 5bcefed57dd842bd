"""Tensors that come to a device when they are needed and make room for others when they are not.

A tensor that moves stays the same object: an optimizer that holds a parameter, two layers that
share one, and an adapter beside its base know nothing of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import torch

from orchestrion import RunError
from orchestrion_local.residency import Pool

__all__ = ["Away", "Resident", "away", "fits", "pinned", "size_of"]

Away = Callable[[torch.Tensor], torch.Tensor]
"""Copies a tensor to where it waits."""


def size_of(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of tensors."""
    return sum(one.numel() * one.element_size() for one in tensors)


def away(offload: Literal["cpu", "disk"], folder: Path | None = None) -> Away:
    """Where tensors wait: in the processor's memory, or in files of a folder."""
    return _to_host if offload == "cpu" else lambda tensor: _to_disk(tensor, folder)


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def _to_disk(tensor: torch.Tensor, folder: Path | None) -> torch.Tensor:
    """A tensor whose memory is a file: it can be read and written as if it were in memory.

    The file has no name any more when this returns, so that nothing is left when a run is killed.
    """
    if not tensor.numel():
        return _to_host(tensor)
    # A copy has no gaps, and the strides that the original had: sums keep their order.
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
        tensors: all of them, as they are when asked; those that were added later come along, and
            so do gradients.
        device: where they are needed.
        pool: whose turns they take; None where they stay on the device.
        to: copies a tensor to where it waits.
        size: bytes that they take; by default as they are, without gradients.
        reserve: sets bytes aside for what stays on the device.
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
        self._reserve = reserve
        self._tensors, self._size = tensors, size
        self._waiting: dict[int, torch.Tensor] = {}
        """Copies of tensors, by their identity, while these are away."""

    @property
    def size(self) -> int:
        """See `Guest.size`."""
        if self._size is not None:
            return self._size
        return size_of(self._distinct())

    def _distinct(self) -> Iterable[torch.Tensor]:
        return {id(one): one for one in self._tensors()}.values()

    def _each(self) -> Iterator[torch.Tensor]:
        for one in self._distinct():
            yield one
            if one.grad is not None:
                yield one.grad

    def enter(self) -> None:
        """See `Guest.enter`."""
        for one in self._each():
            # On a processor what waits in a file is on the same device, and is no less away.
            one.data = one.detach().to(self.device, copy=True)
        self._waiting.clear()

    def leave(self) -> None:
        """See `Guest.leave`."""
        before, self._waiting = self._waiting, {}
        for one in self._each():
            copy = before.get(id(one))
            if copy is None or copy.data_ptr() != one.data_ptr():
                copy = one.data = self.copy_away(one)
            self._waiting[id(one)] = copy

    def settle(self) -> None:
        """Go where tensors are that nobody needs now: after loading, or when some were added.

        Raises:
            RunError: they are too large for the device.
        """
        if self.pool is not None:
            self.pool.check((self,))
            self.pool.evict(self)
        else:
            for one in self._each():
                one.data = one.detach().to(self.device)

    def beside(
        self, name: str, tensors: Callable[[], Iterable[torch.Tensor]], size: int
    ) -> Resident:
        """Others that are needed on the same device, but not always when these are.

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
        """While it lasts, these and others are on their devices."""
        with pinned(self, *others):
            yield


@contextmanager
def pinned(*residents: Resident) -> Iterator[None]:
    """While it lasts, all of them are on their devices."""
    with ExitStack() as stack:
        for pool, guests in _by_pool(residents):
            stack.enter_context(pool.pinned(guests))
        yield


def fits(*residents: Resident) -> None:
    """Whether all of them could be on their devices at once.

    Raises:
        RunError: they could not.
    """
    for pool, guests in _by_pool(residents):
        pool.check(guests)


def _by_pool(residents: Iterable[Resident]) -> list[tuple[Pool, list[Resident]]]:
    """In one order everywhere, so that no two threads have what the other one waits for."""
    pools: dict[Pool, list[Resident]] = {}
    for one in dict.fromkeys(residents):
        if one.pool is not None:
            pools.setdefault(one.pool, []).append(one)
    return sorted(pools.items(), key=lambda pair: pair[0].name)
