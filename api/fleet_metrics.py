"""Fleet metrics, read from the store at each scrape, so that all services on one store report the same."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tuner.errors import StoreError
from tuner.evidence.store import Store
from tuner.fleet.campaigns.statistics import FleetStatistics, fleet_statistics

#: However often the service is scraped, it reads the store no more often than this.
_CACHE_SECONDS: Final = 1.0
_ENDED: Final = ("done", "failed", "lost", "withdrawn")
_log = logging.getLogger("gemmtune.api")


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
        yield from _rounds(found)
        yield from _workers(found)
        for name, what, counts in (
            ("gemmtune_campaigns", "Campaigns by status.", found.campaigns),
            ("gemmtune_campaign_problems", "Problems of campaigns by status.", found.problems),
        ):
            gauge = GaugeMetricFamily(name, what, labels=("status",))
            for status, count in sorted(counts.items()):
                gauge.add_metric((status,), count)
            yield gauge

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering the collector must not read the store."""
        return iter(())

    def _statistics(self) -> FleetStatistics:
        with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] > _CACHE_SECONDS:
                self._cached = (time.monotonic(), fleet_statistics(self._store))
            return self._cached[1]


def _rounds(found: FleetStatistics) -> Iterator[Metric]:
    depth = GaugeMetricFamily("gemmtune_queue_depth", "Problems waiting for a worker.", labels=("queue",))
    running = GaugeMetricFamily("gemmtune_rounds_running", "Rounds held by workers.", labels=("queue",))
    ended = CounterMetricFamily("gemmtune_rounds", "Ended rounds by outcome.", labels=("queue", "outcome"))
    for (queue, status), count in sorted(found.rounds.items()):
        if status in _ENDED:
            ended.add_metric((queue, status), count)
    for queue in sorted({queue for queue, _ in found.rounds} | {queue for queue, _ in found.workers}):
        depth.add_metric((queue,), found.rounds.get((queue, "queued"), 0))
        running.add_metric((queue,), found.rounds.get((queue, "running"), 0))
    measured = CounterMetricFamily("gemmtune_candidates_measured", "Candidates measured in rounds.", labels=("queue",))
    rate = GaugeMetricFamily(
        "gemmtune_candidates_per_second", "Candidates per second, over the last five minutes.", labels=("queue",)
    )
    for queue, count in sorted(found.measured.items()):
        measured.add_metric((queue,), count)
        rate.add_metric((queue,), found.candidates_per_second(queue))
    yield from (depth, running, ended, measured, rate)


def _workers(found: FleetStatistics) -> Iterator[Metric]:
    present = GaugeMetricFamily("gemmtune_workers", "Workers by status.", labels=("queue", "status"))
    for (queue, status), count in sorted(found.workers.items()):
        present.add_metric((queue, status), count)
    busy = CounterMetricFamily("gemmtune_gpu_busy_seconds", "GPU time spent in rounds.", labels=("queue",))
    share = GaugeMetricFamily(
        "gemmtune_gpu_busy_share", "Share of workers' time in rounds, over the last five minutes.", labels=("queue",)
    )
    for queue, seconds in sorted(found.busy_seconds.items()):
        busy.add_metric((queue,), seconds)
        share.add_metric((queue,), found.busy_share(queue))
    yield from (present, busy, share)
