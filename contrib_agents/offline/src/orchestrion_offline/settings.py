"""Set the speed, limits and troubles of the server.

This is a module of its own so that a config loads without asyncio.
"""

from __future__ import annotations

from math import exp
from statistics import NormalDist
from typing import Annotated, Any, Literal

from attrs import Attribute, field, frozen

from orchestrion import Key, Meta

Share = Annotated[float, Meta(ge=0, le=1)]
NonNegative = Annotated[float, Meta(ge=0)]

FAULTS = (
    "rate_limited",
    "rate_limited_bare",
    "server_error",
    "overloaded",
    "broken_json",
    "dropped",
)
_ENDINGS = ("refusal", "truncation")
TROUBLES = (*FAULTS, *_ENDINGS)
"""The names of the shares of `Troubles`."""


@frozen
class Troubles:
    """Set how often something goes wrong.

    A fault hits one attempt; a retry draws again. A refusal and a truncation are answers, so they
    are drawn once for a call and stay.

    Args:
        rate_limited: share of 429 with `Retry-After`.
        rate_limited_bare: share of 429 without it.
        server_error: share of 500 with a page of HTML.
        overloaded: share of 529 (503 for OpenAI's formats).
        broken_json: share of answers that end in the middle of the JSON, with status 200.
        dropped: share of connections that are closed in the middle of the answer.
        refusal: share of answers that are a refusal.
        truncation: share of answers that end in the middle, as if at `max_tokens`.
        retry_after: the value of `Retry-After`, in seconds.
    """

    rate_limited: Share = 0.0
    rate_limited_bare: Share = 0.0
    server_error: Share = 0.0
    overloaded: Share = 0.0
    broken_json: Share = 0.0
    dropped: Share = 0.0
    refusal: Share = 0.0
    truncation: Share = 0.0
    retry_after: NonNegative = field(default=1.0)

    @retry_after.validator
    def _check_sums(self, attribute: Attribute[Any], value: float) -> None:
        for names in (FAULTS, _ENDINGS):
            total = sum(getattr(self, name) for name in names)
            if total > 1 + 1e-9:
                raise ValueError(f"{' + '.join(names)}: got {total:g}, expected at most 1")

    def fault(self, draw: Key) -> str:
        """Return the fault that hits an attempt; "" for none."""
        return self._draw(FAULTS, draw)

    def ending(self, draw: Key) -> str:
        """Return "refusal" or "truncation" for an answer that is one; else ""."""
        return self._draw(_ENDINGS, draw)

    def _draw(self, names: tuple[str, ...], draw: Key) -> str:
        shares = [getattr(self, name) for name in names]
        left = draw.uniform() if any(shares) else 1.0
        for name, share in zip(names, shares, strict=True):
            if left < share:
                return name
            left -= share
        return ""


@frozen
class Serving:
    """Set the speed, the limits and the troubles of the server.

    Args:
        latency: median of the seconds until an answer begins.
        spread: for `uniform` the largest deviation, as a share of the latency; for `lognormal` the
            standard deviation of its logarithm.
        law: distribution of the latency.
        tokens_per_second: writing speed of an answer; 0 sends it at once.
        requests_per_minute: requests above it get 429 with the time to wait; 0 is no limit.
        api_key: the only accepted key; "" accepts every key, but a key is required.
        troubles: what goes wrong, and how often.
        seed: another seed gives other draws for the same requests.
    """

    latency: NonNegative = 0.0
    spread: NonNegative = 0.0
    law: Literal["uniform", "lognormal"] = "uniform"
    tokens_per_second: NonNegative = 0.0
    requests_per_minute: Annotated[int, Meta(ge=0)] = 0
    api_key: str = ""
    troubles: Troubles = Troubles()
    seed: int = 0

    def delay(self, draw: Key) -> float:
        """Return the seconds until an answer begins."""
        if not self.latency or not self.spread:
            return self.latency
        u = draw.uniform()
        if self.law == "uniform":
            return max(0.0, self.latency * (1 + self.spread * (2 * u - 1)))
        normal = NormalDist().inv_cdf(min(max(u, 1e-9), 1 - 1e-9))
        return self.latency * exp(self.spread * normal)
