"""Why a config won, told from what is in the store: by value, by command and over HTTP."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from space.config import Config
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.shell import Shell
from tests.support import DEVICE, FAMILY, PROVENANCE, keep_best, measured, study_key, today
from tuner.answering.importance import LEAST, Why, _runners_up, why
from tuner.errors import NothingMeasured
from tuner.evidence.records import Best, Provenance
from tuner.evidence.store import Store
from workers.measurement import Measurement, Outcome

PROBLEM = Gemm.parse("4096x4096x4096")
CONFIGS = [
    FAMILY.config({"tile_n": n, "stages": stages, "raster": raster})
    for n, stages, raster in itertools.product((64, 96, 128, 160), (2, 3, 4), ("along_m", "along_n"))
]


def cost(tile_n: int, stages: int) -> float:
    """tile_n decides, stages matter a little, the raster not at all; 128 and 4 are best."""
    return 200.0 * (1 + 0.3 * abs(tile_n - 128) / 64) * (1 + 0.02 * (4 - stages))


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/s.db"
    with Store.open(url) as store:
        study = store.begin_study(study_key(PROBLEM))
        taken = [measured(c, cost(c.number("tile_n"), c.number("stages")), PROBLEM) for c in CONFIGS]
        failed = measured(FAMILY.config({"tile_n": 256}), problem=PROBLEM, outcome=Outcome.TIMEOUT)
        store.record_many(study.id, [*taken, failed], PROVENANCE)
        small = store.begin_study(study_key(Gemm.parse("512x512x512")))
        store.record_many(small.id, [measured(c, 10.0, small.key.problem) for c in CONFIGS[: LEAST - 1]], PROVENANCE)
    return url


def test_it_speaks_of_the_config_that_is_served(url: str) -> None:
    with Store.open(url) as store:
        screened = [one for one in store.every(DEVICE, PROBLEM) if one.measurement.outcome is Outcome.CORRECT]
        second = sorted(screened, key=lambda one: one.measurement.median_us)[1]
        store.set_bests([Best(PROBLEM, DEVICE, "cuda", second, None, None, None, 1, {})])
        assert why(store, PROBLEM, DEVICE).winner == second.measurement.config


def test_it_speaks_of_the_served_study_though_another_is_larger(url: str) -> None:
    with Store.open(url) as store:
        study = store.begin_study(study_key(PROBLEM), fresh=True)
        taken = [measured(config, 300.0 + place, PROBLEM) for place, config in enumerate(CONFIGS[:LEAST])]
        screened = store.record_many(study.id, taken, PROVENANCE)
        store.set_bests([Best(PROBLEM, DEVICE, "cuda", screened[3], None, None, None, 1, {})])
        found = why(store, PROBLEM, DEVICE)
        served = store.best(PROBLEM, DEVICE)
    assert served is not None
    assert (found.winner, found.measured, found.time_us) == (served.config, LEAST, 303.0)
    assert (found.served, found.served_us, found.served_policy) == (True, served.median_us, served.policy)


OLDER = replace(PROVENANCE, kernel_source_digest="e" * 64)


@pytest.mark.parametrize(("by", "kind", "changed"), [
    (OLDER, "cuda", "its kernel has changed since"), (OLDER, "recorded", "our kernels have changed since"),
    (None, "cuda", ""), (None, "recorded", ""),
])  # fmt: skip
def test_it_says_that_a_kernel_has_changed_since(url: str, by: Provenance | None, kind: str, changed: str) -> None:
    with Store.open(url) as store:
        study = store.begin_study(replace(study_key(PROBLEM), device_kind=kind), fresh=True)
        taken = [measured(config, 200.0 + place, PROBLEM) for place, config in enumerate(CONFIGS)]
        won = store.record_many(study.id, taken, by or today(PROBLEM))[0]
        store.set_bests([Best(PROBLEM, DEVICE, kind, won, None, None, None, 1, {})])
    said = Shell(Path(url.removeprefix("sqlite:///")).parent, {"GEMMTUNE_DB": url})("why", PROBLEM.shape)
    assert (said.code, said.err) == (0, "")
    assert changed in said.out if changed else "changed since" not in said.out


def test_where_the_library_won_it_is_the_winner(url: str) -> None:
    with Store.open(url) as store:
        study = store.begin_study(study_key(PROBLEM))
        library = family_named("cublaslt").config({"rank": 0})
        fastest = FAMILY.config({"tile_n": 128, "stages": 4, "raster": "along_m"})
        finals = [measured(fastest, 220.0, PROBLEM, "final"), measured(library, 198.0, PROBLEM, "final")]
        won = store.record_many(study.id, finals, PROVENANCE)[1]
        store.set_bests([Best(PROBLEM, DEVICE, "cuda", won, None, None, None, 1, {})])
        found = why(store, PROBLEM, DEVICE)
    assert found.winner == library
    # Finals ran a tenth slower than screenings.
    assert found.time_us == pytest.approx(180.0)
    assert found.changes == ()
    assert found.runners_up[0].ratio == pytest.approx(200.0 / 180.0)
    assert {each.knob for each in found.importances} == {"tile_n", "stages", "raster"}


def test_a_few_candidates_of_the_winners_family_say_nothing_of_its_knobs(tmp_path: Path) -> None:
    problem, gemv = Gemm.parse("1x4096x4096"), family_named("gemv")
    fast = [gemv.config({"rows": 1, "unroll": unroll}) for unroll in (1, 2)]
    url = f"sqlite:///{tmp_path}/few.db"
    with Store.open(url) as store:
        study = store.begin_study(study_key(problem))
        times = dict(zip([*fast, *CONFIGS], range(10, 99), strict=False))
        taken = store.record_many(study.id, [measured(c, us, problem) for c, us in times.items()], PROVENANCE)
        store.set_bests([Best(problem, DEVICE, "cuda", taken[0], None, None, None, 1, {})])
        found = why(store, problem, DEVICE)
    assert (found.winner, found.measured, found.importances) == (fast[0], len(CONFIGS) + 2, ())
    said = Shell(tmp_path, {"GEMMTUNE_DB": url})("why", problem.shape)
    assert (said.code, said.err) == (0, "")
    assert f"to tell which knobs decide: {LEAST} are needed" in said.out
    assert "best of any other value" not in said.out


def test_of_the_librarys_win_no_knob_is_told_as_ours(url: str, tmp_path: Path) -> None:
    with Store.open(url) as store:
        study = store.begin_study(study_key(PROBLEM))
        library = family_named("cublaslt").config({"algorithm": 66, "stages": 27})
        won = store.record(study.id, measured(library, 150.0, PROBLEM, "final"), PROVENANCE)
        store.set_bests([Best(PROBLEM, DEVICE, "cuda", won, None, None, None, 1, {})])
    said = Shell(tmp_path, {"GEMMTUNE_DB": url})("why", PROBLEM.shape).out
    (row,) = [line for line in said.splitlines() if line.strip().startswith("stages")]
    assert "27" not in row
    # Costs are told beside our fastest, so its values are.
    with Store.open(url) as store:
        fastest = why(store, PROBLEM, DEVICE).runners_up[0].config
    assert "our fastest's" in said
    assert row.split()[1] == str(fastest["stages"])
    assert "illegal" not in said


@pytest.fixture
def found(url: str) -> Why:
    with Store.open(url) as store:
        return why(store, PROBLEM, DEVICE)


def test_the_knob_that_decides_comes_first_and_its_cost_is_measured(found: Why) -> None:
    assert (found.winner["tile_n"], found.winner["stages"]) == (128, 4)
    by_name = {each.knob: each for each in found.importances}
    assert found.importances[0].knob == "tile_n"
    assert set(by_name) == {"tile_n", "stages", "raster"}
    assert sum(each.share for each in found.importances) == pytest.approx(1.0)
    assert by_name["tile_n"].cost == pytest.approx(1.15)
    assert by_name["raster"].cost == pytest.approx(1.0)


def test_every_single_change_is_measured_expected_or_illegal(found: Why) -> None:
    changes = {(each.knob, each.value): each for each in found.changes}
    assert changes["tile_n", 96].source == "measured"
    assert changes["tile_n", 96].ratio == pytest.approx(1.15)
    between = changes["tile_n", 112]
    assert between.source == "expected"
    assert between.ratio is not None
    assert between.low is not None
    assert between.high is not None
    assert between.low < between.ratio < between.high
    # 16 stages of 32 KiB are more than a block has.
    assert changes["stages", 16].source == "illegal"
    assert len(found.changes) == sum(len(knob.domain) - 1 for knob in FAMILY.knobs)


def test_runners_up_are_of_other_structures_and_in_order(found: Why) -> None:
    tiles = [each.config["tile_n"] for each in found.runners_up]
    assert tiles == [96, 160, 64] or tiles == [160, 96, 64]
    assert [each.ratio for each in found.runners_up] == sorted(each.ratio for each in found.runners_up)


def test_no_runner_up_has_the_winners_structure(found: Why) -> None:
    faster = found.winner.changed({"raster": "along_n"})
    times = {found.winner: 10.0, faster: 9.9, found.winner.changed({"tile_n": 64}): 12.0}
    assert [each.config["tile_n"] for each in _runners_up(times, found.winner, 10.0)] == [64]


def test_a_build_that_was_found_wrong_is_neither_winner_nor_runner_up(tmp_path: Path) -> None:
    def taken(config: Config, us: float, outcome: Outcome = Outcome.CORRECT) -> Measurement:
        return replace(measured(config, us, PROBLEM, outcome=outcome), build_digest="b" * 64)

    with Store.open(f"sqlite:///{tmp_path}/wrong.db") as store:
        study, other = (store.begin_study(study_key(PROBLEM), fresh=True) for _ in range(2))
        store.record_many(study.id, [taken(each, 100.0 + n) for n, each in enumerate(CONFIGS)], PROVENANCE)
        wrong = taken(CONFIGS[0], 100.0, Outcome.WRONG_RESULT)
        store.record_many(other.id, [wrong, *(taken(each, 150.0) for each in CONFIGS[1:3])], PROVENANCE)
        found = why(store, PROBLEM, DEVICE)
    assert (found.winner, found.measured) == (CONFIGS[1], len(CONFIGS) - 1)
    assert CONFIGS[0] not in {each.config for each in found.runners_up}


def test_a_few_runners_up_are_told_of_many(found: Why) -> None:
    times = {found.winner.changed({"tile_n": 8 * place}): 100.0 - place for place in range(1, 13)}
    assert [each.time_us for each in _runners_up(times, found.winner, 10.0)] == [88.0, 89.0, 90.0, 91.0, 92.0]


def test_too_few_measurements_are_one_sentence(url: str) -> None:
    with Store.open(url) as store:
        for shape, count in (("512x512x512", LEAST - 1), ("1x1x1", 0)):
            with pytest.raises(NothingMeasured, match=f"^{count} correct"):
                why(store, Gemm.parse(shape), DEVICE)


def test_by_command(url: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"GEMMTUNE_DB": url})
    said = shell("why", PROBLEM.shape)
    assert (said.code, said.err) == (0, "")
    assert "tile_n" in said.out
    assert "+15.0%" in said.out
    assert shell("why", PROBLEM.shape, "--json").json["importances"][0]["knob"] == "tile_n"
    none = shell("why", "7x7x7")
    assert (none.code, none.out) == (6, "")
    assert "gemmtune tune 7x7x7" in none.err


def test_over_http(url: str) -> None:
    with Store.open(url) as store, TestClient(create_app(store)) as http:
        asked = {"m": 4096, "n": 4096, "k": 4096, "device": DEVICE}
        body = http.get("/v1/importance", params=asked).json()
        assert body["winner"]["knobs"]["tile_n"] == 128
        assert {each["source"] for each in body["changes"]} == {"measured", "expected", "illegal"}
        missing = http.get("/v1/importance", params=asked | {"m": 7})
        assert (missing.status_code, missing.json()["type"]) == (404, "/problems/not-measured")
        assert http.get("/v1/importance", params=asked | {"dtype": "f8"}).status_code == 422


def test_the_ladder_of_a_weight_names_its_cliffs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ladder.db"
    with Store.open(url) as store:
        for m, us in ((64, 30.0), (128, 12.0), (256, 14.0)):
            keep_best(store, Gemm.parse(f"{m}x4096x4096"), us=us)
    shell = Shell(tmp_path, {"GEMMTUNE_DB": url})
    said = shell("ladder", "4096x4096", "--m", "64,96,128,256", "--json").json
    assert [rung["m"] for rung in said["rungs"]] == [64, 96, 128, 256]
    assert [rung["source"] for rung in said["rungs"]][2:] == ["measured", "measured"]
    (cliff,) = said["cliffs"]
    assert (cliff["m"], cliff["witness_m"], cliff["kind"]) == (64, 128, "inversion")
    assert shell("ladder", "4096x4096", "--m", "1,x").code == 3


def test_what_to_type_next_names_all_of_the_problem(url: str) -> None:
    problem = Gemm.parse("512x512x512", "fp8_e4m3", "nn")
    with Store.open(url) as store, pytest.raises(NothingMeasured, match="512x512x512 --dtype fp8_e4m3 --layout nn`"):
        why(store, problem, DEVICE)
