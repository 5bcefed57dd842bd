"""Which values a trial can have."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import product

from attrs import frozen

from orchestrion import JSON, Key
from orchestrion_sweep.settings import Dimension

Values = Mapping[str, JSON]
"""What a trial changes in the config, by path; nothing in trial 0."""


@frozen
class Space:
    """All values of all settings that are searched."""

    dimensions: Mapping[str, Dimension]

    def plain(self) -> dict[str, JSON]:
        """Return it as it stands in a config."""
        return {path: dimension.plain() for path, dimension in self.dimensions.items()}

    def grid(self) -> Iterator[dict[str, JSON]]:
        """Yield all combinations, the last setting changing fastest."""
        for row in product(*(dimension.values for dimension in self.dimensions.values())):
            yield dict(zip(self.dimensions, row, strict=True))

    def draw(self, key: Key) -> dict[str, JSON]:
        """Return a value of each setting."""
        return {
            path: at(dimension, key.child(path).uniform())
            for path, dimension in self.dimensions.items()
        }


def at(dimension: Dimension, share: float) -> JSON:
    """Return the value that `share` of all others are below; `share` is in [0, 1)."""
    if values := dimension.values:
        return values[int(share * len(values))]
    if dimension.log_uniform is not None:
        first, last = map(math.log, dimension.log_uniform)
        return rounded(math.exp(first + share * (last - first)), dimension)
    assert dimension.uniform is not None
    return rounded(
        dimension.uniform[0] + share * (dimension.uniform[1] - dimension.uniform[0]), dimension
    )


def rounded(number: float, dimension: Dimension) -> float:
    """Return a number with four digits, within the range: it is read and copied by people."""
    ends = dimension.range
    assert ends is not None
    return min(max(float(f"{number:.4g}"), ends[0]), ends[1])


def name_of(number: int, values: Values, seed: int | None = None) -> str:
    """Return the name of a trial's folder: number and values, and the seed if there are several."""
    parts = [f"{number:03d}"]
    parts += [f"{path.rpartition('.')[2]}={shown(value)}" for path, value in values.items()]
    name = re.sub(r"[^\w.=+,-]+", "", "-".join(parts) if values else f"{parts[0]}-as-configured")
    return name[:100] + ("" if seed is None else f"-seed{seed}")


def shown(value: JSON) -> str:
    """Return a value for people."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return str(value.get("use") or dict(value))
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(shown, value))}]"
    return str(value)
