"""The encoder `history`: the turns themselves, one after another, for a network that reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import log1p
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from attrs import frozen

from orchestrion import Meta, OpenContext, Situation, Turn
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder, places_of

if TYPE_CHECKING:
    import torch

    from orchestrion_encoders.interfaces import Floats


@frozen
class History(Encoder):
    """Shows the last turns in order, and builds the network that reads them.

    Only a policy with a network of its own can use it, such as `neural`. The numbers of a turn
    are: who acted, hashed words of the output, whether it failed, log(1 + cost), and log(1 + its
    decision's distance from now).

    Args:
        reader: what reads the turns: a recurrent network, or a transformer of one layer.
        width: of what it makes of them.
        turns: how many of the last turns it reads.
        who: acting agents by their place in the team, or by words of role and option, so that
            they mean the same in another team.
        words: how many numbers the words of an output become; 0 leaves them out.
    """

    reader: Literal["gru", "transformer"] = "gru"
    width: Annotated[int, Meta(ge=2, multiple_of=2)] = 32
    turns: Annotated[int, Meta(ge=1)] = 32
    who: Literal["place", "role"] = "place"
    words: Annotated[int, Meta(ge=0)] = 16

    sequences: ClassVar[bool] = True

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Encoder]:
        yield _Reading(self, {member.name: member.role for member in ctx.roster})


ROLES = 32
"""How many numbers an agent's role and option become."""


@frozen
class _Reading(Encoder):
    settings: History
    roles: dict[str, str]

    sequences: ClassVar[bool] = True

    @property
    def places(self) -> bool:
        return self.settings.who == "place"

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Return sequences alone: n arrays [turns, u]."""
        import numpy as np

        s = self.settings
        places = places_of(choices)
        first = len(choices) if self.places else ROLES
        width = first + s.words + 3
        sequences = []
        for situation in situations:
            # By activation, so that the order in which parallel turns finish does not matter.
            turns = situation.trajectory.turns[-s.turns :]
            rows = np.zeros((len(turns), width))
            now = turns[-1].decision + 1 if turns else 0
            for row, turn in zip(rows, turns, strict=True):
                self._who(row[:first], turn, places)
                self._what(row[first:], turn, now)
            sequences.append(rows)
        n = len(situations)
        return Encoded(np.zeros((n, 0)), np.zeros((n, len(choices), 0)), turns=tuple(sequences))

    def _who(self, row: Floats, turn: Turn, places: dict[tuple[str, str | None], int]) -> None:
        from orchestrion_encoders.hashing import hashed_words

        if self.places:
            place = places.get((turn.agent, turn.option))
            if place is not None:
                row[place] = 1.0
        else:
            row[:] = hashed_words(f"{self.roles.get(turn.agent, '')} {turn.option or ''}", ROLES)

    def _what(self, row: Floats, turn: Turn, now: int) -> None:
        from orchestrion_encoders.hashing import hashed_words

        words = self.settings.words
        if words and turn.status == "completed" and turn.output.content:
            row[:words] = hashed_words(turn.output.content, words)
        row[words:] = (
            float(turn.status != "completed"),
            log1p(max(0.0, turn.output.usage.cost)),
            log1p(now - turn.decision),
        )

    def network(self, inputs: int, generator: torch.Generator) -> tuple[torch.nn.Module, int]:
        """Return the reader of sequences [n, t, inputs] with `lengths` [n], and its width."""
        from orchestrion_encoders.tensors import reader

        s = self.settings
        return reader(s.reader, inputs, s.width, generator), s.width
