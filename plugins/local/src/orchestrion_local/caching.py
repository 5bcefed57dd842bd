"""Keys and values of what was read, with room for what is said next."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

__all__ = ["roomy_cache"]

ROOM = 32
"""Tokens that fit behind what is there before everything is copied to a larger place."""


def roomy_cache() -> Cache:
    """A cache for one batch; the library's own copies all of it for every token."""
    return Cache(layer_class_to_replicate=_Roomy)


class _Roomy(DynamicLayer):  # type: ignore[misc]  # it has no types
    """Keys and values [B, heads, tokens, width] at the beginning of larger tensors."""

    keys: torch.Tensor
    values: torch.Tensor
    _places: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put new tokens behind those that are there."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.get_seq_length()
        after = before + key_states.shape[-2]
        if self._places is None or self._places[0].shape[-2] < after:
            self._places = (
                _larger(self.keys, key_states, before, after + ROOM),
                _larger(self.values, value_states, before, after + ROOM),
            )
        for place, fresh in zip(self._places, (key_states, value_states), strict=True):
            place[:, :, before:after] = fresh
        self.keys, self.values = (place[:, :, :after] for place in self._places)
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """See the library's."""
        super().batch_repeat_interleave(repeats)
        self._places = None

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """See the library's."""
        super().batch_select_indices(indices)
        self._places = None


def _larger(old: torch.Tensor, fresh: torch.Tensor, before: int, room: int) -> torch.Tensor:
    batch, heads, _, width = fresh.shape
    place = fresh.new_empty((batch, heads, room, width))
    if before:
        place[:, :, :before] = old
    return place
