"""The nearest legal config, compared with an exhaustive search over changes of up to three knobs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings

from space import nearest
from space.config import Config
from space.errors import FamilyError
from space.explain import explain, legal_mask
from space.family import family_named
from space.kinds.gemm import Gemm
from space.nearest import MAX_CHANGES
from tests.strategies import configs_of, problems_up_to

#: A family with so few knob values that all changes can be enumerated.
FAMILY = family_named("gemv")
BOUND = [place for place, knob in enumerate(FAMILY.knobs) if knob not in FAMILY.free]


def first_of_all_changes(problem: Gemm, config: Config) -> dict[str, object]:
    """Fewest knobs, then fewest places, then the order of knobs, then that of values: of all changes, one by one."""
    here = [knob.domain.index(value) for knob, (_, value) in zip(FAMILY.knobs, config.values, strict=True)]
    for count in range(1, MAX_CHANGES + 1):
        changes = [
            (sum(abs(place - here[knob]) for knob, place in zip(knobs, places, strict=True)), knobs, places)
            for knobs in combinations(BOUND, count)
            for places in product(
                *([at for at in range(len(FAMILY.knobs[knob].domain)) if at != here[knob]] for knob in knobs)
            )
        ]
        table = np.array(
            [[knob.encode(value) for knob, (_, value) in zip(FAMILY.knobs, config.values, strict=True)]] * len(changes)
        )
        for row, (_, knobs, places) in enumerate(changes):
            for knob, place in zip(knobs, places, strict=True):
                table[row, knob] = FAMILY.codes[knob, place]
        legal = np.flatnonzero(legal_mask(FAMILY, FAMILY.rows_of(problem, table)))
        if len(legal):
            _, knobs, places = min(changes[row] for row in legal)
            chosen = ((FAMILY.knobs[knob], place) for knob, place in zip(knobs, places, strict=True))
            return {knob.name: knob.domain[place] for knob, place in chosen}
    return {}


@pytest.mark.parametrize("many", [None, 4])
@settings(max_examples=10)
@given(problem=problems_up_to(4, 9000, 70_000), config=configs_of(FAMILY))
def test_it_is_the_first_of_all_changes(many: int | None, problem: Gemm, config: Config) -> None:
    problem = replace(problem, layout="nt")
    with pytest.MonkeyPatch.context() as patch:
        # What is done where there are very many changes is right for few, too.
        for limit in ("_MANY", "_NEAREST", "_FEW_ROWS") if many else ():
            patch.setattr(nearest, limit, many)
        said = explain(FAMILY, problem, config)
    change = {} if said.legal else first_of_all_changes(problem, config)
    assert said.change == ",".join(f"{knob}={value}" for knob, value in change.items())


def test_what_cannot_be_told_apart_is_refused() -> None:
    rule = next(rule for rule in FAMILY.legal if rule.id == "team.warps")
    again = tuple(replace(rule, id=f"team.warps.{number}") for number in range(60))
    with pytest.raises(FamilyError, match=rf"gemv has {len(FAMILY.legal) + 60} legal rules.* join some"):
        explain(replace(FAMILY, rules=FAMILY.rules + again), Gemm(1, 64, 64), FAMILY.config({"split_warps": 16}))
