"""The choice of candidates when there is no room for all."""

from __future__ import annotations

from space.registry import family_named
from tuner.studying.candidates import spread

FAMILY = family_named("sm90_wgmma")


def test_half_are_the_first_and_half_one_of_each_structure_in_turn() -> None:
    alike = [FAMILY.config({"stages": stages, "epilogue": kind}) for kind in ("tma", "direct") for stages in (2, 3, 4)]
    others = [FAMILY.config({"tile_n": n}) for n in (64, 96)]
    assert spread([*alike, *others], 6) == [*alike[:3], *others, alike[3]]


def test_no_more_are_chosen_than_there_are() -> None:
    ranked = [FAMILY.config({"tile_n": n}) for n in (64, 96)]
    assert sorted(spread(ranked, 9), key=ranked.index) == ranked
