"""The encoder `embedding`: texts as a model embeds them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import frozen

from orchestrion import (
    Calls,
    Model,
    OpenContext,
    RunError,
    Situation,
    Usage,
    UsageError,
    ceiling_of,
    supports,
)
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder

if TYPE_CHECKING:
    from orchestrion_encoders.interfaces import Floats

NOTHING = "(nothing)"
"""What is embedded in place of an empty text."""


@frozen
class Embedding(Encoder):
    """Shows texts as vectors that a model makes of them, scaled to length 1.

    The model is asked through the call path before a decision is taken: limited, budgeted,
    journaled. What it embedded once is taken from the cache, in this run and where `run.cache`
    names one that runs share.

    Args:
        model: can embed: `openai` and compatible servers, or `hf`.
        problem: embed the problem's text.
        latest: embed what the latest completed turn says.
    """

    model: Model
    problem: bool = True
    latest: bool = False

    def __attrs_post_init__(self) -> None:
        if not self.problem and not self.latest:
            raise ValueError("embedding: give problem: true, latest: true, or both")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Encoder]:
        """Yield the encoder at work.

        Raises:
            UsageError: the model has no `embed`.
        """
        can = getattr(type(self.model), "embed", Model.embed) is not Model.embed
        if not can or not supports(self.model, "embed"):
            raise UsageError(f"{ctx.path}: the model {ctx.names['model'][0]} cannot embed texts")
        yield _Embedded(self)


class _Embedded(Encoder):
    name = "embedding"

    def __init__(self, settings: Embedding) -> None:
        self._settings = settings
        self._vectors: dict[str, Floats] = {}
        self._width = 0

    @property
    def prepares(self) -> bool:
        return True

    def _texts(self, situation: Situation) -> list[str]:
        texts = [situation.problem.text] if self._settings.problem else []
        if self._settings.latest:
            turns = situation.trajectory.backward()
            contents = (turn.output.content for turn in turns if turn.status == "completed")
            texts.append(next(contents, ""))
        # Services refuse empty texts.
        return [text or NOTHING for text in texts]

    async def prepare(self, situation: Situation, calls: Calls) -> None:
        import numpy as np

        for text in self._texts(situation):
            # Asked each time, so that a replay finds the call; the call path has the answer.
            answer = await self._settings.model.embed([text], calls)
            [vector] = np.array(answer.data["vectors"], np.float64)
            if largest := np.abs(vector).max():
                vector = vector / largest  # squares of very large or small numbers are no numbers
                vector = vector / np.sqrt(vector @ vector)
            self._vectors[text] = vector
            if self._width not in (0, len(vector)):
                raise RunError(
                    f"encoder embedding: the model gave a vector of {len(vector)} numbers after "
                    f"one of {self._width}"
                )
            self._width = len(vector)

    def ceiling(self, tokens: int) -> Usage | None:
        """Return the most that embedding both texts takes; each is at most all there is to read."""
        embed = getattr(self._settings.model, "embedding_ceiling", None)
        usage = ceiling_of(self._settings.model, tokens) if embed is None else embed(tokens)
        return None if usage is None else usage + usage

    def encode(self, situations: Sequence[Situation], choices: Sequence[Choice]) -> Encoded:
        """Return context alone [n, texts x width]."""
        import numpy as np

        rows = []
        for situation in situations:
            texts = self._texts(situation)
            missing = [text for text in texts if text not in self._vectors]
            if missing:
                raise RunError(f"encoder embedding: {missing[0][:60]!r} was not embedded before")
            rows.append(np.concatenate([self._vectors[text] for text in texts]))
        return Encoded(np.array(rows), np.zeros((len(rows), len(choices), 0)))
