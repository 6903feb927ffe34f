"""Answers mean what they say: each test holds something that an answer once said and that was not so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from gemmtune.client import Client
from space.devices import profile_named
from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from space.rank import roofline_us
from tests.fleet import Fleet
from tests.shell import Shell
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, SMALL_CONFIGS, measured, record_problem, study_key
from tuner.answering.answers import answer
from tuner.cli.record import read_problems
from tuner.evidence.picks import LIBRARY, bests_of
from tuner.evidence.records import Best, Ratio
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.gain import gain_of
from tuner.prediction.files import model_for
from tuner.tables.from_recordings import table_of_recordings
from tuner.tables.recorded import FILE, RecordedBests, recorded_bests
from tuner.tables.tables import TableBests, table_bytes
from workers.measurement import Policy
from workers.recording import file_name, read_recording

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "recorded"
#: Recorded once, by earlier kernels, under rounds.
RECORDED = "8192x2048x128"
#: Folders of recordings with a table of their bests, and their devices.
FOLDERS = [("h200", DEVICE), ("h200_settled", DEVICE), ("h200_suite", DEVICE), ("h200_again", DEVICE),
           ("h200_halves", DEVICE),
           ("h100_suite", "NVIDIA H100 80GB HBM3"), ("h100_wide", "NVIDIA H100 80GB HBM3")]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A store with one replayed tune and one replayed campaign."""
    home = tmp_path_factory.mktemp("said")
    record_problem(home / "recorded" / "h200", SMALL_CONFIGS)
    shell = Shell(home, {"GEMMTUNE_RECORDED_DIR": str(home / "recorded"), "GEMMTUNE_CACHE_DIR": str(home / "cache")})
    tuned = shell("tune", PROBLEM.shape, "--device", "recorded:h200")
    (home / "tuned.txt").write_text(tuned.out + tuned.err)
    assert tuned.code == 0, tuned.err
    ran = shell("campaign", "run", "--ladder", "m=256 n=256 k=256", "--device", "recorded:h200")
    assert ran.code == 0, ran.err
    return shell


@pytest.fixture
def fresh(tmp_path: Path) -> Shell:
    """No store; the recordings that ship."""
    return Shell(tmp_path)


# ------------------------------------------------------------------------------------------ cuBLASLt's own wins


def test_a_win_of_cublaslts_own_candidate_is_not_counted_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FAMILY.config({})
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        fleet = Fleet(store)
        problems = (PROBLEM, Gemm.parse("512x256x256"))
        campaign, hand = fleet.campaign(problems), fleet.hand()
        # The library is faster than anything of ours on the second problem.
        monkeypatch.setattr("tests.fleet.time_of", lambda config: 20.0)
        hand.work(hand.claimed())
        monkeypatch.setattr("tests.fleet.time_of", lambda config: 50.0)
        hand.work(hand.claimed())
        found = results.summary(store, campaign.id)
        winners = [problem.config_key.partition(":")[0] for problem in results.problems(store, campaign.id)]
    assert winners == [library.family, "cublaslt"]
    assert found.gain is not None
    assert (found.gain.problems, found.gain.geometric_mean, found.library_won) == (1, pytest.approx(2.0), 1)


def test_a_campaign_that_the_library_won_claims_no_gain(fresh: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    from tuner.cli import campaign_output

    assert gain_of([]) is None
    campaign_output.summary({
        "progress": {"campaign": {"id": 1, "name": "x", "status": "finished", "stopped_because": ""},
                     "problems": {"done": 2}, "tried": 9, "gpu_seconds": 1.0},
        "gain": None, "won": None, "failed": {}, "parked": {}, "library_won": 2, "replayed": 0,
    })  # fmt: skip
    said = capsys.readouterr().out
    assert "none of our kernels won" in said
    assert "cuBLASLt's own candidates won 2 problems" in said
    assert "9 candidates, 1 s of GPU time" in said


def test_best_says_that_the_library_wins_where_it_does(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    said = shell("best", "512x4096x14336")
    assert said.out.startswith("recorded:")
    assert "cuBLASLt's own candidate wins here" in said.out
    assert "against cuBLASLt's first choice" not in said.out


# ------------------------------------------------------------------------------------------------------- replays


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("best", PROBLEM.shape), "replayed from a recording; no GPU was used"),
        (("best", PROBLEM.shape, "--rivals"), "replayed from a recording; no GPU was used"),
        (("ladder", "256x256", "--m", "256"), "stale (replay)"),
        (("campaign", "show", "1"), "times of 1 problem are replayed from recordings; no GPU was used"),
        (("campaign", "show", "1"), "of workers' time"),
        (("campaign", "results", "1"), "NVIDIA H200 (replay)"),
    ],
)
def test_a_replay_says_so_everywhere(shell: Shell, words: tuple[str, ...], said: str) -> None:
    ran = shell(*words)
    assert ran.code == 0
    assert said in " ".join(ran.out.split())


