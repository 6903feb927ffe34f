"""The nearest of many problems: the same as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.kinds.gemm import Gemm
from tuner.evidence.similarity import Places, octaves, reaches

_EXTENTS = st.integers(1, 1 << 17)
_PROBLEMS = st.builds(lambda m, n, k, batch: Gemm.of(m, n, k, batch=batch), _EXTENTS, _EXTENTS, _EXTENTS,
                      st.integers(1, 64))  # fmt: skip


@given(_PROBLEMS, st.lists(_PROBLEMS, min_size=1, max_size=20))
def test_the_nearest_of_many_is_the_nearest_one_by_one(problem: Gemm, others: list[Gemm]) -> None:
    nearest, away = Places(others).nearest(problem)
    assert away == pytest.approx(octaves(problem, nearest), abs=1e-8)
    assert away == pytest.approx(min(octaves(problem, other) for other in others), abs=1e-8)


@pytest.mark.parametrize(
    ("other", "near"),
    [
        (Gemm.of(8, 512, 64), True),
        (Gemm.of(7, 512, 64), False),
        (Gemm.of(8, 513, 64), False),
        (Gemm.of(64, 64, 64, batch=2), False),
    ],
)
def test_a_winner_is_tried_within_a_factor_of_eight_and_in_its_own_batch(other: Gemm, near: bool) -> None:
    assert reaches(Gemm.of(64, 64, 64), other) is near


def test_of_equals_the_first_is_the_nearest() -> None:
    twins = [Gemm.of(64, 128, 64), Gemm.of(128, 64, 64), Gemm.of(64, 64, 128)]
    assert Places(twins).nearest(Gemm.of(64, 64, 64)) == (twins[0], 1.0)
