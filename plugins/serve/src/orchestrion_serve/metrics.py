"""Prometheus metrics, from the same records as the log."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate
from typing import Any

from attrs import define, field, frozen
from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.registry import Collector

from orchestrion_serve.requests import Log

__all__ = ["CONTENT_TYPE", "Metrics"]

SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600)
NAMES = (*map(str, map(float, SECONDS)), "+Inf")


@define
class _Sums:
    """Of one model; the seconds by the place of a request among `SECONDS`."""

    places: list[int] = field(factory=lambda: [0] * len(NAMES))
    seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0


class Metrics:
    """Counts what the log's records say, and passes them on.

    Labels are models and statuses: nothing of a tenant, and nothing that a client chose.

    Args:
        log: gets each record.
        running: returns the number of episodes in flight.
    """

    def __init__(self, log: Log, running: Callable[[], float]) -> None:
        self._log, self.running = log, running
        self.requests: Counter[tuple[str, str]] = Counter()
        """By model and status."""
        self.sums: dict[str, _Sums] = {}
        """By model."""

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Count a request."""
        model = record["model"] or ""
        self.requests[model, str(record["status"])] += 1
        if model:
            if (sums := self.sums.get(model)) is None:
                sums = self.sums[model] = _Sums()
            sums.places[bisect_left(SECONDS, record["seconds"])] += 1
            sums.seconds += record["seconds"]
            sums.tokens += record["tokens"]
            sums.usd += record["usd"] or 0.0  # None, where a price is not known
        self._log(record)

    def text(self, models: Collection[str]) -> bytes:
        """Return what is of these models, or of none, in Prometheus' text format."""
        return generate_latest(_OfModels(self, models))


@frozen
class _OfModels(Collector):
    metrics: Metrics
    models: Collection[str]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric, without the samples of other models."""
        requests = CounterMetricFamily(
            "orchestrion_requests", "Requests, by status.", labels=["model", "status"]
        )
        for (model, status), count in self.metrics.requests.items():
            if not model or model in self.models:
                requests.add_metric([model, status], count)
        seconds = HistogramMetricFamily(
            "orchestrion_request_seconds",
            "Seconds of a request, to the end of its answer.",
            labels=["model"],
        )
        tokens = CounterMetricFamily(
            "orchestrion_tokens", "Tokens that were spent.", labels=["model"]
        )
        usd = CounterMetricFamily(
            "orchestrion_usd", "US dollars that were spent.", labels=["model"]
        )
        for model, sums in self.metrics.sums.items():
            if model in self.models:
                buckets = list(zip(NAMES, accumulate(sums.places), strict=True))
                seconds.add_metric([model], buckets, sums.seconds)
                tokens.add_metric([model], sums.tokens)
                usd.add_metric([model], sums.usd)
        running = self.metrics.running()
        yield from (requests, seconds, tokens, usd)
        yield GaugeMetricFamily("orchestrion_in_flight", "Episodes under way.", value=running)