@pytest.mark.parametrize("words", [("best", PROBLEM.shape), ("campaign", "results", "1"), ("tune", PROBLEM.shape)])
def test_a_replay_says_when_the_gpu_measured_and_by_which_kernels(shell: Shell, words: tuple[str, ...]) -> None:
    device = ("--device", "recorded:h200") if words[0] == "tune" else ()
    ran = shell(*words, *device)
    said = " ".join((ran.out + ran.err).split())
    assert "replayed: a GPU measured this at an unrecorded time with kernel source dddddddddddd, which was " in said


def test_a_recordings_time_of_measurement_is_told(fresh: Shell) -> None:
    said = fresh("best", RECORDED).out
    assert "replayed: a GPU measured this on 2026-11-22 at 07:22 UTC with kernel source a7f53d0c9b9c, which is" in said


def test_a_replay_counts_what_was_recorded_apart_from_what_is_worth_trying(shell: Shell) -> None:
    said = (shell.home / "tuned.txt").read_text()
    assert "8 of 8 recorded candidates were tried; " in said
    report = shell("tune", PROBLEM.shape, "--device", "recorded:h200", "--json").json
    assert report["candidates_measurable"] == 8
    assert report["candidates_worth_trying"] > 1_000
    (counted,) = shell("space", PROBLEM.shape, "--json").json["families"]
    assert report["candidates_worth_trying"] == counted["left"]


# ------------------------------------------------------------------------------------------- screening and finals


def test_progress_and_report_say_what_kind_of_number_they_print(shell: Shell) -> None:
    said = (shell.home / "tuned.txt").read_text()
    assert "best in screening 10.0 µs" in said
    assert "screening showed 10.00 µs for it: screening times each candidate briefly" in said
    assert "only their times count" in said


def test_a_rung_of_a_ladder_says_what_changed_from_the_one_above(fresh: Shell) -> None:
    """On what ships: M = 512 is answered by an algorithm of the library, whose stages=35 is no number of stages."""
    rows = fresh("ladder", "4096x14336", "--m", "1,2,512").out.splitlines()[1:]
    whole = " ".join(rows)
    assert whole.count("stages=") == 1
    assert " 512 " in whole
    assert "35" not in whole.partition(" 512 ")[2].partition("replayed")[0]
    assert "cublaslt" in whole


def test_the_one_that_is_served_is_marked_among_its_rivals(shell: Shell) -> None:
    key = shell("best", PROBLEM.shape, "--json").json["config"]["key"]
    marked = [line for line in shell("best", PROBLEM.shape, "--rivals").out.splitlines() if line.startswith("* ")]
    assert [line.split()[-1] for line in marked] == [key]


def test_the_finals_rivals_are_listed_with_their_samples(shell: Shell) -> None:
    rivals = shell("best", PROBLEM.shape, "--rivals", "--json").json["rivals"]
    assert [rival["config"]["family"] for rival in rivals].count("cublaslt") == 2
    assert len(rivals) >= 6
    assert all(len(rival["samples_us"]) >= 5 for rival in rivals)
    assert [rival["median_us"] for rival in rivals] == sorted(rival["median_us"] for rival in rivals)
    finals = shell("tune", PROBLEM.shape, "--device", "recorded:h200", "--json").json["finals"]
    assert all(final["samples_us"] and final["policy"] for final in finals)
    assert shell("best", "64x64x64", "--rivals").code == 6


# ----------------------------------------------------------------------------------------------------- predictions


def test_no_prediction_reaches_below_the_bound_on_any_shape_of_the_development_suite() -> None:
    model, profile = model_for(DEVICE, Path("none")).model, profile_named(DEVICE)
    for name, problem in read_problems(ROOT / "benchmarks" / "problems" / "dev.json"):
        found, bound_us = answer(TableBests([]), problem, DEVICE, model=model), roofline_us(problem, profile)
        assert found.interval_us is not None, name
        assert found.time_us is not None, name
        assert bound_us <= found.interval_us[0] <= found.time_us <= found.interval_us[1], name


def test_a_scaled_time_does_not_go_below_the_bound_either() -> None:
    asked, there = Gemm.parse("2048x4096x4096"), Gemm.parse("2048x4096x3072")
    near = TableBests([_best(there, us=1.0)])
    found = answer(near, asked, DEVICE)
    assert found.source == "nearest"
    assert found.time_us is not None
    assert found.interval_us is not None
    assert found.time_us >= roofline_us(asked, profile_named(DEVICE))
    assert found.interval_us[0] <= found.time_us <= found.interval_us[1]


