"""What an activation takes at most, for a dry run."""

from __future__ import annotations

import math

from attrs import evolve

from orchestrion import Model, Usage, ceiling_of
from orchestrion_chat.sees import LABEL_TOKENS

__all__ = ["activation"]


def activation(
    model: Model,
    tokens: int,
    completions: int,
    max_tokens: int | None,
    between: int = 0,
    tool_calls: int = 0,
) -> Usage | None:
    """The most that an activation takes; None if the model does not say what it takes.

    Args:
        model: who is asked.
        tokens: the most that the first request has.
        completions: how often the model is asked.
        max_tokens: the most of each answer, if it is not the model's own.
        between: what a request has besides what the one before it had, and its answer.
        tool_calls: how many calls of tools there can be.
    """
    total = Usage(calls=tool_calls)
    longest = 0
    for _ in range(completions):
        one = _completion(model, tokens, max_tokens)
        if one is None:
            return None
        longest = one.output_tokens
        total = total + one
        tokens += longest + between
    # Of the answers only the last is read by others; what comes with it is its label.
    return evolve(total, output_tokens=max(total.output_tokens, longest + LABEL_TOKENS))


def _completion(model: Model, tokens: int, max_tokens: int | None) -> Usage | None:
    one = ceiling_of(model, tokens)
    if one is None or max_tokens is None or not one.calls:
        return one
    # Nobody says which part of the price is the answer's: a longer one cannot cost more than in
    # proportion, and a shorter one not more than before.
    more = max(1.0, max_tokens / one.output_tokens) if one.output_tokens else math.inf
    usd = one.usd * more if one.usd else 0.0
    cost = one.cost * more if one.cost else 0.0
    return evolve(one, output_tokens=max_tokens, usd=usd, cost=cost)
