"""The encoder `hints`: what the task says of each choice."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from orchestrion import RunError, Situation
from orchestrion.choices import choice_name
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder

__all__ = ["Hints"]


@frozen
class Hints(Encoder):
    """Shows what the task says of each choice, and whether it says anything.

    The numbers of a choice are its hints, 0 where the task says nothing of it, and 1 if it does.
    A task without hints has none.
    """

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Numbers of choices alone [n, k, v]; the context has none."""
        import numpy as np

        names = ["stop" if choice is None else choice_name(choice) for choice in choices]
        told = [s.observation.hints if s.observation is not None else {} for s in situations]
        widths = {len(hint) for hints in told for hint in hints.values()}
        if len(widths) > 1:
            raise RunError(
                f"encoder hints: the task gives {' and '.join(map(str, sorted(widths)))} hints of "
                "a choice; it must always give equally many"
            )
        width = max(widths, default=-1) + 1
        result = np.zeros((len(situations), len(choices), width))
        for row, hints in zip(result, told, strict=True):
            for place, name in enumerate(names):
                if name in hints:
                    row[place] = (*hints[name], 1.0)
        return Encoded(np.zeros((len(situations), 0)), result)
