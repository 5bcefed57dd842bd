"""The encoder `hints`: what the task says of each choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from attrs import frozen

from orchestrion import RunError, Situation, choice_name
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder


@frozen
class Hints(Encoder):
    """Shows what the task says of each choice, and whether it says anything.

    The numbers of a choice are its hints, 0 where the task says nothing of it, and 1 if it does.
    A task without hints has none. The prior is the first hint, and for a choice of which the task
    says nothing the mean of the others, so that saying nothing speaks neither for nor against.

    Args:
        told: show whether the task says anything of a choice.
    """

    told: bool = True

    observes: ClassVar[bool] = True

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Return numbers of choices alone [n, k, v]."""
        import numpy as np

        names = ["stop" if choice is None else choice_name(choice) for choice in choices]
        shown = [s.observation.hints if s.observation is not None else {} for s in situations]
        widths = {len(hint) for hints in shown for hint in hints.values()}
        if len(widths) > 1:
            raise RunError(
                f"encoder hints: the task gives {' and '.join(map(str, sorted(widths)))} hints of "
                "a choice; it must always give equally many"
            )
        nothing = np.zeros((len(situations), 0))
        if not widths:
            return Encoded(nothing, np.zeros((len(situations), len(choices), 0)))
        width = widths.pop()
        empty = (0.0,) * width
        rows, priors = [], []
        for hints in shown:
            given = [hints.get(name) for name in names]
            firsts = [hint[0] for hint in given if hint]
            mean = sum(firsts) / len(firsts) if firsts else 0.0
            priors.append([hint[0] if hint else mean for hint in given])
            rows.append([(*hint, 1.0) if hint else (*empty, 0.0) for hint in given])
        numbers = np.array(rows, np.float64).reshape(len(rows), len(names), width + 1)
        return Encoded(nothing, numbers if self.told else numbers[:, :, :-1], np.array(priors))
