"""The search on the recorded H200: a subset of `python -m benchmarks.search`, as a test that can fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import optuna
import pytest

from benchmarks.search.replay import Replay, read_replays
from benchmarks.search.report import Curves
from benchmarks.search.setting import Setting
from benchmarks.search.strategies import STRATEGIES, guided, ranked
from tests.support import FAMILY

RECORDINGS = Path(__file__).resolve().parents[3] / "recorded" / "h200"
MOST = 40
ASKED = 12


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with pytest.MonkeyPatch.context() as patch:
        # A judgement from fewer folds is coarser, and takes a fifth of the time.
        patch.setattr("tuner.prediction.judge.MOST_FOLDS", 2)
        yield Setting(read_replays([RECORDINGS], FAMILY), FAMILY, model_seeds=1, trees=16)


def without_asked(_: Replay, others: Sequence[Replay]) -> tuple[int, ...]:
    """All but those of the problems asked about, so that one model has seen none of them."""
    asked = {replay.problem for replay in others[:ASKED]}
    return tuple(place for place, other in enumerate(others) if other.problem not in asked)


HELD_OUT = {"guided": guided(without_asked), "learned order": ranked(without_asked)}


def curves(name: str, setting: Setting, replays: list[Replay], seeds: int = 1) -> Curves:
    strategy = HELD_OUT.get(name) or STRATEGIES[name]
    orders = [(replay, strategy(replay, setting, seed, MOST)) for replay in replays for seed in range(seeds)]
    for _, order in orders:
        assert len(set(order)) == len(order), "a candidate was measured twice"
    return Curves(np.array([replay.shares(order, MOST) for replay, order in orders]))


@pytest.mark.slow
def test_sixteen_measurements_find_the_best_of_problems_that_were_never_seen(setting: Setting) -> None:
    asked = list(setting.replays)[:ASKED]
    ours = curves("guided", setting, asked)
    assert ours.mean[15] >= 0.95
    # Of twelve problems the 5th percentile is about the worst one.
    assert ours.low[15] >= 0.85
    assert ours.mean[39] >= 0.98


def test_the_prediction_alone_beats_chance(setting: Setting) -> None:
    asked = list(setting.replays)[:ASKED]
    predicted, chance = curves("learned order", setting, asked), curves("random", setting, asked, seeds=3)
    assert predicted.mean[0] >= 0.88
    assert predicted.mean[0] > chance.mean[0]


def test_without_transfer_it_still_needs_fewer_measurements_than_chance(setting: Setting) -> None:
    asked = list(setting.replays)[:4]
    alone, chance = curves("guided, analytic", setting, asked), curves("random", setting, asked, seeds=3)
    assert alone.mean[15] > chance.mean[15]
    assert alone.to_within.mean() < chance.to_within.mean()