def test_operands_that_do_not_fit_get_no_answer_not_even_a_neighbours() -> None:
    asked, there = Gemm.parse("262144x262144x262144"), Gemm.parse("262144x262144x131072")
    found = answer(TableBests([_best(there, us=1e9)]), asked, DEVICE)
    assert (found.source, found.config) == ("none", None)
    assert "the operands take 384 GiB" in found.why


def _best(problem: Gemm, us: float) -> Best:
    from datetime import UTC, datetime

    from tuner.evidence.records import StoredMeasurement

    stored = StoredMeasurement(1, 1, DEVICE, "cuda", datetime.now(UTC), PROVENANCE,
                               measured(FAMILY.config({}), us, problem, "final"))  # fmt: skip
    return Best(problem, DEVICE, "cuda", stored, Ratio(1.1, 1.0, 1.2, True), None, None, 1, {})


# ------------------------------------------------------------------------------------------------- recorded answers


def test_the_shipped_recordings_answer_on_a_fresh_store_with_their_evidence(fresh: Shell) -> None:
    found = fresh("best", RECORDED, "--json").json
    assert (found["source"], found["device"], found["policy"]) == ("recorded", DEVICE, "rounds")
    assert "not measured here" in found["why"]
    evidence = found["evidence"]
    assert evidence["device_kind"] == "recorded"
    assert len(evidence["samples_us"]) >= 20
    assert evidence["verification"]["elements"] == 8192 * 2048
    assert evidence["versus_cublaslt_first"]["value"] > 1
    assert (evidence["tried"], evidence["taken_at"][:10]) == (800, "2026-11-22")
    assert fresh.files() == {}


@pytest.mark.parametrize(("folder", "device"), FOLDERS)
def test_every_shape_that_lies_on_disk_is_answered_as_recorded_or_says_why_not(folder: str, device: str) -> None:
    shipped = recorded_bests(SHIPPED)
    for path in sorted((SHIPPED / folder).glob("*.parquet")):
        named, _, batch = path.stem.partition("_b")
        dtype, layout, shape = named.rsplit("_", 2)
        problem = Gemm.parse(shape, dtype, layout, batch=int(batch or 1))
        found = answer(TableBests([]), problem, device, recordings=shipped)
        assert (found.source, found.device) == ("recorded", device), path.name
        assert "no best near" not in found.why


def test_a_measurement_of_the_store_precedes_a_recording(tmp_path: Path) -> None:
    problem = Gemm.parse(RECORDED)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        study = store.begin_study(study_key(problem))
        final = store.record(study.id, measured(FAMILY.config({}), 300.0, problem, "final"), PROVENANCE)
        store.set_bests(bests_of(problem, [final], 1, {}))
        assert answer(store, problem, DEVICE, recordings=recorded_bests(SHIPPED)).source == "measured"


def test_a_policy_that_was_not_recorded_is_told(fresh: Shell) -> None:
    found = fresh("best", RECORDED, "--policy", "sustained", "--json").json
    assert (found["source"], found["policy"]) == ("recorded", "rounds")
    assert found["why"].startswith("no recorded best of this problem is under sustained; from a recording")


def test_a_recording_under_many_policies_answers_under_the_one_that_decides_and_does_not_deny_the_others(
    fresh: Shell
) -> None:
    shape, name = "2048x6144x4096", "bf16_nt_2048x6144x4096.parquet"
    assert any(m.policy is Policy.BURST and m.stage == "final"
               for m, _ in read_recording(SHIPPED / "h200_suite" / name).measurements)  # fmt: skip
    found = fresh("best", shape, "--policy", "burst", "--json").json
    assert (found["source"], found["policy"]) == ("recorded", "sustained")
    assert found["why"].startswith("no recorded best of this problem is under burst; from a recording")


def test_of_two_recordings_the_one_under_the_deciding_policy_answers(fresh: Shell) -> None:
    shape = "2048x6144x4096"
    found = fresh("best", shape, "--json").json
    assert (found["source"], found["policy"], found["evidence"]["tried"]) == ("recorded", "sustained", 48)
    found = fresh("best", shape, "--policy", "rounds", "--json").json
    assert (found["source"], found["policy"], found["evidence"]["tried"]) == ("recorded", "rounds", 800)


