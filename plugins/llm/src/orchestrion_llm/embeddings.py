"""The Embeddings API on the wire, as OpenAI and compatible servers speak it."""

from __future__ import annotations

import math

import msgspec

from orchestrion_llm import wire
from orchestrion_llm.prices import Tokens

__all__ = ["embedded"]


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Body(msgspec.Struct):
    data: list[_Row] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: wire.ErrorBody | None = None


def embedded(raw: bytes, count: int) -> tuple[list[list[float]], Tokens | None]:
    """The vectors of `count` texts, in their order, and what that took if the service says.

    Raises:
        MalformedError: texts without a vector, vectors of different lengths, or no finite numbers.
        ServiceError: it reports an error.
    """
    body = wire.decoded(raw, _Body)
    if body.error is not None:
        raise body.error.raised()
    rows = sorted(body.data or (), key=lambda row: row.index)
    vectors = [row.embedding for row in rows]
    if [row.index for row in rows] != list(range(count)):
        raise wire.MalformedError(f"{len(rows)} vectors for {count} texts")
    if len({len(vector) for vector in vectors}) > 1 or not all(vectors):
        raise wire.MalformedError("vectors that are empty or of different lengths")
    if not all(math.isfinite(number) for vector in vectors for number in vector):
        raise wire.MalformedError("a vector with numbers that are not finite")
    usage = wire.stated(msgspec.json.decode(body.usage), _Usage)
    taken = usage.prompt_tokens if usage is not None else None
    return vectors, wire.credible(Tokens(taken, 0)) if taken else None
