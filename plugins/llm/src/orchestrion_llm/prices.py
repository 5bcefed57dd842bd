"""What tokens cost: a dated table as data, and the arithmetic on it."""

from __future__ import annotations

import math
import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from attrs import frozen

from orchestrion import Meta, Usage

__all__ = ["LongPrice", "Price", "Tokens", "known_price", "usage_of"]

_MILLION = 1_000_000
_SNAPSHOT = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}|latest")
Rate = Annotated[float, Meta(ge=0)]


@frozen
class LongPrice:
    """The rates of a whole request whose input is long.

    Args:
        over: how many input tokens are not yet long.
        input: US dollars per million input tokens.
        output: US dollars per million output tokens.
        cached_input: the same for input read from the vendor's cache; null charges `input`.
        cache_write: the same for input written to it; null charges twice `input`.
    """

    over: Annotated[int, Meta(ge=1)]
    input: Rate
    output: Rate
    cached_input: Rate | None = None
    cache_write: Rate | None = None


@frozen
class Price:
    """What tokens cost.

    Args:
        input: US dollars per million input tokens.
        output: US dollars per million output tokens.
        cached_input: the same for input read from the vendor's cache; null charges `input`.
        cache_write: the same for input written to it; null charges twice `input`.
        long: other rates for requests with a long input.
    """

    input: Rate
    output: Rate
    cached_input: Rate | None = None
    cache_write: Rate | None = None
    long: LongPrice | None = None

    def usd(self, tokens: Tokens) -> float:
        """What a call with these tokens costs."""
        rates: Price | LongPrice = self
        if self.long is not None and tokens.input > self.long.over:
            rates = self.long
        cached = rates.input if rates.cached_input is None else rates.cached_input
        write = 2 * rates.input if rates.cache_write is None else rates.cache_write
        plain = max(0, tokens.input - tokens.cached - tokens.written)
        return (
            plain * rates.input
            + tokens.cached * cached
            + tokens.written * write
            + tokens.output * rates.output
        ) / _MILLION

    def most(self, input_tokens: int, output_tokens: int, writes: bool = False) -> float:
        """The most that a call with at most so many tokens costs.

        Args:
            input_tokens: of the whole prompt.
            output_tokens: of the answer.
            writes: whether the request asks for its input to be written to the vendor's cache;
                where the price names a rate for that, vendors also write without being asked.
        """
        long = self.long if self.long is not None and input_tokens > self.long.over else None
        return (
            max(_dearest(one, writes) for one in (self, long) if one is not None) * input_tokens
            + max(one.output for one in (self, long) if one is not None) * output_tokens
        ) / _MILLION


def _dearest(rates: Price | LongPrice, writes: bool) -> float:
    """The highest rate an input token can have."""
    write = rates.cache_write
    if write is None:
        write = 2 * rates.input if writes else rates.input
    return max(rates.input, write, rates.cached_input or 0.0)


@frozen
class Tokens:
    """What a service says a call took. `cached` and `written` are parts of `input`."""

    input: int
    output: int
    cached: int = 0
    written: int = 0


def usage_of(tokens: Tokens, price: Price | None) -> Usage:
    """A call's tokens as usage; without a price, its US dollars are NaN."""
    usd = math.nan if price is None else price.usd(tokens)
    return Usage(1, tokens.input, tokens.output, usd, 0.0 if price is None else usd)


def known_price(vendor: str, model: str) -> Price | None:
    """The price in the table, of the model itself or of what it is a dated snapshot of."""
    table = _table().get(vendor, {})
    if model in table:
        return table[model]
    for name in sorted(table, key=len, reverse=True):
        rest = model[len(name) + 1 :]
        if model.startswith(f"{name}-") and _SNAPSHOT.fullmatch(rest):
            return table[name]
    return None


@cache
def _table() -> dict[str, dict[str, Price]]:
    text = files("orchestrion_llm").joinpath("prices.toml").read_text(encoding="utf-8")
    return {
        vendor: {model: _price(rates) for model, rates in section["models"].items()}
        for vendor, section in tomllib.loads(text).items()
    }


def _price(rates: dict[str, Any]) -> Price:
    long = rates.pop("long", None)
    return Price(**rates, long=None if long is None else LongPrice(**long))
