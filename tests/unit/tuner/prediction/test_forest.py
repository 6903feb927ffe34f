"""Forest: scikit-learn's trees as flat arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tuner.errors import ModelError
from tuner.prediction.forest import Forest
from tuner.prediction.grow import flattened


def test_a_forest_predicts_what_the_trees_do() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(1)
    rows, target = rng.standard_normal((400, 5)).astype(np.float32), 3.0 + rng.standard_normal(400)
    grown = ensemble.HistGradientBoostingRegressor(max_iter=7, max_leaf_nodes=15, random_state=0).fit(rows, target)
    forest: Forest = flattened(grown)
    new = rng.standard_normal((1_000, 5)).astype(np.float32)
    assert forest.trees == 7
    assert forest.predict(new) == pytest.approx(grown.predict(new), abs=1e-5)
    of_two = list(itertools.islice(grown.staged_predict(new), 2))[-1]
    assert forest.predict(new, 2) == pytest.approx(of_two, abs=1e-5)
    del grown._predictors
    with pytest.raises(ModelError, match="_predictors"):
        flattened(grown)
