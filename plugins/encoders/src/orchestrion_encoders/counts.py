"""The encoder `counts`: what the task shows, and what was done so far."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log1p
from typing import Annotated

from attrs import frozen

from orchestrion import Meta, Observation, RunError, Situation, refuse_idle
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder, places_of

UNSEEN = Observation()


@frozen
class Counts(Encoder):
    """Shows the task's features and progress, and how often each choice was made.

    Args:
        observation: the features and the progress that the task shows.
        history: log(1 + .) of how often each choice was made, of the number of turns and of their
            cost; the last choice as one of k; and whether it failed.
        cost_unit: what the cost is divided by.
    """

    observation: bool = True
    history: bool = True
    cost_unit: Annotated[float, Meta(gt=0)] = 1.0

    def __attrs_post_init__(self) -> None:
        if not self.history:
            refuse_idle(self, ("cost_unit",), "with `history: false`")

    @property
    def observes(self) -> bool:
        return not self.history

    @property
    def places(self) -> bool:
        return self.history

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Return context alone [n, w]; choices have no numbers of their own."""
        import numpy as np

        places, rows = places_of(choices), []
        for situation in situations:
            row: list[float] = []
            if self.observation:
                shown = situation.observation or UNSEEN
                row += [*shown.features, shown.progress or 0.0]
            if self.history:
                row += self._history(situation, places, len(choices))
            rows.append(row)
        if len({len(row) for row in rows}) > 1:
            widths = sorted({len(s.observation.features) for s in situations if s.observation})
            raise RunError(
                f"encoder counts: the task shows {' and '.join(map(str, widths))} features; a task "
                "must always show equally many"
            )
        context = np.array(rows, np.float64).reshape(len(rows), -1)
        if not isfinite(context.sum()):
            raise RunError(
                "encoder counts: the task's features or a turn's cost are not finite numbers"
            )
        return Encoded(context, np.zeros((len(rows), len(choices), 0)))

    def _history(
        self, situation: Situation, places: dict[tuple[str, str | None], int], count: int
    ) -> list[float]:
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
        numbers = [*times, turns, max(0.0, cost) / self.cost_unit]
        return [*(log1p(number) for number in numbers), *last]
