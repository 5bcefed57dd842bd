"""How much memory a computation takes at most, counted tensor by tensor."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from attrs import define
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Peak", "peak"]


@define
class Peak:
    """Bytes of tensors that were made and still live, and the most there were at a time."""

    now: int = 0
    most: int = 0


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, counted: Peak) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counted, self._known = counted, set[int]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = {
            id(tensor.untyped_storage()) for tensor in tree_leaves((args, kwargs)) if _is(tensor)
        }
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if _is(tensor) and id(tensor.untyped_storage()) not in before | self._known:
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        counted, place, size = self._counted, id(storage), storage.nbytes()
        self._known.add(place)
        counted.now += size
        counted.most = max(counted.most, counted.now)
        weakref.finalize(storage, self._remove, place, size)

    def _remove(self, place: int, size: int) -> None:
        self._known.discard(place)
        self._counted.now -= size


def _is(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


@contextmanager
def peak() -> Iterator[Peak]:
    """Count the tensors that are made while the context lasts."""
    counted = Peak()
    with _Counting(counted):
        yield counted
