"""The encoder `text`: the words of the problem and of what was said so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from attrs import frozen

from orchestrion import Meta, Situation
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder


@frozen
class Text(Encoder):
    """Shows texts as signed hashed runs of words, of length 1 each.

    Args:
        problem: how many numbers the problem's category and text become; 0 leaves them out.
        turns: how many numbers the completed turns become, added up; 0 leaves them out.
        ngrams: the longest runs of words.
    """

    problem: Annotated[int, Meta(ge=0)] = 256
    turns: Annotated[int, Meta(ge=0)] = 64
    ngrams: Annotated[int, Meta(ge=1, le=5)] = 2

    unique: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        if not (self.problem or self.turns):
            raise ValueError(
                "text: shows nothing with `problem: 0` and `turns: 0`; give a number to one"
            )

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Return context alone [n, problem + turns]."""
        import numpy as np

        from orchestrion_encoders.hashing import hashed_words

        rows = np.zeros((len(situations), self.problem + self.turns))
        for row, situation in zip(rows, situations, strict=True):
            shown = situation.problem
            if self.problem:
                text = f"{shown.category} {shown.text}"
                row[: self.problem] = hashed_words(text, self.problem, self.ngrams)
            if self.turns:
                for turn in situation.trajectory.backward():
                    if turn.status == "completed" and turn.output.content:
                        row[self.problem :] += hashed_words(
                            turn.output.content, self.turns, self.ngrams
                        )
        return Encoded(rows, np.zeros((len(rows), len(choices), 0)))
