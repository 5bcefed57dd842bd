"""What a run of a foreign agent takes: its reservation before, its usage after."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

from attrs import frozen
from orchestrion_llm import Price, Tokens, known_price

from orchestrion import Meta, Usage

__all__ = ["ModelRequests", "Reserve", "Tokens", "reserved", "used"]

Count = Annotated[int, Meta(ge=0)]


@frozen
class Reserve:
    """The most that one run of a foreign agent takes, with all its requests to models.

    Args:
        calls: requests to models.
        input_tokens: of all requests together.
        output_tokens: of all answers together.
        usd: US dollars; null takes them from `price`, and without one they are not known, which a
            budget in US dollars refuses.
    """

    calls: Count = 4
    input_tokens: Count = 16_000
    output_tokens: Count = 4_000
    usd: Annotated[float, Meta(ge=0)] | None = None


@frozen
class ModelRequests:
    """One or several requests to a model, as a framework tells of them.

    Args:
        tokens: what they took; None if the framework does not tell.
        calls: how many requests.
        vendor: who sells the model, if the framework tells.
        model: its name, if the framework tells.
        usd: what they cost by the framework, if it tells.
    """

    tokens: Tokens | None
    calls: int = 1
    vendor: str = ""
    model: str = ""
    usd: float | None = None


def reserved(reserve: Reserve, price: Price | None) -> Usage:
    """Return the reservation; its US dollars are NaN if they are not known."""
    usd = reserve.usd
    if usd is None:
        usd = math.nan
        if price is not None:
            usd = price.most(reserve.input_tokens, reserve.output_tokens)
    cost = 0.0 if math.isnan(usd) else usd
    return Usage(reserve.calls, reserve.input_tokens, reserve.output_tokens, usd, cost)


def used(log: Iterable[ModelRequests], price: Price | None, reserve: Usage) -> tuple[Usage, bool]:
    """Return what requests took, and whether a part of that is estimated.

    A given price comes before what the framework says they cost, and that before the known price
    of the model; without any of them the US dollars are NaN. Where the framework did not tell what
    a request took, all of them together count as at least the reservation.
    """
    total, estimated = Usage(), False
    for request in log:
        usd = 0.0
        if request.tokens is None:
            estimated = True
        elif (rate := _usd(request, request.tokens, price)) is None:
            usd = math.nan
        else:
            usd = rate
        tokens = request.tokens or Tokens(0, 0)
        cost = 0.0 if math.isnan(usd) else usd
        total = total + Usage(request.calls, tokens.input, tokens.output, usd, cost)
    if not estimated:
        return total, False
    usd = math.nan if math.isnan(total.usd + reserve.usd) else max(total.usd, reserve.usd)
    return Usage(
        max(total.calls, reserve.calls),
        max(total.input_tokens, reserve.input_tokens),
        max(total.output_tokens, reserve.output_tokens),
        usd,
        max(total.cost, reserve.cost),
    ), True


def _usd(request: ModelRequests, tokens: Tokens, price: Price | None) -> float | None:
    if price is None and request.usd is not None:
        return request.usd
    if price is None and request.vendor and request.model:
        price = known_price(request.vendor, request.model)
    return None if price is None else price.usd(tokens)
