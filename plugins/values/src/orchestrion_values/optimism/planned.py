"""The models that `optimistic` installs: a plan over states, or over beliefs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from orchestrion_encoders.interfaces import Choice

from orchestrion import RunError, Saved, Situation
from orchestrion_values.arrays import pack, unpack
from orchestrion_values.optimism.believing import Beliefs
from orchestrion_values.optimism.seen import Floats, Mask, Shown
from orchestrion_values.optimism.states import Lookup
from orchestrion_values.policy import ValuePolicy

__all__ = ["NEVER", "Believed", "Planned", "show"]

NEVER = -1e9
"""The value of what a plan does not know: finite, so that what is allowed is still preferred."""


def show(situations: Sequence[Situation], allowed: Mask, choices: Sequence[Choice]) -> list[Shown]:
    """What tells situations apart: all that the task shows as numbers.

    Where it shows none: how often each choice was made.

    Raises:
        RunError: a number is not finite.
    """
    shown = [
        Shown(one.problem.category, _features(one, choices), tuple(row))
        for one, row in zip(situations, allowed.tolist(), strict=True)
    ]
    if not all(math.isfinite(number) for row in shown for number in row.features):
        raise RunError("trainer optimistic: the task shows numbers that are not finite")
    return shown


def _features(situation: Situation, choices: Sequence[Choice]) -> tuple[float, ...]:
    shown = situation.observation
    if shown is not None and (shown.features or shown.progress is not None):
        return (*shown.features, 0.0 if shown.progress is None else shown.progress)
    made = [(turn.agent, turn.option) for turn in situation.trajectory.turns]
    return tuple(float(made.count((one.agent, one.option))) for one in choices if one is not None)


class Planned:
    """Takes what a plan over states says.

    Args:
        lookup: finds the state of what is shown.
        values: of each choice, by number of the decision and state [t, s, k].
        choices: of the policy [k].
    """

    name = "optimistic-states"

    def __init__(self, lookup: Lookup, values: Floats, choices: Sequence[Choice]) -> None:
        self.lookup, self.choices = lookup, choices
        self.values = np.maximum(values, NEVER)

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """The values of each; later than ever seen, those of the last decision."""
        states = self.lookup.find(show(situations, allowed, self.choices))
        when = [min(len(one.trajectory), len(self.values) - 1) for one in situations]
        result: Floats = self.values[when, states]
        return result

    def save(self) -> Saved:
        """The lookup and the values."""
        find = self.lookup
        arrays = {
            "kept": find.kept,
            "cuts": np.concatenate([np.zeros(0), *find.cuts]),
            "codes": find.codes,
            "values": self.values,
        }
        sizes = [len(cuts) for cuts in find.cuts]
        return Saved(pack(arrays), {"categories": find.categories, "sizes": sizes})

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> Planned:
        """What `save` saved."""
        data: Any = saved.data
        arrays = unpack(saved.arrays)
        ends = np.cumsum(data["sizes"], dtype=np.int64)[:-1]
        cuts = np.split(arrays["cuts"], ends) if data["sizes"] else []
        lookup = Lookup(data["categories"], arrays["kept"], cuts, arrays["codes"])
        return cls(lookup, arrays["values"], policy.choices)


class Believed:
    """Takes what a plan over beliefs says.

    Args:
        beliefs: the plan.
        choices: of the policy [k].
    """

    name = "optimistic-beliefs"

    def __init__(self, beliefs: Beliefs, choices: Sequence[Choice]) -> None:
        self.beliefs, self.choices = beliefs, choices
        self._places = {
            (one.agent, one.option): i for i, one in enumerate(choices) if one is not None
        }
        modes = beliefs.plan.game.modes.tolist()
        self._modes = {tuple(mode): i for i, mode in enumerate(modes)}

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """The values of each; what the plan does not know is worth less than all else."""
        rows = [
            self._score(shown, situation)
            for shown, situation in zip(
                show(situations, allowed, self.choices), situations, strict=True
            )
        ]
        return np.maximum(np.array(rows), NEVER)

    def _score(self, shown: Shown, situation: Situation) -> Floats:
        made = [
            place
            for turn in situation.trajectory.turns
            if (place := self._places.get((turn.agent, turn.option))) is not None
        ]
        belief = self.beliefs.belief(shown.category, shown.features, made)
        mode = self._modes.get(shown.allowed)
        if mode is None:
            return np.full(len(shown.allowed), NEVER)
        values: Floats = self.beliefs.plan.values(belief[None], (len(made), mode))[0]
        return values

    def save(self) -> Saved:
        """The plan."""
        return self.beliefs.save()

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> Believed:
        """What `save` saved."""
        return cls(Beliefs.load(saved), policy.choices)
