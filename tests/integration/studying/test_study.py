"""The main job on a recorded device, with real builds: resumes, never repeats, and ends with a best."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from space.config import Config
from space.enumerate import enumerate_space
from space.kinds.gemm import Gemm
from tests.fleet import FakeDevice, FakeRound
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, only_newer_reads, record_problem, stored_key
from tuner.answering.answers import answer
from tuner.errors import NothingCorrect
from tuner.evidence.models import StudyRow
from tuner.evidence.store import Store
from tuner.studying.study import Budget, Progress, Report, tune
from workers.errors import RecordingError
from workers.measurement import Measurement, Outcome
from workers.ports import Round
from workers.recorded import RecordedWorker

SPACE = enumerate_space(FAMILY, PROBLEM)
#: Of a study that is killed again and again.
MANY = [config for config in (FAMILY.config_at(SPACE.columns, row) for row in range(len(SPACE)))
           if config["tile_n"] in (64, 128) and config["cluster_m"] == config["cluster_n"] == 1][:40]  # fmt: skip
#: Each is a program of its own: real builds, but not many.
CONFIGS = MANY[:24]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    record_problem(tmp_path / "h200", CONFIGS)
    return tmp_path / "h200"


def test_a_study_finds_the_recorded_best_and_keeps_it(folder: Path, cache: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store, RecordedWorker(folder, cache) as worker:
        report = tune(store, worker, PROBLEM, Budget(candidates=24, turns=10), watch=seen.append)
        assert report.best.config == CONFIGS[0]
        assert report.best.versus_first is not None
        assert report.best.versus_first.paired
        assert report.best.versus_first.value == pytest.approx(1.2, abs=0.01)
        assert report.best.failed == {"timeout": 3}
        assert report.stopped_because == "every measurable candidate was tried"
        found = answer(store, PROBLEM, DEVICE)
        assert (found.source, found.config) == ("stale", CONFIGS[0])
        assert "replayed from a recording" in found.why
        assert any("replayed: a GPU measured this" in ground for ground in found.grounds)
    assert [progress.tried for progress in seen if progress.last] == list(range(1, 25))


def test_a_second_run_measures_nothing_twice_and_a_larger_budget_goes_on(
    folder: Path, cache: Path, tmp_path: Path
) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store, RecordedWorker(folder, cache) as worker:
        first = tune(store, worker, PROBLEM, Budget(candidates=12))
        again = tune(store, worker, PROBLEM, Budget(candidates=12))
        assert (first.new, again.new) == (12, 0)
        assert again.best.config == first.best.config
        more = tune(store, worker, PROBLEM, Budget(candidates=20))
        assert more.new == 8
        fresh = tune(store, worker, PROBLEM, Budget(candidates=5), fresh=True)
        assert fresh.new == 5
        for study in (1, 2):
            kept = store.measurements_of(study, "screen")
            assert max(Counter(map(stored_key, kept)).values()) == 1


def test_runs_of_one_study_at_the_same_time_end_with_the_same_best(tmp_path: Path) -> None:
    budget, beside = Budget(candidates=12, turns=5), list[Report]()
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:

        def watch(progress: Progress) -> None:
            if progress.tried == 3 and not beside:
                beside.append(tune(store, FakeDevice(), PROBLEM, budget))

        report = tune(store, FakeDevice(), PROBLEM, budget, watch=watch)
        assert report.best.config == beside[0].best.config
        kept = Counter(map(stored_key, store.measurements_of(1, "screen")))
        assert (max(kept.values()), store.counts()["study"]) == (1, 1)


def test_what_only_a_newer_version_reads_holds_up_no_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        tune(store, FakeDevice(), PROBLEM, Budget(candidates=8))
        unread = store.measurements_of(1, "screen")[-1].measurement.config
        only_newer_reads(monkeypatch, unread)
        assert tune(store, FakeDevice(), PROBLEM, Budget(candidates=12)).best.tried == 12


def test_a_finished_study_runs_while_a_larger_budget_is_spent(tmp_path: Path) -> None:
    said = list[str]()
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:

        def status() -> str:
            with store.transaction() as session:
                return session.scalars(select(StudyRow.status)).one()

        def watch(progress: Progress) -> None:
            said.extend([status()] if progress.last else [])

        tune(store, FakeDevice(), PROBLEM, Budget(candidates=2))
        tune(store, FakeDevice(), PROBLEM, Budget(candidates=4), watch=watch)
        assert (said, status()) == (["running"] * 2, "finished")


def test_what_won_nearby_is_tried_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        tune(store, FakeDevice(), PROBLEM, Budget(candidates=12))
        first, *_, last = (stored.measurement.config for stored in store.measurements_of(1, "screen"))
        monkeypatch.setattr(Store, "winners_near", lambda self, *_: (last,))
        tune(store, FakeDevice(), PROBLEM, Budget(candidates=2), fresh=True)
        assert [stored.measurement.config for stored in store.measurements_of(2, "screen")] == [first, last]


def test_a_study_by_another_driver_begins_with_what_led_the_one_before(tmp_path: Path) -> None:
    class Other(FakeDevice):
        def begin(self, problem: Gemm) -> Round:
            return FakeRound(problem, replace(PROVENANCE, driver="590.2"), lambda _: False)

    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        before = tune(store, FakeDevice(), PROBLEM, Budget(candidates=40)).best
        screened = [stored.measurement for stored in store.measurements_of(before.winner.study_id, "screen")]
        leaders = sorted(screened, key=lambda one: (one.median_us, one.config.key))[:2]
        first, *_ = screened
        assert first not in leaders
        now = tune(store, Other(), PROBLEM, Budget(candidates=4)).best
        assert now.winner.study_id != before.winner.study_id
        begun = [stored.measurement.config for stored in store.measurements_of(now.winner.study_id, "screen")]
        assert begun[:3] == [first.config, *(one.config for one in leaders)]
        assert now.config == before.config


def test_a_problem_that_was_not_recorded_is_one_sentence(folder: Path, cache: Path, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store, RecordedWorker(folder, cache) as worker:
        with pytest.raises(NothingCorrect, match="recording holds nothing"):
            tune(store, worker, Gemm.parse("512x512x512"), Budget())
        with pytest.raises(NothingCorrect, match=r"grid\.edge"):
            tune(store, worker, Gemm.parse("2147483647x2147483647x64"), Budget())
        with pytest.raises(RecordingError, match="was not recorded"):
            worker.begin(Gemm.parse("512x512x512"))
        assert store.counts()["study"] == 0


def test_a_budget_that_ends_before_the_first_candidate_is_named(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        with pytest.raises(NothingCorrect, match=r"\(none tried\), and the time budget of 1e-09 s is spent: nothing"):
            tune(store, FakeDevice(), PROBLEM, Budget(seconds=1e-9))
        assert tune(store, FakeDevice(), PROBLEM, Budget(candidates=1)).best.tried == 1


def test_a_tune_whose_times_are_all_unstable_says_what_may_use_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def screen(self: FakeRound, candidates: Sequence[Config], more: object = None) -> Iterator[Measurement]:
        yield from (measured(config, outcome=Outcome.UNSTABLE) for config in candidates)

    monkeypatch.setattr(FakeRound, "screen", screen)
    said = r"\(3 unstable\).*nothing can be served; times are unstable where something else uses the GPU"
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store, pytest.raises(NothingCorrect, match=said):
        tune(store, FakeDevice(), PROBLEM, Budget(candidates=3))


def test_a_recording_without_a_correct_candidate_serves_nothing(cache: Path, tmp_path: Path) -> None:
    record_problem(tmp_path / "bad", [CONFIGS[0]] * 0 + CONFIGS[:7], finals=0)
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store, RecordedWorker(tmp_path / "bad", cache) as worker:
        round_ = worker.begin(PROBLEM)
        outcomes = Counter(m.outcome for m in round_.screen(CONFIGS[:7]))
        assert outcomes == {Outcome.CORRECT: 6, Outcome.TIMEOUT: 1}
        assert store.best(PROBLEM, DEVICE) is None


def test_kill_9_at_random_moments_loses_nothing_and_repeats_nothing(cache: Path, tmp_path: Path) -> None:
    record_problem(tmp_path / "recorded" / "h200", MANY)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GEMMTUNE_")},
        "GEMMTUNE_RECORDED_DIR": str(tmp_path / "recorded"),
        "GEMMTUNE_CACHE_DIR": str(cache),
    }
    command = [sys.executable, "-m", "gemmtune", "tune", PROBLEM.shape, "--device", "recorded:h200", "--candidates",
               str(len(MANY)), "--db", str(tmp_path / "s.db"), "--json"]  # fmt: skip
    moments = random.Random(4)
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        for _ in range(4):
            kept = store.counts()["measurement"]
            enough = kept + moments.randint(1, len(MANY) // 6)
            with subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process:
                while store.counts()["measurement"] < enough and process.poll() is None:
                    time.sleep(0.01)
                time.sleep(moments.uniform(0, 0.05))
                process.kill()
            # Where this process is slow, the other one may have come to its end.
            assert store.counts()["measurement"] >= min(enough, len(MANY))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        screened = store.measurements_of(1, "screen")
        assert len(screened) == report["tried"] == len(MANY)
        assert max(Counter(map(stored_key, screened)).values()) == 1
        assert store.counts()["study"] == 1
