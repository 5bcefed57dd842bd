"""Prices of tokens: rates, looked up offline in `genai-prices`, and their arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from attrs import Factory, evolve, field, frozen

from orchestrion import Meta, Usage, is_loopback

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, Provider

_MILLION = 1_000_000
Rate = Annotated[float, Meta(ge=0)]


@frozen
class Rates:
    """What tokens cost.

    Args:
        input: US dollars per million input tokens.
        output: US dollars per million output tokens.
        cached_input: the same for input read from the vendor's cache; null charges `input`.
        cache_write: the same for input written to it; null charges `input`, or twice that where
            the request asks for it.
        cache_write_hour: the same for input written to it for an hour; null charges twice `input`.
    """

    input: Rate
    output: Rate
    cached_input: Rate | None = None
    cache_write: Rate | None = None
    cache_write_hour: Rate | None = None

    @property
    def written_hour(self) -> float:
        """The rate of input that the vendor caches for an hour."""
        return _or(self.cache_write_hour, 2 * self.input)

    def dearest(self, hour: bool) -> float:
        """Return the highest possible rate of an input token; `hour` is as of `Price.most`."""
        written = self.written_hour if hour else 0.0
        return max(self.input, self.cached_input or 0.0, self.cache_write or 0.0, written)

    def halved(self) -> dict[str, Any]:
        """Return half of each rate, by name."""
        known = {name: getattr(self, name) for name in _RATES}
        return {name: None if rate is None else rate / 2 for name, rate in known.items()}


@frozen
class LongPrice(Rates):
    """The rates of requests with a long input.

    Args:
        over: they hold for requests with more input tokens.
    """

    over: Annotated[int, Meta(ge=1)] = field(kw_only=True)


@frozen
class Price(Rates):
    """The price of tokens.

    Args:
        long: the rates of requests with a long input.
        tools: US dollars for one use of the service's own tools, by name.
    """

    long: LongPrice | None = None
    tools: Mapping[str, Rate] = Factory(dict)

    def of_uses(self, uses: Mapping[str, int]) -> float:
        """Return the price of uses of the service's own tools; NaN if one has no price."""
        return math.fsum(self.tools.get(name, math.nan) * count for name, count in uses.items())

    def usd(self, tokens: Tokens) -> float:
        """Return the cost of a call with these tokens."""
        rates: Rates = self
        if self.long is not None and tokens.input > self.long.over:
            rates = self.long
        plain = max(0, tokens.input - tokens.cached - tokens.written)
        return (
            plain * rates.input
            + tokens.cached * _or(rates.cached_input, rates.input)
            + (tokens.written - tokens.written_hour) * _or(rates.cache_write, rates.input)
            + tokens.written_hour * rates.written_hour
            + tokens.output * rates.output
        ) / _MILLION

    def most(self, input_tokens: int, output_tokens: int, hour: bool = False) -> float:
        """Return a bound of the cost of a call.

        Args:
            input_tokens: the maximum of the prompt.
            output_tokens: the maximum of the answer.
            hour: whether the request asks the vendor to cache its input for an hour. Shorter
                writes with a rate of their own may happen unasked.
        """
        rates: list[Rates] = [self]
        if self.long is not None and input_tokens > self.long.over:
            rates.append(self.long)
        return (
            max(each.dearest(hour) for each in rates) * input_tokens
            + max(each.output for each in rates) * output_tokens
        ) / _MILLION

    @property
    def caching_pays(self) -> bool:
        """Whether keeping a prompt has rates of its own, and reading a kept one is cheaper."""
        read, write = self.cached_input, self.cache_write
        return read is not None and write is not None and read < self.input

    def batched(self) -> Price:
        """Return the price of requests in batches: half of it for tokens."""
        long = self.long and evolve(self.long, **self.long.halved())
        return evolve(self, **self.halved(), long=long)

    def writing(self) -> Price:
        """Return the price of requests that ask the vendor to cache their input."""
        long = self.long
        if long is not None:
            long = evolve(long, cache_write=_or(long.cache_write, 2 * long.input))
        return evolve(self, cache_write=_or(self.cache_write, 2 * self.input), long=long)


def _or(rate: float | None, other: float) -> float:
    return other if rate is None else rate


