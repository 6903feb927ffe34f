"""The portfolio: configs that answers are chosen from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from space.devices import DEFAULT_DEVICE, profile_named
from space.errors import ConfigError
from space.family import family_named
from space.kinds.gemm import Gemm
from tuner.prediction.files import model_for
from tuner.prediction.portfolio import first_choice


def test_a_config_of_a_value_that_its_family_lacks_by_now_is_no_choice() -> None:
    model, problem, limits = model_for(DEFAULT_DEVICE).model, Gemm.parse("300x512x1024"), profile_named(DEFAULT_DEVICE)
    assert model is not None
    known = model.facts.portfolio[:100]
    gone = known[0].replace("stages=", "stages=9", 1)
    with pytest.raises(ConfigError, match="stages"):
        family_named(model.facts.family).parse(gone)
    for portfolio in ((gone, *known), (gone,)):
        facts = model.facts.model_copy(update={"portfolio": portfolio})
        found = first_choice(replace(model, facts=facts, beside=()), problem, limits)
        assert (found is not None) == (len(portfolio) > 1)
