"""How many episodes each iteration has."""

from __future__ import annotations

__all__ = ["batches"]

FIRST, GROWTH, LEAST = 6, 0.15, 8


def batches(episodes: int) -> list[int]:
    """Sizes of the iterations: a first batch, then each a share of what was seen before."""
    sizes = [max(1, min(64, episodes // FIRST))]
    while (left := episodes - sum(sizes)) > 0:
        size = max(LEAST, int(GROWTH * sum(sizes)))
        sizes.append(left if left < 2 * LEAST or left < size else size)
    return sizes
