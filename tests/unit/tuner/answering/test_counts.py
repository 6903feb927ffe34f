"""Counts in answers."""

from __future__ import annotations

import dataclasses

import pytest

from tests.unit.tuner.answering.test_answers import ASKED, TILES, best_of
from tuner.answering.answers import measured, recorded


@pytest.mark.parametrize(("tried", "said"), [(1, ": 1 candidate tried, every"), (1_200, ": 1,200 candidates tried, ")])
def test_an_answer_counts_one_candidate_as_one(tried: int, said: str) -> None:
    best = dataclasses.replace(best_of(ASKED.shape, TILES[0], 100.0), tried=tried)
    assert said in measured(best).why
    assert said in recorded(best).why
