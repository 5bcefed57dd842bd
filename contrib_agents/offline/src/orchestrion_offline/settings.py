"""How the stub server behaves: speed, limits and troubles."""

from __future__ import annotations

from math import exp
from statistics import NormalDist
from typing import Annotated, Any, Literal

from attrs import Attribute, field, frozen

from orchestrion import Key, Meta

__all__ = ["FAULTS", "Serving", "Troubles", "shares"]

Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]

FAULTS = (
    "rate_limited",
    "rate_limited_bare",
    "server_error",
    "overloaded",
    "broken_json",
    "dropped",
)


@frozen
class Troubles:
    """How often what goes wrong. A fault hits one attempt; a retry is drawn anew.

    A refusal and a truncation are answers, so they are drawn once for a call and stay.

    Args:
        rate_limited: share of 429 with `Retry-After`.
        rate_limited_bare: share of 429 without it.
        server_error: share of 500 with a page of HTML.
        overloaded: share of 529 (503 for OpenAI's wires).
        broken_json: share of answers that break off in the middle of the JSON, with status 200.
        dropped: share of connections that are closed in the middle of the answer.
        refusal: share of answers that are a refusal.
        truncation: share of answers that end in the middle, as if at `max_tokens`.
        retry_after: what `Retry-After` says, in seconds.
    """

    rate_limited: Share = 0.0
    rate_limited_bare: Share = 0.0
    server_error: Share = 0.0
    overloaded: Share = 0.0
    broken_json: Share = 0.0
    dropped: Share = 0.0
    refusal: Share = 0.0
    truncation: Share = 0.0
    retry_after: Seconds = field(default=1.0)

    @retry_after.validator
    def _check_sums(self, attribute: Attribute[Any], value: float) -> None:
        for names in (FAULTS, ("refusal", "truncation")):
            total = sum(getattr(self, name) for name in names)
            if total > 1 + 1e-9:
                raise ValueError(f"{' + '.join(names)}: got {total:g}, expected at most 1")

    @property
    def any(self) -> bool:
        """Whether an attempt can fail."""
        return any(getattr(self, name) for name in FAULTS)

    def fault(self, draw: Key) -> str:
        """The fault that hits an attempt; "" for none."""
        return _chosen(draw, [(name, getattr(self, name)) for name in FAULTS])

    def ending(self, draw: Key) -> str:
        """How an answer ends before its time: "refusal", "truncation", or "" where it does not."""
        return _chosen(draw, [(name, getattr(self, name)) for name in ("refusal", "truncation")])


def _chosen(draw: Key, shares: list[tuple[str, float]]) -> str:
    left = draw.uniform() if any(share for _, share in shares) else 1.0
    for name, share in shares:
        if left < share:
            return name
        left -= share
    return ""


@frozen
class Serving:
    """How the server behaves.

    Args:
        latency: seconds until an answer begins; the middle of the law.
        spread: how far it varies: for `uniform` the share it may be more or less; for
            `lognormal` the deviation of its logarithm.
        law: how it varies.
        tokens_per_second: how fast an answer is written; 0 is at once.
        requests_per_minute: above that the answer is 429, with what to wait; 0 is no limit.
        api_key: the only key it takes; "" takes any, but not none.
        troubles: what goes wrong, and how often.
        seed: other draws for the same requests.
    """

    latency: Seconds = 0.0
    spread: Seconds = 0.0
    law: Literal["uniform", "lognormal"] = "uniform"
    tokens_per_second: Annotated[float, Meta(ge=0)] = 0.0
    requests_per_minute: Annotated[int, Meta(ge=0)] = 0
    api_key: str = ""
    troubles: Troubles = Troubles()
    seed: int = 0

    def delay(self, draw: Key) -> float:
        """Seconds until an answer begins."""
        if not self.latency or not self.spread:
            return self.latency
        luck = draw.uniform()
        if self.law == "uniform":
            return max(0.0, self.latency * (1 + self.spread * (2 * luck - 1)))
        return self.latency * exp(
            self.spread * NormalDist().inv_cdf(min(max(luck, 1e-9), 1 - 1e-9))
        )


def shares() -> tuple[str, ...]:
    """The names of what can go wrong."""
    return (*FAULTS, "refusal", "truncation")
