"""Ours that are fastest where the policy decides, and lose too much elsewhere: what is said of them is so."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from space.config import Config
from space.families.cublaslt import NOT_LISTED
from space.family import family_named
from tests.shell import Shell
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, study_key
from tuner.cli.output import print_comparison
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Best, StoredMeasurement
from tuner.evidence.store import Store
from tuner.views import studies
from tuner.views.studies import Pick
from workers.measurement import Policy

LIBRARY = family_named("cublaslt").config({"rank": 0})
OURS, SECOND = FAMILY.config({}), FAMILY.config({"tile_n": 64})
Times = dict[Config, tuple[float, float]]
#: Under `chain`, which decides, and under `burst`.
LOSES: Times = {OURS: (7.9, 8.1), LIBRARY: (8.0, 8.0)}


def finals(store: Store, times: Times) -> list[StoredMeasurement]:
    """The finals of one study."""
    study = store.begin_study(study_key(), fresh=True)
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
    lost = ("each of ours is not surely faster than the library's, or loses too much to its first choice under "
            "another policy")  # fmt: skip
    assert f"cuBLASLt's own candidate wins here; {lost}" in said


def test_best_says_that_no_heuristic_lists_what_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unlisted = family_named("cublaslt").config({"algorithm": 66, "tile": 157})
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        (best, *_) = bests_of(PROBLEM, finals(store, LOSES | {unlisted: (7.5, 7.5)}), 2, {})
    note = f"algorithm 66, tile 104x64, {NOT_LISTED}"
    winner = replace(best.winner, measurement=replace(best.winner.measurement, note=note))
    print_comparison(replace(best, winner=winner))
    said = " ".join(capsys.readouterr().out.split())
    wins = "cuBLASLt's own candidate, which its heuristic doesn't list, wins here"
    assert said.startswith(f"{wins}, 1.067 times as fast as its first choice;")


def test_best_does_not_hide_that_another_of_the_library_is_ahead(tmp_path: Path) -> None:
    another = family_named("cublaslt").config({"rank": 1})
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        store.set_bests(bests_of(PROBLEM, finals(store, LOSES | {LIBRARY: (8.0, 8.0), another: (7.5, 8.5)}), 2, {}))
        assert [(best.config, best.policy) for best in store.bests(DEVICE)][:1] == [(LIBRARY, Policy.CHAIN)]
    shell = Shell(tmp_path, {"GEMMTUNE_DB": f"sqlite:///{tmp_path}/store.db"})
    said = " ".join(shell("best", PROBLEM.shape).out.split())
    assert "against the best of its candidates 0.938 (95 % 0.938 to 0.938)" in said
    assert "those ahead of it tie with it, or lose too much under another policy too" in said


@pytest.mark.parametrize(
    ("words", "place"),
    [((), "* is served"), (("--policy", "burst"), "* is the best under burst, which is not the served one")],
)
def test_rivals_mark_as_served_what_is_served(shell: Shell, words: tuple[str, ...], place: str) -> None:
    said = shell("best", PROBLEM.shape, "--rivals", *words).out
    assert place in said
    assert "* 8.00 µs" in said


def picks_of(store: Store, times: Times) -> dict[str, Pick]:
    """The picks of a study's page, by policy."""
    study = finals(store, times)[0].study_id
    return {pick.policy: pick for pick in studies.in_full(store, study).picks}


def test_the_page_says_why_a_faster_one_is_left_out_of_a_tie() -> None:
    # The fastest under `chain` loses more under `burst` than half of its gain.
    times = {OURS: (7.85, 8.16), SECOND: (7.9, 8.0), LIBRARY: (8.0, 8.0)}
    with Store.open("sqlite://") as store:
        pick = picks_of(store, times)["chain"]
    told = "0.6% behind the fastest; 2 of our 2 tie within 2%, and are ordered by steps of 0.5 %"
    assert pick.sentence.startswith(told)
    assert pick.sentence.endswith("left out is each that is not surely faster than the library's, or loses too much to "
                                  "its first choice under another policy")  # fmt: skip


def test_without_the_library_nothing_is_left_out() -> None:
    with Store.open("sqlite://") as store:
        assert "library" not in picks_of(store, {OURS: (7.9, 8.1), SECOND: (7.95, 8.1)})["chain"].sentence


def test_the_page_names_the_best_that_an_earlier_rule_chose() -> None:
    with Store.open("sqlite://") as store:
        stored = finals(store, LOSES)
        first = stored[0]
        store.set_bests([Best(PROBLEM, DEVICE, "cuda", first, None, None, None, 2, {})])
        found = studies.in_full(store, first.study_id)
    (pick,) = (pick for pick in found.picks if pick.policy == "chain")
    assert [final.measurement_id for final in found.finals if final.served] == [first.id]
    assert pick.measurement_id == stored[2].id
    stands = f"; an earlier version's rule picked measurement {first.id}, which stands until a faster one or"
    assert stands in pick.sentence
    (other,) = (pick for pick in found.picks if pick.policy == "burst")
    assert "earlier version" not in other.sentence


@pytest.fixture
def older(tmp_path: Path) -> Shell:
    """A store whose best an earlier rule chose, in a study with enough candidates to tell why."""
    with Store.open(f"sqlite:///{tmp_path}/older.db") as store:
        stored = finals(store, LOSES)
        knobs = product((64, 96, 128), ("along_m", "along_n"), (1, 2, 4, 8))
        screened = [FAMILY.config({"tile_n": n, "raster": raster, "raster_group": group}) for n, raster, group in knobs]
        taken = [measured(config, 9.0 + place) for place, config in enumerate(screened)]
        store.record_many(stored[0].study_id, taken, PROVENANCE)
        store.set_bests([Best(PROBLEM, DEVICE, "cuda", stored[0], None, None, None, 2, {})])
        (remark,) = store.set_bests(bests_of(PROBLEM, stored, 2, {}))
        assert remark.endswith("by the same program; an earlier version's rule picked that one from the same finals")
    return Shell(tmp_path, {"GEMMTUNE_DB": f"sqlite:///{tmp_path}/older.db"})


@pytest.mark.parametrize(("words", "said"), [
    (("best", PROBLEM.shape, "--rivals"), f"* was picked by an earlier version's rule; today's picks {LIBRARY.key}"),
    (("why", PROBLEM.shape), f"an earlier version's rule picked it; of the same finals today's picks {LIBRARY.key}"),
])  # fmt: skip
def test_commands_say_that_an_earlier_rule_chose_what_is_served(
    older: Shell, shell: Shell, words: tuple[str, ...], said: str
) -> None:
    assert said in " ".join(older(*words).out.split())
    # Today's own pick is told as before.
    assert "earlier version" not in shell(*words).out


def test_the_page_picks_nothing_that_a_rule_forbids() -> None:
    illegal = FAMILY.config({"tile_n": 256, "stages": 12})
    with Store.open("sqlite://") as store:
        stored = finals(store, {illegal: (6.0, 6.0), OURS: (7.9, 8.0), LIBRARY: (8.0, 8.0)})
        found = studies.in_full(store, stored[0].study_id)
        alone = finals(store, {illegal: (6.0, 6.0)})
        assert studies.in_full(store, alone[0].study_id).picks == ()
    assert {pick.policy: pick.measurement_id for pick in found.picks} == {"chain": stored[2].id, "burst": stored[5].id}
