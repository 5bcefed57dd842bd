"""Answers of the Embeddings API."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from orchestrion_llm.prices import Tokens
from orchestrion_llm.wire import ErrorBody, MalformedError, credible, decoded, stated


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Vector(msgspec.Struct):
    index: int
    embedding: list[float]


class _Embeddings(msgspec.Struct):
    data: list[_Vector] | None = None
    usage: Any = None
    error: ErrorBody | None = None


def embedded(raw: bytes, count: int) -> tuple[list[list[float]], Tokens | None]:
    """Return the vectors of `count` texts, in order, and the usage if it is stated.

    Raises:
        MalformedError: vectors are missing, of different lengths, or not finite.
        ServiceError: it reports an error.
    """
    body = decoded(raw, _Embeddings)
    if body.error is not None:
        raise body.error.raised()
    rows = sorted(body.data or (), key=lambda row: row.index)
    vectors = [row.embedding for row in rows]
    if [row.index for row in rows] != list(range(count)):
        raise MalformedError(f"{len(rows)} vectors for {count} texts")
    if len({len(vector) for vector in vectors}) > 1 or not all(vectors):
        raise MalformedError("vectors that are empty or of different lengths")
    if not all(math.isfinite(number) for vector in vectors for number in vector):
        raise MalformedError("a vector with numbers that are not finite")
    usage = stated(body.usage, _Usage)
    taken = usage.prompt_tokens if usage is not None else None
    return vectors, credible(Tokens(taken, 0)) if taken else None