@frozen
class Tokens:
    """The stated usage of a call.

    `cached` and `written` are parts of `input`, and `written_hour` is a part of `written`.
    """

    input: int
    output: int
    cached: int = 0
    written: int = 0
    written_hour: int = 0


def usage_of(tokens: Tokens, price: Price | None, uses: Mapping[str, int] | None = None) -> Usage:
    """Return a call's usage, with `uses` of the service's own tools.

    What has no price is NaN in US dollars and 0 in `cost`.
    """
    usd = math.nan if price is None else price.usd(tokens) + price.of_uses(uses or {})
    return Usage(1, tokens.input, tokens.output, usd, 0.0 if math.isnan(usd) else usd)


CACHE_READ, CACHE_WRITE, CACHE_SAVED = "cache_read_tokens", "cache_write_tokens", "cache_saved_usd"


def billed(tokens: Tokens, price: Price | None) -> dict[str, float]:
    """Return what a bill says beside tokens: those of the vendor's cache, and what that saved."""
    if not tokens.cached and not tokens.written:
        return {}
    counts: dict[str, float] = {CACHE_READ: tokens.cached, CACHE_WRITE: tokens.written}
    if price is not None:
        plain = price.usd(Tokens(tokens.input, tokens.output))
        counts[CACHE_SAVED] = round(plain - price.usd(tokens), 12)
    return counts


# ---------------------------------------------------------------- what vendors charge


def known_price(
    vendor: str,
    model: str,
    base_url: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Price | None:
    """Return the price of a vendor's model or of a snapshot of it; None if it is unknown.

    Args:
        vendor: "anthropic" or "openai".
        model: its name.
        base_url: the address of another seller; some are known.
        extra: fields of the request's body; some have prices of their own (service tier, speed).
    """
    provider = _provider(vendor, base_url)
    known = None if provider is None else provider.find_model(model)
    if known is None:
        return None
    context = {
        name: value
        for name in ("service_tier", "speed")
        if isinstance(value := (extra or {}).get(name), str)
    }
    now = datetime.now(UTC)
    # Some prices change with the hour; the highest of today is a bound.
    hours = [known.get_prices(now.replace(hour=hour), context) for hour in range(24)]
    prices = [price for hour in hours if (price := _price(hour)) is not None]
    price = max(prices, key=lambda price: (price.output, price.input), default=None)
    return price if price is None or base_url else evolve(price, tools=_TOOLS[vendor])


def known_models(vendor: str, base_url: str | None = None) -> list[str]:
    """Return the names of the models with a known price."""
    provider = _provider(vendor, base_url)
    return [] if provider is None else [model.id for model in provider.models]


def _provider(vendor: str, base_url: str | None) -> Provider | None:
    if base_url and is_loopback(urlsplit(base_url).hostname or ""):
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider(None, None if base_url else vendor, base_url)
    except LookupError:
        return None


_TOOLS: Mapping[str, Mapping[str, float]] = {
    # Code is billed by time there: five minutes at least.
    "anthropic": {"web_search": 0.01, "code_execution": 0.05 / 12},
    "openai": {"web_search": 0.01, "code_execution": 0.03},
}
"""US dollars for one use at the vendors' own addresses; `genai-prices` has no such rates."""
_RATES = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached_input": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_hour": "cache_write_1h_mtok",
}


def _price(prices: ModelPrice) -> Price | None:
    """Return the price in our form; None if it is not by input and output tokens."""
    values = {name: getattr(prices, theirs) for name, theirs in _RATES.items()}
    if values["input"] is None or values["output"] is None:
        return None
    # A request beyond a step pays the higher rates for all tokens. Of several steps the first
    # threshold and the last rates are used: an overestimate in between.
    steps = [tier.start for value in values.values() for tier in getattr(value, "tiers", ())]
    base = {name: _rate(value, last=False) for name, value in values.items()}
    if not steps:
        return Price(**base)
    return Price(
        **base, long=LongPrice(over=min(steps), **{n: _rate(v) for n, v in values.items()})
    )


def _rate(value: Any, last: bool = True) -> Any:
    if value is None:
        return None
    tiers = getattr(value, "tiers", None)
    if tiers is None:
        return float(value)
    return float(tiers[-1].price if last and tiers else value.base)
