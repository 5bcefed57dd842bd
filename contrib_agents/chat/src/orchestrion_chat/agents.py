"""What the agents `chat` and `router` share: preparation, requests and bounds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from attrs import frozen

from orchestrion import (
    JSON,
    Agent,
    Model,
    OpenContext,
    Usage,
    UsageError,
    ceiling_of,
    replace,
    supports,
)
from orchestrion_chat.forms import Form
from orchestrion_chat.sees import LABEL_TOKENS

Structured = Literal["auto", "model", "prompt"]


@frozen
class Prepared:
    """Settings of an agent; a config whose settings `ready` refuses is refused when it is read."""

    def ready(self) -> Agent:
        """Return the agent, for teams that are built in Python.

        Raises:
            UsageError: settings contradict each other.
        """
        raise NotImplementedError

    def __attrs_post_init__(self) -> None:
        try:
            self.ready()
        except UsageError as error:
            raise ValueError(str(error)) from None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Yield the agent."""
        yield self.ready()


def activation(
    model: Model,
    tokens: int,
    completions: int,
    max_tokens: int | None,
    between: int = 0,
    tool_calls: int = 0,
) -> Usage | None:
    """Return a bound of one activation; None if the model gives none.

    Args:
        model: the model that is asked.
        tokens: of the first request.
        completions: number of requests.
        max_tokens: of each answer; None for the model's own limit.
        between: tokens that each request adds to the request before and its answer.
        tool_calls: number of tool calls.
    """
    total = Usage(calls=tool_calls)
    longest = 0
    for _ in range(completions):
        bound = _completion(model, tokens, max_tokens)
        if bound is None:
            return None
        longest = bound.output_tokens
        total = total + bound
        tokens += longest + between
    # Others read only the last answer, with its label.
    return replace(total, output_tokens=max(total.output_tokens, longest + LABEL_TOKENS))


def _completion(model: Model, tokens: int, max_tokens: int | None) -> Usage | None:
    ceiling = ceiling_of(model, tokens)
    if ceiling is None or max_tokens is None or not ceiling.calls:
        return ceiling
    # The answer's part of the price is unknown: a longer answer costs at most in proportion, and a
    # shorter one at most as much as before.
    more = max(1.0, max_tokens / ceiling.output_tokens) if ceiling.output_tokens else math.inf
    usd = ceiling.usd * more if ceiling.usd else 0.0
    cost = ceiling.cost * more if ceiling.cost else 0.0
    return replace(ceiling, output_tokens=max_tokens, usd=usd, cost=cost)


def in_words(structured: Structured, model: Model) -> bool:
    """Return whether the model gets the form of its answer in words.

    Raises:
        UsageError: `structured: model` is set for a model that cannot be held to a schema.
    """
    if supports(model, "schema"):
        return structured == "prompt"
    if structured == "model":
        raise UsageError(
            "structured: this model cannot be held to a schema; leave `structured` out, and it is "
            "told the form of its answer in words"
        )
    return True


def sampling(
    temperature: float | None, max_tokens: int | None, form: Form | None
) -> dict[str, JSON]:
    """Return the fields of requests that are set; the others are left to the model."""
    schema = None if form is None else dict(form.schema)
    fields = {"temperature": temperature, "max_tokens": max_tokens, "schema": schema}
    return {name: value for name, value in fields.items() if value is not None}
