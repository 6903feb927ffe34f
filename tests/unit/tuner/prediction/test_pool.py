"""Pool: any list of parameter sets, told apart and scaled."""

from __future__ import annotations

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution

from tuner.prediction.pool import Pool

SETS = [{"threads": threads, "mode": mode} for threads in (32, 64, 96) for mode in ("a", "b")]


def test_parameters_lead_to_their_place_and_back() -> None:
    pool = Pool.of(SETS)
    assert [pool.place(pool.params(place)) for place in range(len(pool))] == list(range(6))
    assert pool.place({"threads": 128, "mode": "a"}) is None
    assert pool.place({"mode": "a"}) is None


def test_distributions_follow_from_the_values_that_occur() -> None:
    pool = Pool.of(SETS)
    assert pool.distributions == {
        "threads": IntDistribution(32, 96, step=32), "mode": CategoricalDistribution(("a", "b")),
    }  # fmt: skip
    uneven = Pool.of([{"depth": depth} for depth in (1, 2, 4)])
    assert uneven.distributions == {"depth": CategoricalDistribution((1, 2, 4))}


def test_features_are_scaled_and_constants_dropped() -> None:
    pool = Pool.of(SETS, features=np.array([[1e6, 3.0, row] for row in range(6)]))
    assert pool.features.shape == (6, 1)
    assert pool.features.std() == pytest.approx(1)


@pytest.mark.parametrize(
    ("sets", "extra"),
    [([], {}), (SETS + SETS[:1], {}), (SETS, {"expected": [1.0]}), (SETS, {"features": np.ones((2, 2))})],
)
def test_a_list_that_is_no_pool_is_refused(sets: list[dict[str, object]], extra: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"candidate|expectations"):
        Pool.of(sets, **extra)  # type: ignore[arg-type]
