"""Finds the recorded candidate nearest to another library's choice, expressed in our knobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from benchmarks.search.replay import Replay
from space.knobs import KnobValue
from space.plug import Family

#: Weight of an octave of difference, by knob; a different word counts as one octave.
WEIGHTS: Final = {"swap_ab": 8.0, "tile_m": 4.0, "tile_n": 4.0, "split_k": 4.0, "cluster_m": 2.0, "cluster_n": 2.0,
                  "tile_k": 2.0, "consumer_warpgroups": 1.0, "stages": 1.0}  # fmt: skip
OTHER_WEIGHT: Final = 0.25


def nearest_order(replay: Replay, family: Family, wishes: Iterable[Mapping[str, KnobValue]], most: int) -> list[int]:
    """Places of the candidates nearest to each wish, in the wishes' order, none twice."""
    columns = family.columns(replay.problem, replay.configs)
    order: list[int] = []
    for wish in wishes:
        away = np.zeros(len(replay.configs))
        for name, value in wish.items():
            knob = family.knob_named.get(name)
            if knob is None:
                continue
            column, wanted = columns[name], knob.encode(value)
            octaves = np.abs(np.log2(np.maximum(column, 0.5) / max(wanted, 0.5)))
            away += WEIGHTS.get(name, OTHER_WEIGHT) * (octaves if isinstance(value, int) else column != wanted)
        away[order] = np.inf
        if np.isfinite(away).any():
            order.append(int(np.argmin(away)))
        if len(order) == most:
            break
    return order
