"""Grows forests: scikit-learn boosts regression trees (Friedman, 2001) on histograms; serving needs only NumPy."""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tuner.errors import ModelError
from tuner.prediction.forest import Forest
from tuner.prediction.tasks import Task

#: Trees of a forest, and the share of what is left that each corrects.
TREES, RATE = 400, 0.06
#: Most leaves of a tree, fewest candidates of a leaf, and the weight that pulls its value towards zero.
LEAVES, LEAST_LEAF, SHRINKAGE = 127, 10, 1.0
#: Share of the features that a split chooses from.
FEATURE_SHARE: Final = 0.5


def grown(tasks: list[Task], trees: int, seed: int) -> Forest:
    """A forest that predicts how a problem's candidates deviate from their analytic estimates."""
    rows = np.vstack([task.features.rows for task in tasks]).astype(np.float32)
    target = np.concatenate([task.error - task.level for task in tasks])
    weight = np.concatenate([task.weight for task in tasks])
    grower = scikit_learn("sklearn.ensemble").HistGradientBoostingRegressor(
        max_iter=trees, learning_rate=RATE, max_leaf_nodes=LEAVES, min_samples_leaf=LEAST_LEAF,
        l2_regularization=SHRINKAGE, max_features=FEATURE_SHARE, early_stopping=False, random_state=seed,
    )  # fmt: skip
    return flattened(grower.fit(rows, target, sample_weight=weight / weight.mean()))


def flattened(grown: Any) -> Forest:  # noqa: ANN401  (an untyped module)
    """scikit-learn's boosted trees as flat arrays.

    Raises:
        ModelError: this version of it, which has no public access to their nodes, keeps them elsewhere.
    """
    try:
        trees = [_depth_first(tree.nodes) for (tree,) in grown._predictors]
        base = float(grown._baseline_prediction.item())
    except AttributeError as error:
        raise ModelError(f"this scikit-learn keeps its trees elsewhere ({error}): install an older one") from error
    counts = [len(tree) for tree in trees]
    roots = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32)
    nodes = np.concatenate(trees)
    leaf = nodes["is_leaf"] == 1
    value = nodes["value"].copy()
    value[: counts[0]] += base
    return Forest(
        roots,
        np.where(leaf, -1, nodes["feature_idx"]).astype(np.int16),
        np.where(leaf, 0.0, nodes["num_threshold"]).astype(np.float32),
        np.where(leaf, np.arange(len(nodes)), nodes["right"] + np.repeat(roots, counts)).astype(np.int32),
        np.where(leaf, value, 0.0).astype(np.float32),
    )


def _depth_first(nodes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A tree's nodes in the order of `Forest`, with `right` in it."""
    order, ahead = list[int](), [0]
    while ahead:
        node = ahead.pop()
        order.append(node)
        if not nodes["is_leaf"][node]:
            ahead += [int(nodes["right"][node]), int(nodes["left"][node])]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    sorted_ = nodes[order]
    sorted_["right"] = place[sorted_["right"]]
    return sorted_


def scikit_learn(module: str) -> Any:  # noqa: ANN401  (an untyped module)
    """A module of scikit-learn.

    Raises:
        ModelError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ModelError("training needs scikit-learn: pip install 'gemmtune[train]'; serving does not") from error
