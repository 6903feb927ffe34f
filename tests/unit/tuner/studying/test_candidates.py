"""The choice of candidates when there is no room for all, and when a recording holds none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from space.config import Config
from space.devices import profile_named
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.support import PROBLEM, record_problem
from tuner.errors import NothingCorrect
from tuner.studying.candidates import candidates_for, spread
from workers.recorded import RecordedWorker

FAMILY = family_named("sm90_wgmma")


def test_half_are_the_first_and_half_one_of_each_structure_in_turn() -> None:
    alike = [FAMILY.config({"stages": stages, "epilogue": kind}) for kind in ("tma", "direct") for stages in (2, 3, 4)]
    others = [FAMILY.config({"tile_n": n}) for n in (64, 96)]
    assert spread([*alike, *others], 6) == [*alike[:3], *others, alike[3]]


def test_no_more_are_chosen_than_there_are() -> None:
    ranked = [FAMILY.config({"tile_n": n}) for n in (64, 96)]
    assert sorted(spread(ranked, 9), key=ranked.index) == ranked


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (FAMILY.config({"pdl": 1}), r"all of them with an early launch \(pdl=1\)"),
        (family_named("gemv").config({}), r"none of a family that competes for it by now \(sm90_wgmma\)"),
        (FAMILY.config({"tile_n": 256, "tile_m": 256, "stages": 12}), "rules registers.held, smem.capacity leave"),
    ],
)
def test_a_recording_that_holds_no_candidate_says_why(config: Config, said: str, tmp_path: Path) -> None:
    record_problem(tmp_path, [config], finals=0)
    with RecordedWorker(tmp_path, None, compiles=False) as worker, pytest.raises(NothingCorrect, match=said):
        candidates_for(PROBLEM, worker)


def test_an_empty_space_is_counted_by_a_command_for_its_own_card() -> None:
    card = profile_named("RTX 3090")
    facts = SimpleNamespace(arch=card.arch.name, profile=card, name=card.name)
    worker: Any = SimpleNamespace(facts=facts, measurable=lambda problem: None)
    with pytest.raises(NothingCorrect, match="--dtype fp8_e4m3 --device 'NVIDIA GeForce RTX 3090'` counts"):
        candidates_for(Gemm.parse("256x256x256", "fp8_e4m3"), worker)
