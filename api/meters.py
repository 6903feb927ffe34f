"""Meters: what this process counts and times, for Prometheus."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Meters:
    """One service's meters, on a registry of their own: two services in a process don't mix.

    Attributes:
        registry: what `/metrics` shows.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "gemmtune_http_requests", "Requests answered.", ("route", "method", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "gemmtune_http_request_seconds", "From the first byte of a request to the last of its answer.",
            ("route",), registry=self.registry, buckets=_SECONDS,
        )  # fmt: skip
        self._answers = Counter(
            "gemmtune_answers", "Best configs told, by where they came from.", ("source",), registry=self.registry
        )
        self.bests = Gauge("gemmtune_snapshot_bests", "Bests held in memory.", registry=self.registry)
        self.snapshot_age = Gauge(
            "gemmtune_snapshot_age_seconds", "Since the store was last asked for changes.", registry=self.registry
        )
        # Looking a child up by its labels costs more than raising it.
        self._request_children: dict[tuple[str, str, int], Counter] = {}
        self._seconds_children: dict[str, Histogram] = {}
        self._answer_children: dict[str, Counter] = {}

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request is over."""
        key = (route, method, status)
        child = self._request_children.get(key)
        if child is None:
            child = self._request_children[key] = self._requests.labels(route, method, str(status))
            self._seconds_children.setdefault(route, self._seconds.labels(route))
        child.inc()
        self._seconds_children[route].observe(seconds)

    def answered(self, source: str, count: int = 1) -> None:
        """Best configs were told."""
        child = self._answer_children.get(source)
        if child is None:
            child = self._answer_children[source] = self._answers.labels(source)
        child.inc(count)
