"""The command line as a user types it: exit codes, one sentence, JSON, and nothing written on bad input."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer

import tuner.cli.doctor as doctor_command
import tuner.cli.retune as retune_command
from space.family import family_named
from tests.shell import Shell
from tests.support import (
    DEVICE,
    FAMILY,
    PROBLEM,
    RECORDED_PROVENANCE,
    SMALL_CONFIGS,
    keep_best,
    measured,
    record_problem,
    study_key,
)
from tuner.evidence.records import Best, Policy
from tuner.evidence.store import Store
from tuner.settings import database_url
from tuner.studying.retune import Retuned, Stale
from tuner.views.ladder import CliffFacts, Ladder
from workers.build import digest_of
from workers.builder import source_of

#: More tiles than the kernel can count.
TOO_LARGE = "2147483647x2147483647x64"


def shell_in(folder: Path) -> Shell:
    """A shell whose store, cache and one recording are in a folder."""
    record_problem(folder / "recorded" / "h200", SMALL_CONFIGS)
    return Shell(folder, {
        "GEMMTUNE_DB": str(folder / "store.db"),
        "GEMMTUNE_CACHE_DIR": str(folder / "cache"),
        "GEMMTUNE_RECORDED_DIR": str(folder / "recorded"),
    })  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return shell_in(tmp_path_factory.mktemp("shell"))


def test_a_process_returns_the_code_and_the_words_of_its_command(shell: Shell) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GEMMTUNE_")}
    for words, code in (("tune", PROBLEM.shape, "--device", "recorded:h200", "--json"), 0), (("tune", "0x16x16"), 3):
        done = subprocess.run([sys.executable, "-m", "gemmtune", *words], env=kept | shell.environment,
                              capture_output=True, text=True, timeout=300)  # fmt: skip
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        if code:
            assert (done.stdout, "m = 0" in done.stderr) == ("", True)
        else:
            assert json.loads(done.stdout)["finals"][0]["config"].startswith("sm90_wgmma:")


def test_the_main_job_from_tune_to_export(shell: Shell) -> None:
    tuned = shell("tune", PROBLEM.shape, "--device", "recorded:h200")
    assert tuned.code == 0, tuned.err
    assert "No GPU is used" in tuned.err
    assert "8/8 candidates" in tuned.err
    for said in ("best config", "TFLOP/s", "cuBLASLt's first choice", "replayed from a recording",
                 "replayed: a GPU measured this", "gemmtune serve"):  # fmt: skip
        assert said in tuned.out
    best = shell("best", PROBLEM.shape, "--json").json
    assert (best["source"], best["config"]["family"]) == ("stale", "sm90_wgmma")
    assert best["evidence"]["verification"]["mismatches"] == 0
    assert shell("export", "--format", "json", "--all", "--out", str(shell.home / "t.json")).code == 0
    table = json.loads((shell.home / "t.json").read_text())
    assert [entry["config"] for entry in table["entries"]] == [best["config"]]


def test_what_comes_next_is_of_the_same_store_and_exports_no_replay(shell: Shell) -> None:
    store = str(shell.home / "my store.db")
    tuned = shell("tune", PROBLEM.shape, "--device", "recorded:h200", "--db", store)
    following = tuned.out.partition("next:\n")[2].splitlines()
    assert [" ".join(line.split()[:2]) for line in following] == ["gemmtune best", "gemmtune serve"]
    assert all(shlex.split(line)[-2:] == ["--db", store] for line in following)


def test_what_answers_a_problem_that_a_store_lacks_tunes_it_into_that_store(shell: Shell) -> None:
    store = str(shell.home / "my store.db")
    Store.open(f"sqlite:///{store}").close()
    asked = ("640x640x640", "--db", store)
    for words in (("best", *asked), ("best", *asked, "--history"), ("best", *asked, "--rivals"), ("why", *asked)):
        said = (ran := shell(*words)).out + ran.err
        assert shlex.split(said.strip().rstrip("`").rpartition("gemmtune tune ")[2]) == [*asked]


def test_what_a_ladder_contradicts_is_tuned_into_its_store(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(shell.home / "my store.db")
    Store.open(f"sqlite:///{store}").close()
    cliff = CliffFacts("jump", 32, 9.0, 16, 8.0, "it takes longer", (FAMILY.config({}),))
    monkeypatch.setattr("tuner.views.ladder.ladder", lambda *_: Ladder((), (cliff,), ()))
    said = shell("ladder", "4096x4096", "--db", store).out
    assert shlex.split(said.strip().rpartition("gemmtune tune ")[2]) == ["32x4096x4096", "--db", store]


@pytest.mark.parametrize("name", ["50%20off.db", "which?mode=ro.db", "é #1.db"])
def test_a_path_may_hold_what_urls_escape(shell: Shell, name: str) -> None:
    store = shell.home / "names" / name
    assert shell("tune", PROBLEM.shape, "--device", "recorded:h200", "--db", str(store)).code == 0
    assert store.is_file()
    assert shell("best", PROBLEM.shape, "--db", str(store), "--json").json["source"] == "stale"
    assert shell("best", PROBLEM.shape, "--db", str(store), "--rivals").code == 0
    store.unlink()
    assert f"{store} is not there" in shell("best", PROBLEM.shape, "--db", str(store)).err


def test_the_history_of_a_best_has_its_reason_and_a_first_best_stays(shell: Shell) -> None:
    shell("tune", PROBLEM.shape, "--device", "recorded:h200")
    (change,) = shell("best", PROBLEM.shape, "--history", "--json").json["changes"]
    assert change["reason"] == "the first that was measured"
    assert "the first that was measured" in shell("best", PROBLEM.shape, "--history").out
    refused = shell("best", PROBLEM.shape, "--rollback", str(change["id"]))
    assert (refused.code, "nothing was best before it" in refused.err) == (6, True)


def test_json_stands_alone_on_standard_output(shell: Shell) -> None:
    tuned = shell("tune", PROBLEM.shape, "--device", "recorded:h200", "--json").json
    assert tuned["finals"][0]["config"].startswith("sm90_wgmma:")
    assert shell("space", "64x64x64", "--json").json["families"][0]["family"] == "sm90_wgmma"
    assert "driver" in {check["name"] for check in shell("doctor", "--json").json["checks"]}


def test_doctor_prints_each_check_when_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GEMMTUNE_RECORDED_DIR", str(tmp_path))
    monkeypatch.setattr(doctor_command, "fleet_checkup", lambda *_: pytest.fail("the fleet comes last"))
    with pytest.raises(pytest.fail.Exception):
        doctor_command.doctor()
    printed = [line.split()[1] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert printed == ["driver", "gpu", "nvrtc", "cache", "recordings"]


def test_explain_says_illegal_with_its_exit_code_and_the_nearest_change(shell: Shell) -> None:
    said = shell("explain", "4096x4096x4096", "--config", "tile_n=256,stages=5,epilogue=direct")
    assert said.code == 1
    assert "smem.capacity" in said.out
    assert "stages=4 is the nearest legal change" in said.out
    assert shell("explain", "4096x4096x4096").code == 0


def test_explain_without_a_config_explains_a_legal_one(shell: Shell) -> None:
    """The defaults are of 16-bit operands, and illegal for these."""
    said = shell("explain", "4096x4096x4096", "--dtype", "fp8_e4m3")
    assert said.code == 0
    assert said.out.startswith("legal for fp8_e4m3 ")
    assert ",tile_k=128," in said.out
    assert shell("explain", "4096x4096x4096", "--dtype", "fp8_e4m3", "--config", "tile_k=64").code == 1


def test_explain_takes_a_config_with_its_family_as_other_commands_print_it(shell: Shell) -> None:
    plain = shell("explain", "64x64x64", "--config", "tile_n=128", "--family", "mma_sync")
    for family in ((), ("--family", "mma_sync")):
        named = shell("explain", "64x64x64", "--config", "mma_sync:tile_n=128", *family)
        assert (named.code, named.out) == (plain.code, plain.out)
    other = shell("explain", "64x64x64", "--config", "sm90_wgmma:tile_n=128", "--family", "mma_sync")
    assert (other.code, "'sm90_wgmma:tile_n' names a family too" in other.sentence) == (3, True)
    assert "family 'sm91' is unknown" in shell("explain", "64x64x64", "--config", "sm91:tile_n=8").sentence


def test_explain_prints_no_empty_line_where_nothing_is_derived(shell: Shell) -> None:
    said = shell("explain", "64x64x64", "--family", "cublaslt", "--config", "rank=3", "--arch", "sm_89")
    assert "".join(said.out.split()).endswith("workspace_bytes=0")
    assert not any(line.isspace() for line in said.out.splitlines())


def test_explain_calls_no_algorithm_of_a_library_legal(shell: Shell) -> None:
    # cuBLASLt fuses no silu.
    said = shell("explain", "64x64x64", "--epilogue", "silu", "--family", "cublaslt")
    told = "cublaslt alone knows what is legal for bf16 nt 64x64x64 silu on sm_90a: rank=0"
    assert " ".join(said.out.split()).startswith(told)


def test_explain_names_several_changes_where_one_does_not_help(shell: Shell) -> None:
    said = shell("explain", "4096x4096x4096", "--config", "schedule=pingpong,consumer_warpgroups=3,tile_n=256")
    assert said.code == 1
    assert "tile_m=64,consumer_warpgroups=2 is the nearest legal change: it changes 2 knobs at once" in said.out


def test_rules_of_what_is_worth_trying_can_be_switched_off(shell: Shell) -> None:
    words = ("space", "8192x8192x8192", "--json")
    two = ("--no-rule", "worth.cache_hint", "--no-rule", "worth.pdl")
    all_rules, fewer = (shell(*words, *flags).json for flags in ((), two))
    (pruned,), (wider,) = all_rules["families"], fewer["families"]
    removing = {rule["rule"] for rule in pruned["removed"]} - {rule["rule"] for rule in wider["removed"]}
    assert removing == {"worth.cache_hint", "worth.pdl"}
    # Three hints, and launches with and without.
    assert wider["left"] == 6 * pruned["left"]


def test_space_lists_knobs_with_their_values_and_meaning(shell: Shell) -> None:
    said = shell("space", "1x512x512", "--knobs").out
    for family in (family_named("sm90_wgmma"), family_named("gemv")):
        assert f"{family.name}: compile knobs decide the program" in said
        assert all(knob.name in said for knob in family.knobs)
    assert "rows of A; a thread holds one sum per row" in " ".join(said.split())
    (listed,) = shell("space", "1x512x512", "--family", "gemv", "--knobs", "--json").json["families"]
    assert listed["knobs"][1] == {"name": "load_bytes", "domain": [1, 2, 4, 8, 16], "default": 16, "decides": "compile",
                                  "meaning": "bytes of a row of B per load"}  # fmt: skip


def test_space_counts_add_up(shell: Shell) -> None:
    for flags in ((), ("--unpruned",)):
        counted = shell("space", "4096x4096x4096", "--json", *flags).json
        for one in counted["families"]:
            assert one["left"] + sum(rule["removed"] for rule in one["removed"]) == one["product"]


def test_untuned_shapes_are_answered_with_their_source(shell: Shell) -> None:
    assert shell("best", "5000x5000x5000").out.startswith("predicted:")
    assert shell("best", TOO_LARGE, "--json").json["source"] == "none"


def test_a_gpu_that_is_not_here_is_told_with_the_fix(shell: Shell) -> None:
    if shell("doctor", "--json").out.find('"name": "gpu",\n      "state": "ok"') >= 0:
        pytest.skip("this machine has a GPU")
    result = shell("tune", PROBLEM.shape, "--device", "cuda:0")
    assert result.code == 4
    assert "recordings are replayed" in result.err


def test_a_replay_is_not_recorded_as_if_a_gpu_had_measured_it(shell: Shell) -> None:
    (shell.home / "list.json").write_text(json.dumps([{"name": "one", **PROBLEM.fields()}]))
    before = {path.name for path in shell.home.iterdir()}
    result = shell("record", str(shell.home / "list.json"), "--out", str(shell.home / "again"), "--device",
                   "recorded:h200", "--db", str(shell.home / "record.db"))  # fmt: skip
    assert (result.code, "--device recorded:h200 replays a recording" in result.sentence) == (4, True)
    assert {path.name for path in shell.home.iterdir()} == before


def test_damaged_files_are_told_and_left_alone(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    store = tmp_path / "store.db"
    store.write_bytes(b"no database at all" * 50)
    result = shell("tune", PROBLEM.shape, "--device", "recorded:h200")
    assert (result.code, store.read_bytes()) == (5, b"no database at all" * 50)
    recording = next((tmp_path / "recorded" / "h200").glob("*.parquet"))
    recording.write_bytes(recording.read_bytes()[:300])
    result = shell("tune", PROBLEM.shape, "--device", "recorded:h200", "--db", str(tmp_path / "other.db"))
    assert result.code == 4
    assert recording.name in result.err


def test_doctor_counts_recordings_and_names_a_broken_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shell_in(tmp_path)
    monkeypatch.setattr("workers.recording._measurement", lambda *_: pytest.fail("a measurement was parsed"))
    (whole,) = [check for check in shell("doctor", "--json").json["checks"] if check["name"] == "recordings"]
    assert (whole["state"], "recorded:h200 (1 problem)" in whole["found"]) == ("ok", True)
    recording = next((tmp_path / "recorded" / "h200").glob("*.parquet"))
    recording.write_bytes(recording.read_bytes()[:300])
    said = shell("doctor", "--json")
    (broken,) = [check for check in said.json["checks"] if check["name"] == "recordings"]
    assert (said.code, broken["state"], recording.name in broken["found"]) == (1, "broken", True)


def test_training_without_its_package_ends_before_it_reads_anything(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    ran = shell("model", "train")
    assert (ran.code, "training needs scikit-learn: pip install" in ran.sentence) == (3, True)
    assert "reads" not in ran.err


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    (tmp_path / "file").write_text("in the way")
    words = ("tune", PROBLEM.shape, "--device", "recorded:h200")
    result = shell(*words, GEMMTUNE_CACHE_DIR=str(tmp_path / "file"))
    assert result.code == 4
    assert "GEMMTUNE_CACHE_DIR" in result.err


def test_retune_counts_what_could_not_be_measured_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    db = str(tmp_path / "store.db")
    with Store.open(database_url(db)) as store:
        best = keep_best(store)
    done = [Retuned(Stale(best, ("a new driver",)), None, None, stands=False, why="the GPU fell off the bus"),
            Retuned(Stale(best, ("a new driver",)), best, best.winner.measurement, stands=True, why="")]  # fmt: skip
    monkeypatch.setattr(retune_command, "measure_again", lambda *_: iter(done))
    with pytest.raises(typer.Exit) as ended:
        retune_command.retune(device="recorded:h200", db=db)
    assert ended.value.exit_code == 6
    assert "0 of 1 winners moved; 1 could not be measured" in capsys.readouterr().out


def test_retune_tells_winners_that_are_not_served_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    db = str(tmp_path / "store.db")
    with Store.open(database_url(db)) as store:
        old = keep_best(store)
    now = replace(old, winner=replace(old.winner, measurement=measured(FAMILY.config({"tile_n": 64}), 1.0)))
    done = [Retuned(Stale(old, ("a new driver",)), now, old.winner.measurement, stands, why="its best takes less")
            for stands in (True, False)]  # fmt: skip
    monkeypatch.setattr(retune_command, "measure_again", lambda *_: iter(done))
    retune_command.retune(device="recorded:h200", db=db)
    said = capsys.readouterr().out
    assert "2 of 2 winners moved, 1 of them to a config that is not served" in said
    assert "(geometric mean of 1;" in said


def test_retune_names_both_policies_where_it_prints_times_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    db = str(tmp_path / "store.db")
    with Store.open(database_url(db)) as store:
        now = keep_best(store)
    won = replace(now.winner, measurement=replace(now.winner.measurement, policy=Policy.ROUNDS))
    done = [Retuned(Stale(old, ("a new driver",)), now, None, stands=True, why="")
            for old in (now, replace(now, winner=won))]  # fmt: skip
    monkeypatch.setattr(retune_command, "measure_again", lambda *_: iter(done))
    retune_command.retune(device="recorded:h200", db=db)
    said = " ".join(capsys.readouterr().err.split())
    assert f"{now.median_us:.2f} µs then, {now.median_us:.2f} µs now (burst)" in said
    assert f"{now.median_us:.2f} µs then (rounds), {now.median_us:.2f} µs now (burst)" in said


#: Of `SMALL_CONFIGS[0]`, by the NVRTC of recordings.
BUILD = digest_of(source_of(PROBLEM, SMALL_CONFIGS[0], "sm_90a"), "sm_90a", RECORDED_PROVENANCE.nvrtc)


@pytest.mark.parametrize(("build", "said"), [
    # Another kernel of the family has changed, and not this one.
    (BUILD, "10.00 µs under chain_pdl: driver 570.1 is now 580.1"),
    ("a" * 64, f"10.00 µs: our kernels have changed since they were recorded, with source {'e' * 12}"),
])  # fmt: skip
def test_retune_lists_the_first_best_of_a_problem_that_is_stale(tmp_path: Path, build: str, said: str) -> None:
    shell = shell_in(tmp_path)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        for driver, policy in (("580.1", Policy.CHAIN), ("570.1", Policy.CHAIN_PDL), ("580.1", Policy.BURST)):
            by = replace(RECORDED_PROVENANCE, driver=driver, kernel_source_digest="e" * 64)
            study = store.begin_study(replace(study_key(), device_kind="recorded"), fresh=True)
            taken = replace(measured(SMALL_CONFIGS[0], 10.0, stage="final", policy=policy), build_digest=build)
            kept = store.record(study.id, taken, by)
            store.set_bests([Best(PROBLEM, DEVICE, "recorded", kept, None, None, None, 1, {})])
    listed = shell("retune", "--stale", "--dry-run", "--device", "recorded:h200")
    assert said in listed.out
    assert "1 of 1 bests would be measured again" in listed.out


def test_retune_promises_no_going_on_where_a_rerun_begins_with_the_slowest_again(shell: Shell) -> None:
    shell("tune", PROBLEM.shape, "--candidates", "4", "--device", "recorded:h200")
    said = " ".join(shell("retune", "--seconds", "0", "--device", "recorded:h200").out.split())
    assert "1 are left: without --stale a rerun begins with the slowest again" in said


def test_retune_lists_what_is_stale_and_creates_no_store(shell: Shell) -> None:
    shell("tune", PROBLEM.shape, "--device", "recorded:h200")
    listed = shell("retune", "--stale", "--dry-run", "--json", "--device", "recorded:h200")
    assert listed.json == {"bests": 1, "stale": []}
    missing = shell.home / "missing.db"
    refused = shell("retune", "--stale", "--device", "recorded:h200", "--db", str(missing))
    assert (refused.code, missing.exists()) == (5, False)
