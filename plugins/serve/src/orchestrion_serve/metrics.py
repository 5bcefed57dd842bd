"""Prometheus metrics, from the same records as the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from attrs import frozen
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.registry import Collector

from orchestrion_serve.requests import Log

__all__ = ["CONTENT_TYPE", "Metrics"]

SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counts what the log's records say, and passes them on.

    Labels are models and statuses: nothing of a tenant, and nothing that a client chose. `running`
    returns the number of episodes in flight.
    """

    def __init__(self, log: Log, running: Callable[[], float]) -> None:
        self._log = log
        self.registry = registry = CollectorRegistry()
        labels = ["model", "status"]
        self._requests = Counter(
            "orchestrion_requests", "Requests, by status.", labels, registry=registry
        )
        self._seconds = Histogram(
            "orchestrion_request_seconds",
            "Seconds of a request, to the end of its answer.",
            ["model"],
            buckets=SECONDS,
            registry=registry,
        )
        self._tokens = Counter(
            "orchestrion_tokens", "Tokens that were spent.", ["model"], registry=registry
        )
        self._usd = Counter(
            "orchestrion_usd", "US dollars that were spent.", ["model"], registry=registry
        )
        self._cost = Counter(
            "orchestrion_cost",
            "What turns cost, in the agents' own unit.",
            ["model"],
            registry=registry,
        )
        in_flight = Gauge("orchestrion_in_flight", "Episodes under way.", registry=registry)
        in_flight.set_function(running)

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Count a request."""
        model = record["model"] or ""
        self._requests.labels(model, str(record["status"])).inc()
        if model:
            self._seconds.labels(model).observe(record["seconds"])
            self._tokens.labels(model).inc(record["tokens"])
            self._usd.labels(model).inc(record["usd"] or 0.0)  # None, where a price is not known
            self._cost.labels(model).inc(record["cost"] or 0.0)
        self._log(record)

    def text(self, models: Collection[str]) -> bytes:
        """Return what is of these models, or of none, in Prometheus' text format."""
        return generate_latest(_OfModels(self.registry, {*models, ""}))


@frozen
class _OfModels(Collector):
    registry: CollectorRegistry
    models: Collection[str]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric without the samples of other models, and without times of creation."""
        for metric in self.registry.collect():
            metric.samples = [
                sample
                for sample in metric.samples
                if sample.labels.get("model", "") in self.models
                and not sample.name.endswith("_created")
            ]
            yield metric
