"""Meters: what this process counts and times, for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Requests(Collector):
    """Requests by route, method and status, and how long each route takes.

    Counted by the event loop alone, so without locks: the library's own meters take a tenth of what answering
    a question from memory takes.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request is over."""
        key = (route, method, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        timed = self._seconds.get(route)
        if timed is None:
            timed = self._seconds[route] = ([0] * (len(_SECONDS) + 1), [0.0])
        timed[0][bisect_left(_SECONDS, seconds)] += 1
        timed[1][0] += seconds

    def collect(self) -> Iterator[Metric]:
        """What the registry asks for."""
        counts = CounterMetricFamily(
            "gemmtune_http_requests", "Requests answered.", labels=("route", "method", "status")
        )
        for (route, method, status), count in list(self._counts.items()):
            counts.add_metric((route, method, str(status)), count)
        yield counts
        times = HistogramMetricFamily(
            "gemmtune_http_request_seconds", "From a request's arrival to the end of its answer.", labels=("route",)
        )
        edges = [*map(str, _SECONDS), "+Inf"]
        for route, (counted, total) in list(self._seconds.items()):
            buckets = [(edge, float(sum(counted[: place + 1]))) for place, edge in enumerate(edges)]
            times.add_metric((route,), buckets, total[0])
        yield times


class Meters:
    """One service's meters, on a registry of their own: two services in a process don't mix.

    Attributes:
        registry: what `/metrics` shows.
        requests: over HTTP.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Requests()
        self.registry.register(self.requests)
        self._answers = Counter(
            "gemmtune_answers", "Best configs told, by where they came from.", ("source",), registry=self.registry
        )
        self.bests = Gauge("gemmtune_snapshot_bests", "Bests held in memory.", registry=self.registry)
        self.snapshot_age = Gauge(
            "gemmtune_snapshot_age_seconds", "Since the store was last asked for changes.", registry=self.registry
        )
        self._told = self._hits = 0
        share = Gauge("gemmtune_cache_hit_share", "Of the answers told, those from memory.", registry=self.registry)
        share.set_function(lambda: self._hits / self._told if self._told else 0.0)
        self._builds = Counter(
            "gemmtune_builds_asked", "Builds that workers asked for, by whether they were kept.", ("kept",),
            registry=self.registry,
        )  # fmt: skip
        # Looking a child up by its labels costs more than raising it.
        self._answer_children: dict[str, Counter] = {}

    def answered(self, source: str, count: int = 1) -> None:
        """Best configs were told."""
        child = self._answer_children.get(source)
        if child is None:
            child = self._answer_children[source] = self._answers.labels(source)
        child.inc(count)
        self._told += count
        self._hits += count if source == "measured" else 0

    def build_asked(self, kept: bool) -> None:
        """A worker asked for a build."""
        self._builds.labels("yes" if kept else "no").inc()
