"""The model that `optimistic` installs: values by state and number of the decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrion import Saved, Situation
from orchestrion_values.arrays import pack, unpack
from orchestrion_values.optimism.seen import Floats, Mask, Shown
from orchestrion_values.optimism.states import Lookup
from orchestrion_values.policy import ValuePolicy

__all__ = ["Planned", "show"]


def show(situations: Sequence[Situation], allowed: Mask, choices: Sequence[Any]) -> list[Shown]:
    """What tells situations apart: all that the task shows as numbers.

    Where it shows none: how often each choice was made.
    """
    return [
        Shown(one.problem.category, _features(one, choices), tuple(row))
        for one, row in zip(situations, allowed.tolist(), strict=True)
    ]


def _features(situation: Situation, choices: Sequence[Any]) -> tuple[float, ...]:
    shown = situation.observation
    if shown is not None and (shown.features or shown.progress is not None):
        return (*shown.features, 0.0 if shown.progress is None else shown.progress)
    made = [(turn.agent, turn.option) for turn in situation.trajectory.turns]
    return tuple(float(made.count((one.agent, one.option))) for one in choices if one is not None)


class Planned:
    """Takes what the plan says.

    Args:
        lookup: finds the state of what is shown.
        values: of each choice, by number of the decision and state [t, s, k].
        choices: of the policy [k].
    """

    name = "optimistic"

    def __init__(self, lookup: Lookup, values: Floats, choices: Sequence[Any]) -> None:
        self.lookup, self.values, self.choices = lookup, values, choices

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """The values of each; later than ever seen, those of the last decision."""
        states = self.lookup.find(show(situations, allowed, self.choices))
        when = [min(len(one.trajectory), len(self.values) - 1) for one in situations]
        result: Floats = self.values[when, states]
        return result

    def save(self) -> Saved:
        """The lookup and the values."""
        find = self.lookup
        sizes = [len(cuts) for cuts in find.cuts]
        return Saved(
            pack(
                {
                    "kept": find.kept,
                    "cuts": np.concatenate([np.zeros(0), *find.cuts]),
                    "codes": find.codes,
                    "values": np.nan_to_num(self.values, neginf=-1e300),
                }
            ),
            {"categories": find.categories, "sizes": sizes},
        )

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> Planned:
        """What `save` saved."""
        data: Any = saved.data
        arrays = unpack(saved.arrays)
        ends = np.cumsum(data["sizes"], dtype=np.int64)[:-1]
        cuts = np.split(arrays["cuts"], ends) if data["sizes"] else []
        lookup = Lookup(data["categories"], arrays["kept"], cuts, arrays["codes"])
        return cls(lookup, arrays["values"], policy.choices)
