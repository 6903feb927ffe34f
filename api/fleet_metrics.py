"""Fleet metrics, read from the store at each scrape, so that all services on one store report the same."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tuner.errors import StoreError
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import ProblemStatus
from tuner.fleet.campaigns.statistics import FleetStatistics, fleet_statistics

#: However often the service is scraped, it reads the store no more often than this.
_CACHE_SECONDS: Final = 1.0
_ENDED: Final = ("done", "failed", "lost", "withdrawn")
_log = logging.getLogger("gemmtune.api")
#: Numbers by the values of their labels.
_Samples = Mapping[str, float] | Mapping[tuple[str, str], float]


class FleetMetrics(Collector):
    """Rounds, workers, campaigns and GPU time of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._cached: tuple[float, FleetStatistics] | None = None

    def collect(self) -> Iterator[Metric]:
        """The metrics; none while the store can't be read, which `/readyz` reports."""
        try:
            found = self._statistics()
        except StoreError as error:
            _log.error("fleet metrics: %s", error)
            return
        queues = {queue for queue, _ in [*found.rounds, *found.workers]}
        depth = {queue: found.rounds.get((queue, "queued"), 0) for queue in queues}
        running = {queue: found.rounds.get((queue, "running"), 0) for queue in queues}
        # With zeros: Prometheus sees no increase in a series that begins with its first event.
        ended = {(queue, outcome): found.rounds.get((queue, outcome), 0) for queue in queues for outcome in _ENDED}
        problems = {status.value: found.problems.get(status, 0) for status in ProblemStatus}
        rate = {queue: found.candidates_per_second(queue) for queue in found.measured}
        share = {queue: found.busy_share(queue) for queue in queues}
        yield _gauge("queue_depth", "Problems waiting for a worker.", depth)
        yield _gauge("rounds_running", "Rounds held by workers.", running)
        yield _counter("rounds", "Ended rounds by outcome.", ended, ("queue", "outcome"))
        yield _counter("candidates_measured", "Candidates measured in rounds.", found.measured)
        yield _gauge("candidates_per_second", "Candidates per second, over the last five minutes.", rate)
        yield _gauge("workers", "Workers by status.", found.workers, ("queue", "status"))
        yield _counter("gpu_busy_seconds", "GPU time spent in rounds.", found.busy_seconds)
        yield _gauge("gpu_busy_share", "Share of workers' time in rounds, over the last five minutes.", share)
        yield _gauge("campaigns", "Campaigns by status.", found.campaigns, ("status",))
        yield _gauge("campaign_problems", "Problems of campaigns by status.", problems, ("status",))

    def describe(self) -> Iterator[Metric]:
        """Returns nothing: registering the collector must not read the store."""
        return iter(())

    def _statistics(self) -> FleetStatistics:
        with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] > _CACHE_SECONDS:
                self._cached = (time.monotonic(), fleet_statistics(self._store))
            return self._cached[1]


def _gauge(name: str, what: str, samples: _Samples, labels: Sequence[str] = ("queue",)) -> Metric:
    return _filled(GaugeMetricFamily(f"gemmtune_{name}", what, labels=labels), samples)


def _counter(name: str, what: str, samples: _Samples, labels: Sequence[str] = ("queue",)) -> Metric:
    return _filled(CounterMetricFamily(f"gemmtune_{name}", what, labels=labels), samples)


def _filled(metric: GaugeMetricFamily | CounterMetricFamily, samples: _Samples) -> Metric:
    for values, number in sorted(samples.items()):
        metric.add_metric((values,) if isinstance(values, str) else values, number)
    return metric
