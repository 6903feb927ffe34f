"""What the metrics make of what they count."""

from __future__ import annotations

from api.metrics import AnswerMetrics, Metrics


def test_the_cache_hit_share_is_of_answers_from_memory() -> None:
    metrics = AnswerMetrics()
    assert metrics.hit_share() == 0.0
    # After an upgrade every best is stale, and still in memory. What a batch had no time for is no answer.
    for source, count in (("measured", 1), ("stale", 2), ("predicted", 1), ("unanswered", 6)):
        metrics.count(source, count)
    assert metrics.hit_share() == 0.75


def test_a_service_shows_it() -> None:
    metrics = Metrics()
    metrics.answered("stale")
    assert metrics.registry.get_sample_value("gemmtune_cache_hit_share") == 1.0
