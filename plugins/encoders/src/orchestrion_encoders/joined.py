"""Several encoders as one, for policies: widths that stay as they are, and finite numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from orchestrion import (
    Calls,
    CheckpointError,
    Episode,
    Observation,
    Policy,
    RunError,
    Situation,
    Usage,
    UsageError,
)
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder, join

if TYPE_CHECKING:  # numpy, too, is imported when it is first used: `validate` needs none
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import nn

    from orchestrion_encoders.interfaces import Floats


class Joined:
    """Encodes with all of some encoders.

    Args:
        encoders: whose numbers are put side by side.
        who: the policy, in messages.

    Attributes:
        shapes: numbers of a situation, of a choice and of a turn, by encoder; None until the first
            situation has shown them.
        observes: whether the numbers depend on the observation alone.
        shared: whether an encoder tells what choices do, so that one function can score them.
        free: whether, beyond that, none goes by places, so that the policy fits any team.

    Raises:
        UsageError: more than one of them gives sequences of turns.
    """

    def __init__(self, encoders: Sequence[Encoder], who: str) -> None:
        self.encoders, self.who = tuple(encoders), who
        self.shapes: list[list[int]] | None = None
        if sum(self._say("sequences")) > 1:
            raise UsageError(
                f"{who}: two encoders give sequences of turns, and a policy can read one of them; "
                "leave the others out"
            )
        self.observes = all(self._say("observes"))
        self.shared = any(self._say("describes"))
        self.free = self.shared and not any(self._say("places"))

    def _say(self, name: str) -> list[bool]:
        """Return what each encoder says of itself; see `Encoder`."""
        return [bool(getattr(encoder, name, False)) for encoder in self.encoders]

    def familiar(self, context: Floats) -> Floats:
        """Return the numbers of situations [n, w] that may recur; the same array if all may."""
        assert self.shapes is not None
        unique = self._say("unique")
        if not any(unique):
            return context
        import numpy as np

        widths = [shape[0] for shape in self.shapes]
        result: Floats = context[:, ~np.repeat(unique, widths)]
        return result

    @property
    def settings(self) -> list[str]:
        """Return what the encoders are, so that a checkpoint of others is told."""
        return encoder_settings(self.encoders)

    def reader(self, generator: torch.Generator) -> tuple[nn.Module | None, int]:
        """Return the network that reads the turns, if an encoder gives them, and its width."""
        assert self.shapes is not None
        for encoder, (_, _, turn) in zip(self.encoders, self.shapes, strict=True):
            if turn:
                network, width = encoder.network(turn, generator)  # type: ignore[attr-defined]
                return network, width
        return None, 0

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Return the situations as numbers, of the widths that the first ones had.

        Raises:
            RunError: a situation shows more or less than others, or numbers that are not finite.
        """
        import numpy as np

        parts = [encoder.encode(situations, choices) for encoder in self.encoders]
        shapes = [_shape(part) for part in parts]
        if self.shapes is None:
            self.shapes = shapes
        elif shapes != self.shapes:
            pairs = zip(parts, self.shapes, self.encoders, strict=True)
            parts = [self._fitted(part, shape, encoder) for part, shape, encoder in pairs]
        encoded = join(parts)
        if not (np.isfinite(encoded.context.sum()) and np.isfinite(encoded.choices.sum())):
            raise RunError(f"{self.who}: what an encoder gives are not finite numbers")
        return encoded

    def _fitted(self, part: Encoded, expected: list[int], encoder: Encoder) -> Encoded:
        """Return a part of the expected widths: zeros where a task says nothing of any choice.

        What it says of choices after it first said nothing is left out.
        """
        import numpy as np

        shape, (n, k) = _shape(part), part.choices.shape[:2]
        alike = [shape[0], shape[2]] == [expected[0], expected[2]]
        if alike and expected[1] == 0:
            return Encoded(part.context, np.zeros((n, k, 0)), None, part.turns)
        if alike and shape[1] == 0:
            return Encoded(part.context, np.zeros((n, k, expected[1])), np.zeros((n, k)))
        if shape != expected:
            name = getattr(encoder, "name", type(encoder).__name__)
            advice = "a task must always show equally many"
            if getattr(encoder, "prepares", False):
                advice = "its model must be the one that the policy was trained with"
            raise RunError(
                f"{self.who}: its encoder {name} gives {_describe(shape)}, "
                f"before it gave {_describe(expected)}; {advice}"
            )
        return part


def refuse_other_team(path: str, saved: Sequence[str], mine: Sequence[str], advice: str) -> None:
    """Refuse what was learned for a team with other choices, by name.

    Raises:
        CheckpointError: the names differ, in whatever order.
    """
    gone = [name for name in saved if name not in mine]
    new = [name for name in mine if name not in saved]
    differences = [f"not in this team: {', '.join(gone)}"] if gone else []
    differences += [f"new in this team: {', '.join(new)}"] if new else []
    if differences:
        raise CheckpointError(
            f"{path}: the policy was saved for another team; {'; '.join(differences)}. "
            f"Use the team it was trained with, or train anew{advice}"
        )


def encoder_settings(encoders: Sequence[Encoder]) -> list[str]:
    """Return the settings of encoders as text, to compare with those of a saved policy."""
    settings = [getattr(encoder, "settings", encoder) for encoder in encoders]
    return [repr(s) if attrs.has(type(s)) else type(s).__name__ for s in settings]


class Reading(Policy):
    """What a policy does for the `encoders` that it reads before it decides."""

    encoders: Sequence[Encoder]

    @property
    def _preparing(self) -> list[Encoder]:
        return [encoder for encoder in self.encoders if getattr(encoder, "prepares", False)]

    @property
    def prepares(self) -> bool:
        return bool(self._preparing)

    async def prepare(self, situation: Situation, calls: Calls) -> None:
        for encoder in self._preparing:
            await encoder.prepare(situation, calls)

    def learn(self, episodes: Sequence[Episode]) -> None:
        for encoder in self.encoders:
            if hasattr(encoder, "learn"):
                encoder.learn(episodes)

    def ceiling(self, tokens: int) -> Usage | None:
        """Return what all encoders take before one decision at most."""
        usages = [encoder.ceiling(tokens) for encoder in self._preparing]
        known = [usage for usage in usages if usage is not None]
        return sum(known, Usage()) if len(known) == len(usages) else None


class Allowing:
    """What tasks allow of some choices. Blocking is of agents: stopping is always possible."""

    def __init__(self, choices: Sequence[Choice], names: Sequence[str]) -> None:
        self._names = [
            None if choice is None else frozenset((choice.agent, name))
            for choice, name in zip(choices, names, strict=True)
        ]

    def __call__(self, observation: Observation | None) -> NDArray[np.bool_]:
        """Return the mask of what may be chosen [k]."""
        import numpy as np

        blocked = frozenset() if observation is None else observation.blocked
        return np.array([names is None or not blocked & names for names in self._names])


def _shape(part: Encoded) -> list[int]:
    turn = part.turns[0].shape[1] if part.turns else 0
    return [part.context.shape[1], part.choices.shape[2], turn]


def _describe(shape: list[int]) -> str:
    return f"{shape[0]} numbers of a situation and {shape[1]} of a choice"
