"""Prometheus metrics, from the same records as the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from attrs import frozen
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.registry import Collector

from orchestrion_serve.requests import Log

__all__ = ["CONTENT_TYPE", "Metrics"]

SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counts what the log's records say, and passes them on.

    Labels are models and statuses: nothing of a tenant, and nothing that a client chose.

    Args:
        log: gets each record.
        running: returns the number of episodes in flight.
    """

    def __init__(self, log: Log, running: Callable[[], float]) -> None:
        self._log, self._registry = log, CollectorRegistry()
        self._known: dict[tuple[str, str], list[Any]] = {}
        """Metrics with their labels, by model and status."""
        mine: dict[str, Any] = {"registry": self._registry}
        self._requests = Counter(
            "orchestrion_requests", "Requests, by status.", ["model", "status"], **mine
        )
        self._seconds = Histogram(
            "orchestrion_request_seconds",
            "Seconds of a request, to the end of its answer.",
            ["model"],
            buckets=SECONDS,
            **mine,
        )
        self._tokens = Counter("orchestrion_tokens", "Tokens that were spent.", ["model"], **mine)
        self._usd = Counter("orchestrion_usd", "US dollars that were spent.", ["model"], **mine)
        Gauge("orchestrion_in_flight", "Episodes under way.", **mine).set_function(running)

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Count a request."""
        model, status = record["model"] or "", str(record["status"])
        known = self._known.get((model, status))
        if known is None:  # prometheus_client takes long to look them up
            of_model = (self._seconds, self._tokens, self._usd) if model else ()
            known = [self._requests.labels(model, status), *(m.labels(model) for m in of_model)]
            self._known[model, status] = known
        known[0].inc()
        if model:
            known[1].observe(record["seconds"])
            if record["tokens"]:
                known[2].inc(record["tokens"])
            if record["usd"]:  # not None, where a price is not known
                known[3].inc(record["usd"])
        self._log(record)

    def text(self, models: Collection[str]) -> bytes:
        """Return what is of these models, or of none, in Prometheus' text format."""
        return generate_latest(_OfModels(self._registry, {"", *models}))


@frozen
class _OfModels(Collector):
    registry: CollectorRegistry
    models: Collection[str]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric, without the samples of other models."""
        for metric in self.registry.collect():
            metric.samples = [
                one for one in metric.samples if one.labels.get("model", "") in self.models
            ]
            yield metric
