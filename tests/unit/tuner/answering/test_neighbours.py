"""Configs of neighbours are offered as candidates are today, unless a prediction outweighs them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from space.config import Config
from space.devices import profile_named
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROVENANCE, measured
from tuner.answering.answers import answer
from tuner.answering.neighbours import Judge, best_neighbour
from tuner.evidence.records import Best, StoredMeasurement
from tuner.prediction.files import model_for
from tuner.prediction.portfolio import first_choice
from tuner.tables.tables import TableBests
from workers.measurement import Policy


def best_of(problem: Gemm, config: Config) -> Best:
    taken = measured(config, 12.0, problem, "final", policy=Policy.CHAIN)
    stored = StoredMeasurement(1, 1, DEVICE, "cuda", datetime.now(UTC), PROVENANCE, taken)
    return Best(problem, DEVICE, "cuda", stored, None, None, None, 40, {})


@pytest.mark.parametrize("hint", ["none", "stream_a", "stream_b"])
def test_a_neighbour_that_marked_its_weights_is_offered_without_the_mark(hint: str) -> None:
    best = best_of(Gemm.parse("64x4096x4032"), FAMILY.config({"cache_hint": hint}))
    found = best_neighbour([best], Gemm.parse("64x4096x4096"), Judge(profile_named(DEVICE), None), tuple(Policy))
    assert found is not None
    assert (found.best, found.config) == (best, FAMILY.config({}))


@pytest.mark.parametrize(("shape", "near", "family", "source"), [
    # Lines of 7,112 bytes: one family packs both operands first, the other reads them as they lie.
    ("16x960x3556", "16x960x3552", "sm90_wgmma", "predicted"),
    # Packing takes hardly longer than the product.
    ("64x5504x1977", "64x5504x1984", "sm90_wgmma", "nearest"),
    # Of the library's algorithms no model knows the times.
    ("16x960x3556", "16x960x3548", "cublaslt", "nearest"),
])  # fmt: skip
def test_a_neighbours_config_of_another_family_yields_where_the_model_knows_both(
    shape: str, near: str, family: str, source: str
) -> None:
    asked, there, model = Gemm.parse(shape), Gemm.parse(near), model_for(DEVICE).model
    assert model is not None
    chosen = first_choice(model, asked, profile_named(DEVICE))
    assert chosen is not None
    assert chosen.config.family == "mma_sync"
    config = family_named("cublaslt").config({"rank": 0})
    if family != "cublaslt":
        won = first_choice(model, there, profile_named(DEVICE))
        assert won is not None
        config = won.config
    assert config.family == family
    assert answer(TableBests([best_of(there, config)]), asked, DEVICE, model=model).source == source
