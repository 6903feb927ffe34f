"""Ours that are fastest where the policy decides, and lose too much elsewhere: what is said of them is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from space.config import Config
from space.registry import family_named
from tests.shell import Shell
from tests.support import FAMILY, PROBLEM, PROVENANCE, measured, study_key
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Best, StoredMeasurement
from tuner.evidence.store import Store
from workers.measurement import Policy

LIBRARY = family_named("cublaslt").config({"rank": 0})
OURS, SECOND = FAMILY.config({}), FAMILY.config({"tile_n": 64})
Times = dict[Config, tuple[float, float]]
#: Under `chain`, which decides, and under `burst`.
LOSES: Times = {OURS: (7.9, 8.1), LIBRARY: (8.0, 8.0)}


def finals(store: Store, times: Times) -> list[StoredMeasurement]:
    """The finals of one study."""
    study = store.begin_study(study_key())
    taken = [measured(config, us, stage="final", policy=policy, samples=9) for config, each in times.items()
             for us, policy in zip(each, (Policy.CHAIN, Policy.BURST), strict=True)]  # fmt: skip
    return store.record_many(study.id, taken, PROVENANCE)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A store in which the library won."""
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        bests = bests_of(PROBLEM, finals(store, LOSES), 2, {})
        assert [best.config for best in bests] == [LIBRARY, LIBRARY]
        store.set_bests(bests)
    return Shell(tmp_path, {"GEMMTUNE_DB": f"sqlite:///{tmp_path}/store.db"})


def test_best_does_not_say_that_none_of_ours_is_faster(shell: Shell) -> None:
    said = " ".join(shell("best", PROBLEM.shape).out.split())
    assert "cuBLASLt's own candidate wins here; each of ours is not surely faster, or loses too much to its" in said


@pytest.mark.parametrize(
    ("words", "place"),
    [((), "* is served"), (("--policy", "burst"), "* is the best under burst, which is not the served one")],
)
def test_rivals_mark_as_served_what_is_served(shell: Shell, words: tuple[str, ...], place: str) -> None:
    said = shell("best", PROBLEM.shape, "--rivals", *words).out
    assert place in said
    assert "* 8.00 µs" in said
