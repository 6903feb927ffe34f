"""The rivals of a best are those that it won against."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from space.family import family_named
from space.kinds.gemm import Gemm
from tests.shell import Shell
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.answering.rivals import finals_of
from tuner.errors import NothingMeasured
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.views.studies import in_full
from workers.measurement import NO_ENERGY, Outcome, Policy


def test_later_finals_that_were_slower_are_not_those_of_the_best() -> None:
    configs = [FAMILY.config({"tile_n": tile_n}) for tile_n in (64, 128)]
    with Store.open("sqlite://") as store:
        study = store.begin_study(study_key(PROBLEM))
        series = [
            store.record_many(study.id, [
                measured(config, us * slower, PROBLEM, "final", policy=Policy.CHAIN)
                for config, us in zip(configs, (10.0, 11.0), strict=True)
            ], PROVENANCE)
            for slower in (1.0, 1.05)
        ]  # fmt: skip
        store.set_bests([Best(PROBLEM, DEVICE, "cuda", series[0][0], None, None, None, 2, {})])
        assert [one.id for one in finals_of(store, PROBLEM, DEVICE).rivals] == [one.id for one in series[0]]
        assert all(one.measurement.outcome is Outcome.CORRECT for one in finals_of(store, PROBLEM, DEVICE).rivals)


def test_finals_of_other_policies_are_not_among_them() -> None:
    with Store.open("sqlite://") as store:
        study = store.begin_study(study_key(PROBLEM))
        taken = [measured(FAMILY.config({}), us, PROBLEM, "final", policy=policy)
                 for policy, us in ((Policy.BURST, 9.0), (Policy.CHAIN, 10.0))]  # fmt: skip
        stored = store.record_many(study.id, taken, PROVENANCE)
        for one in stored:
            store.set_bests([Best(PROBLEM, DEVICE, "cuda", one, None, None, None, 1, {})])
        found = [finals_of(store, PROBLEM, DEVICE, policy) for policy in (Policy.BURST, None)]
        with pytest.raises(NothingMeasured, match="under sustained are stored, but under burst, chain: ask"):
            finals_of(store, PROBLEM, DEVICE, Policy.SUSTAINED)
    assert [[*each.rivals] for each in found] == [[one] for one in stored]


def test_energy_stands_beside_rivals_under_every_policy(tmp_path: Path) -> None:
    counted, uncounted = (FAMILY.config({"tile_n": tile_n}) for tile_n in (64, 128))
    alone = replace(measured(counted, 11.0, PROBLEM, "final", policy=Policy.SUSTAINED), product_joules=0.25)
    chained = [measured(config, us, PROBLEM, "final", policy=Policy.CHAIN)
               for config, us in ((counted, 10.0), (uncounted, 12.0))]  # fmt: skip
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        study = store.begin_study(study_key(PROBLEM))
        winner = store.record_many(study.id, [*chained, alone], PROVENANCE)[0]
        store.set_bests([Best(PROBLEM, DEVICE, "cuda", winner, None, None, None, 2, {})])
    shell = Shell(tmp_path, {"GEMMTUNE_DB": f"sqlite:///{tmp_path}/s.db"})
    words = ("best", PROBLEM.shape, "--device", DEVICE, "--rivals")
    assert [one["product_joules"] for one in shell(*words, "--json").json["rivals"]] == [0.25, None]
    said = " ".join(shell(*words).out.split())
    assert said.count(" samples), 0.25 J ") == said.count(" J ") == 1


@pytest.mark.parametrize("served", [Policy.SUSTAINED, Policy.CHAIN])
def test_what_counted_no_energy_is_told_where_joules_would_stand(tmp_path: Path, served: Policy) -> None:
    alone = replace(measured(FAMILY.config({}), 11.0, PROBLEM, "final", policy=Policy.SUSTAINED), note=NO_ENERGY)
    chained = measured(FAMILY.config({}), 10.0, PROBLEM, "final", policy=Policy.CHAIN)
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        study = store.begin_study(study_key(PROBLEM))
        for one in store.record_many(study.id, [alone, chained], PROVENANCE):
            if one.measurement.policy is served:
                store.set_bests([Best(PROBLEM, DEVICE, "cuda", one, None, None, None, 1, {})])
    shell = Shell(tmp_path, {"GEMMTUNE_DB": f"sqlite:///{tmp_path}/s.db"})
    words = ("best", PROBLEM.shape, "--device", DEVICE)
    assert (NO_ENERGY in shell(*words).out) == (served is Policy.SUSTAINED)
    assert NO_ENERGY in shell(*words, "--rivals").out


@pytest.mark.parametrize(("dtype", "said"), [
    ("bf16", "their winner, measurement 1, has a build that was found wrong since: the next tune replaces it"),
    ("fp16_acc16", "* breaks problem.sums"),
])  # fmt: skip
def test_a_winner_that_is_out_of_the_running_is_told_as_such(tmp_path: Path, dtype: str, said: str) -> None:
    problem = Gemm.parse("256x256x256", dtype)
    configs = [FAMILY.config({"tile_n": tile_n}) for tile_n in (64, 128)]
    taken = [replace(measured(config, us, problem, "final", policy=Policy.CHAIN), build_digest=config.key[-64:])
             for config, us in zip(configs, (10.0, 11.0), strict=True)]  # fmt: skip
    taken.append(measured(family_named("cublaslt").config({}), 12.0, problem, "final", policy=Policy.CHAIN))
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        winner, *_ = store.record_many(store.begin_study(study_key(problem)).id, taken, PROVENANCE)
        store.set_bests([Best(problem, DEVICE, "cuda", winner, None, None, None, 2, {})])
        if dtype == "bf16":
            wrong = measured(configs[0], problem=problem, outcome=Outcome.WRONG_RESULT)
            others = [measured(FAMILY.config({"tile_n": tile_n}), problem=problem) for tile_n in (96, 192)]
            later = store.begin_study(study_key(problem), fresh=True)
            found = [replace(wrong, build_digest=taken[0].build_digest), *others]
            store.record_many(later.id, found, PROVENANCE)
        (pick,) = in_full(store, winner.study_id).picks
    shell = Shell(tmp_path, {"GEMMTUNE_DB": f"sqlite:///{tmp_path}/s.db"})
    told = " ".join(shell("best", problem.shape, "--dtype", dtype, "--device", DEVICE, "--rivals").out.split())
    assert said in told
    assert "is served" not in told.replace("is not served", "")
    assert "earlier version" not in told + pick.sentence
    assert ("measurement 1, which was picked, breaks problem.sums" in pick.sentence) is (dtype != "bf16")


def test_a_best_of_a_screening_has_no_rivals() -> None:
    with Store.open("sqlite://") as store:
        keep_best(store)
        with pytest.raises(NothingMeasured, match="no finals"):
            finals_of(store, PROBLEM, DEVICE)


def test_a_history_of_nothing_is_told_as_one(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db"):
        pass
    shell = Shell(tmp_path, {"GEMMTUNE_DB": f"sqlite:///{tmp_path}/s.db"})
    words = ("best", PROBLEM.shape, "--history", "--device", DEVICE)
    said, never = shell(*words), f"{PROBLEM.title} never had a best on {DEVICE}: run `gemmtune tune {PROBLEM.shape}`"
    assert (said.code, " ".join(said.out.split())) == (0, never)
    assert shell(*words, "--json").json == {"changes": []}


@pytest.mark.parametrize("words", [("--history",), ("--history", "--json"), ("--rivals",)])
def test_an_unknown_device_is_told_with_the_nearest_ones(tmp_path: Path, words: tuple[str, ...]) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db"):
        pass
    shell = Shell(tmp_path, {"GEMMTUNE_DB": f"sqlite:///{tmp_path}/s.db"})
    said = shell("best", PROBLEM.shape, "--device", "h1000", *words)
    plain = shell("best", PROBLEM.shape, "--device", "h1000")
    assert said.code == plain.code != 0
    assert "device 'h1000' is unknown: the nearest known ones are NVIDIA H200" in " ".join(said.err.split())
