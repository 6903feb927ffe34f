"""Prometheus metrics of this process."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tuner.answering.answers import Source

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class RequestMetrics(Collector):
    """Request counts by route, method and status, and a latency histogram per route.

    Any thread may count. prometheus_client's own counters would add a tenth to the cost of an answer from memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts a finished request."""
        key, bucket = (route, method, status), bisect_left(_SECONDS, seconds)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            timed = self._seconds.get(route)
            if timed is None:
                timed = self._seconds[route] = ([0] * (len(_SECONDS) + 1), [0.0])
            timed[0][bucket] += 1
            timed[1][0] += seconds

    def collect(self) -> Iterator[Metric]:
        """The metrics, for the registry."""
        counts = CounterMetricFamily(
            "gemmtune_http_requests", "Requests answered.", labels=("route", "method", "status")
        )
        for (route, method, status), count in list(self._counts.items()):
            counts.add_metric((route, method, str(status)), count)
        yield counts
        times = HistogramMetricFamily(
            "gemmtune_http_request_seconds", "From a request's arrival to the end of its response.", labels=("route",)
        )
        edges = [*map(str, _SECONDS), "+Inf"]
        for route, (counts_by_bucket, total) in list(self._seconds.items()):
            buckets = [(edge, float(sum(counts_by_bucket[: place + 1]))) for place, edge in enumerate(edges)]
            times.add_metric((route,), buckets, total[0])
        yield times


class AnswerMetrics(Collector):
    """Answers by source; kept here for the same reason as `RequestMetrics`. Threads count, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys((*get_args(Source), "unanswered"), 0)

    def count(self, source: str, count: int) -> None:
        with self._lock:
            self._counts[source] += count

    def hit_share(self) -> float:
        """Share of the answers that memory holds: of problems that were measured, with whatever kernels."""
        answered = sum(self._counts.values()) - self._counts["unanswered"]
        return (self._counts["measured"] + self._counts["stale"]) / answered if answered else 0.0

    def collect(self) -> Iterator[Metric]:
        """The metric, for the registry."""
        counts = CounterMetricFamily("gemmtune_answers", "Answers by source.", labels=("source",))
        for source, count in self._counts.items():
            counts.add_metric((source,), count)
        yield counts


class Metrics:
    """One service's metrics, on a registry of their own, so that two services in one process don't mix.

    Attributes:
        registry: everything that `/metrics` exposes.
        requests: metrics of HTTP requests.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = RequestMetrics()
        self.registry.register(self.requests)
        self._answers = AnswerMetrics()
        self.registry.register(self._answers)
        self.bests = Gauge("gemmtune_snapshot_bests", "Bests in memory.", registry=self.registry)
        self.snapshot_age = Gauge(
            "gemmtune_snapshot_age_seconds", "Time since the last successful poll of the store.", registry=self.registry
        )
        share = Gauge("gemmtune_cache_hit_share", "Share of answers that came from memory.", registry=self.registry)
        share.set_function(self._answers.hit_share)
        self._builds = Counter(
            "gemmtune_builds_asked", "Builds that workers requested, by whether they were stored.", ("kept",),
            registry=self.registry,
        )  # fmt: skip

    def answered(self, source: str, count: int = 1) -> None:
        self._answers.count(source, count)

    def build_asked(self, kept: bool) -> None:
        """Counts a worker's request for a build."""
        self._builds.labels("yes" if kept else "no").inc()