@pytest.mark.parametrize("folder", ["h200_settled", "h200_suite"])
def test_of_two_recordings_under_it_the_one_of_todays_kernels_answers(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Gemm.parse("2048x6144x4096")
    expected = RecordedBests([SHIPPED / folder / FILE]).best(problem, DEVICE)
    assert expected is not None
    digest = expected.winner.provenance.kernel_source_digest
    monkeypatch.setattr("tuner.tables.recorded.outdated",
                        lambda best: best.winner.provenance.kernel_source_digest != digest)  # fmt: skip
    found = RecordedBests(sorted(SHIPPED.glob(f"*/{FILE}"))).best(problem, DEVICE)
    assert found is not None
    assert (found.winner.provenance.kernel_source_digest, found.tried) == (digest, expected.tried)


def test_of_recordings_of_older_kernels_the_newest_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Gemm.parse("2048x6144x4096")
    monkeypatch.setattr("tuner.tables.recorded.outdated", lambda best: "our kernels have changed")
    tables = [SHIPPED / folder / FILE for folder in ("h200_settled", "h200_suite")]
    both = [RecordedBests([table]).best(problem, DEVICE) for table in tables]
    newest = max(best.winner.taken_at for best in both if best)
    for order in (tables, tables[::-1]):
        found = RecordedBests(order).best(problem, DEVICE)
        assert found is not None
        assert found.winner.taken_at == newest


@pytest.mark.parametrize(("folder", "device"), FOLDERS)
def test_the_table_beside_the_recordings_holds_their_bests(folder: str, device: str) -> None:
    """Some, and those that the library won: ties among its algorithms are decided by a rule of their own. All would
    take ten seconds."""
    table = json.loads((SHIPPED / folder / FILE).read_text())
    paths = sorted((SHIPPED / folder).glob("*.parquet"))
    assert len(table["entries"]) == len(paths)
    by_key = {entry["problem"]["key"]: entry for entry in table["entries"]}
    lost = {file_name(problem_from_key(key)) for key, entry in by_key.items() if entry["config"]["family"] == LIBRARY}
    read = {*paths[5:-1:12], *(path for path in paths if path.name in lost)}
    some = table_of_recordings(map(read_recording, sorted(read)), device)
    assert some["entries"]
    for entry in json.loads(table_bytes(some))["entries"]:
        assert by_key[entry["problem"]["key"]] == entry


# ------------------------------------------------------------------------------- the same question, the same evidence


@pytest.fixture(scope="module")
def service(shell: Shell) -> Iterator[TestClient]:
    url, recordings = f"sqlite:///{shell.home}/.local/share/gemmtune/gemmtune.db", recorded_bests(SHIPPED)
    with Store.open(url) as store, TestClient(create_app(store, recordings=recordings)) as http:
        yield http


def test_command_service_and_client_give_the_same_answer(shell: Shell, service: TestClient) -> None:
    question = {"m": 256, "n": 256, "k": 256, "dtype": "bf16", "layout": "nt", "batch": 1, "epilogue": "none"}
    over_http = service.get("/v1/best", params=question).json()
    flags = [word for name in ("dtype", "layout", "batch", "epilogue") for word in (f"--{name}", str(question[name]))]
    assert shell("best", PROBLEM.shape, *flags, "--json").json == over_http
    with Client("http://testserver", transport=service._transport) as client:
        fields = {name: value for name, value in question.items() if name not in ("m", "n", "k")}
        assert client.best(256, 256, 256, **fields).document == over_http  # type: ignore[arg-type]
        rows = list(client.measurements(**question, policy="rounds", stage="final"))  # type: ignore[arg-type]
    assert over_http["evidence"]["samples_us"] in [row["samples_us"] for row in rows]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"m": 256, "n": 256, "k": 256, "stage": "final", "policy": "rounds"}, 200),
        ({"m": 64, "n": 256, "k": 256}, 200),
        ({"m": 256, "n": 256}, 422),
        ({"problem": PROBLEM.key, "m": 256, "n": 256, "k": 256}, 422),
        ({"policy": "quick"}, 422),
    ],
)
def test_measurements_take_the_fields_of_a_question(service: TestClient, asked: dict[str, str], status: int) -> None:
    said = service.get("/v1/measurements", params=asked)
    assert said.status_code == status, said.text
    if status == 200:
        wanted = asked["m"] == 256  # type: ignore[comparison-overlap]
        assert bool(said.json()["items"]) == wanted
        assert {row["stage"] for row in said.json()["items"]} <= {"final"}
    else:
        assert said.json()["detail"]


def test_the_service_answers_from_recordings_too(service: TestClient) -> None:
    found = service.get("/v1/best", params={"m": 512, "n": 512, "k": 512}).json()
    assert (found["source"], found["evidence"]["device_kind"]) == ("recorded", "recorded")
    refused = service.get("/v1/best", params={"m": 512, "n": 512, "k": 512, "require": "measured"})
    assert refused.status_code == 404
    assert Policy(found["policy"]) is Policy.CHAIN
