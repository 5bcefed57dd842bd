"""From situations to rows of numbers, and to masks of what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import isfinite, log1p
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from orchestrion import Activation, Observation, RunError, Situation
from orchestrion.choices import choice_name

if TYPE_CHECKING:
    from orchestrion_reinforce.neural import Neural

__all__ = ["Encoder", "Floats", "Mask", "hashed_words"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

STOP = "stop"
WORD = re.compile(r"\w+")
UNSEEN = Observation()
LOGARITHMS = tuple(log1p(n) for n in range(64))
REMEMBERED = 4096
"""How many different texts and sets of blocked agents are kept encoded."""


@lru_cache(REMEMBERED)
def hashed_words(text: str, width: int) -> Floats:
    """A text as a signed bag of words of length 1 (Weinberger et al. 2009); not to be changed."""
    row = np.zeros(width)
    for word in WORD.findall(text.lower()):
        code = crc32(word.encode())
        row[code % width] += 1.0 if (code >> 16) & 1 else -1.0
    norm = float(np.sqrt(row @ row))
    if norm > 0:
        row /= norm
    row.flags.writeable = False
    return row


class Encoder:
    """Encodes situations of one team and task.

    A row is, in this order and as far as switched on: the features and progress the task shows;
    log(1 + .) of how often each choice was made, of the number of turns and of their cost; the
    last choice as one of n, and whether it failed; hashed words of the problem, and of the
    completed turns.

    Args:
        settings: the policy's.
        choices: in the order of the network's outputs; None is stopping.
        features: how many numbers the task shows.
        hints: how many numbers the task shows of each choice.
    """

    def __init__(
        self,
        settings: Neural,
        choices: Sequence[Activation | None],
        features: int,
        hints: int = 0,
    ) -> None:
        self.settings, self.features, self.hints = settings, features, hints
        self.count = len(choices)
        self.places = {
            (one.agent, one.option): i for i, one in enumerate(choices) if one is not None
        }
        self._names = [(STOP, STOP) if c is None else (c.agent, choice_name(c)) for c in choices]
        self._stop = [i for i, one in enumerate(choices) if one is None]
        self._masks: dict[frozenset[str], Mask] = {}
        shown = features + 1 if settings.observation else 0
        past = 2 * self.count + 3 if settings.history else 0
        self.width = shown + past + 2 * settings.text

    def encode(self, situations: Sequence[Situation]) -> Floats:
        """Rows [n, width]."""
        settings, text = self.settings, self.settings.text
        rows: list[list[float]] = []
        for situation in situations:
            row = self._observed(situation) if settings.observation else []
            if settings.history:
                row += self._history(situation)
            rows.append(row)
        result = np.array(rows).reshape(len(rows), -1)
        if text:
            words = np.zeros((len(rows), 2 * text))
            for row_of_words, situation in zip(words, situations, strict=True):
                self._read(row_of_words, situation)
            result = np.concatenate([result, words], axis=1)
        if not isfinite(result.sum()):
            raise RunError(
                "policy neural: the task's features or a turn's cost are not finite numbers"
            )
        return result

    def _observed(self, situation: Situation) -> list[float]:
        seen = situation.observation or UNSEEN
        shown = seen.features
        if len(shown) != self.features:
            raise RunError(
                f"policy neural: problem {situation.problem.id!r} shows {len(shown)} features, "
                f"others showed {self.features}; a task must always show equally many"
            )
        return [*shown, 0.0 if seen.progress is None else seen.progress]

    def _history(self, situation: Situation) -> list[float]:
        count, places = self.count, self.places
        times, last = [0] * count, [0.0] * (count + 1)
        turns, cost = 0, 0.0
        for turn in situation.trajectory.backward():
            place = places.get((turn.agent, turn.option))
            if place is not None:
                times[place] += 1
            if not turns:
                if place is not None:
                    last[place] = 1.0
                last[count] = float(turn.status != "completed")
            turns += 1
            cost += turn.output.usage.cost
        row = [LOGARITHMS[n] if n < 64 else log1p(n) for n in times]
        row.append(log1p(turns))
        row.append(log1p(max(0.0, cost) / self.settings.cost_unit))
        row += last
        return row

    def _read(self, row: Floats, situation: Situation) -> None:
        width = self.settings.text
        problem = situation.problem
        row[:width] = hashed_words(f"{problem.category} {problem.text}", width)
        for turn in situation.trajectory.backward():
            if turn.status == "completed" and turn.output.content:
                row[width:] += hashed_words(turn.output.content, width)

    def hinted(self, situations: Sequence[Situation]) -> Floats | None:
        """What the task says of each choice [n, choices, k + 1]; None if it gives no hints.

        The first k numbers are the hints, 0 where it says nothing. The last is the opinion that
        a policy begins with: the first hint, and for a choice of which the task says nothing the
        mean of the others' first hints, so that saying nothing speaks neither for nor against.
        """
        if not self.hints:
            return None
        nothing = (0.0,) * self.hints
        rows = []
        for one in situations:
            hints = (one.observation or UNSEEN).hints
            told = [hints.get(name) for _, name in self._names]
            firsts = [each[0] for each in told if each]
            mean = sum(firsts) / len(firsts) if firsts else 0.0
            rows.append([(*each, each[0]) if each else (*nothing, mean) for each in told])
        try:
            return np.array(rows)
        except ValueError:
            raise RunError(
                f"policy neural: a task must always give equally many hints ({self.hints})"
            ) from None

    def masks(self, situations: Sequence[Situation]) -> list[Mask | None]:
        """Which choices are allowed in each situation [choices]; None where nothing is blocked.

        Not a matter of the others in the batch: equal situations have equal masks.
        """
        blocked = [_blocked(one.observation) for one in situations]
        return [self._mask(names) if names else None for names in blocked]

    def stacked(self, masks: Sequence[Mask | None]) -> Mask | None:
        """Masks as one array [n, choices]; None where nothing is blocked at all."""
        if all(mask is None for mask in masks):
            return None
        free = np.ones(self.count, np.bool_)
        return np.array([free if mask is None else mask for mask in masks])

    def _mask(self, blocked: frozenset[str]) -> Mask:
        found = self._masks.get(blocked)
        if found is None:
            if len(self._masks) >= REMEMBERED:
                self._masks.clear()
            found = np.array([not blocked.intersection(names) for names in self._names])
            # Blocking is of agents: stopping is always possible where it is a choice.
            found[self._stop] = True
            self._masks[blocked] = found
        return found


def _blocked(observation: Observation | None) -> frozenset[str]:
    return frozenset() if observation is None else observation.blocked
