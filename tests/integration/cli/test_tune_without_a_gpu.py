"""`gemmtune tune` and `retune` on a machine without a GPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from space.devices import DEFAULT_DEVICE
from space.kinds.gemm import Gemm
from tests.shell import Shell
from tests.support import DEVICE, keep_best
from tuner.errors import TableError
from tuner.evidence.store import Store
from tuner.settings import settings
from tuner.studying.guidance import guidance_for
from tuner.studying.study import Budget, tune
from tuner.tables.recorded import FILE, recorded_bests
from workers.recorded import NoBuilder, RecordedWorker

#: Not among the first set of recordings; in three others.
SHAPE = "16384x4096x4096"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    for module in ("replayed", "retune"):
        monkeypatch.setattr(f"tuner.cli.{module}.driver_present", lambda: False)
    # As in a demonstration: builds took most of a replay's time, and change nothing of which recording is replayed.
    monkeypatch.setattr("workers.recorded.Builder", lambda *_, **__: NoBuilder())
    return Shell(tmp_path)


def test_it_replays_the_recording_that_answers(shell: Shell) -> None:
    answered = shell("best", SHAPE, "--json").json
    tuned = shell("tune", SHAPE, "--json").json
    assert answered["source"] == "recorded"
    assert (tuned["config"], tuned["median_us"]) == (answered["config"], answered["time_us"])


@pytest.mark.parametrize(("shape", "dtype"), [
    ("8192x6144x4096", "bf16"), ("8192x10240x8192", "bf16"), ("8192x8192x8192", "int8"), ("16x4096x14336", "bf16"),
])  # fmt: skip
def test_a_whole_replay_ends_at_the_recorded_answer(shape: str, dtype: str) -> None:
    # Each has several configs of a structure in its finals, or a twin that launches early.
    problem, shipped = Gemm.parse(shape, dtype), Path(__file__).resolve().parents[3] / "recorded"
    answers = recorded_bests(shipped)
    folder, answer = answers.folder_with(problem, DEFAULT_DEVICE), answers.best(problem, DEFAULT_DEVICE)
    assert folder is not None
    assert answer is not None
    guidance = guidance_for(DEFAULT_DEVICE, settings().model_dir)
    replayed = RecordedWorker(shipped / folder, None, compiles=False)
    with replayed as worker, Store.open("sqlite://", create=True) as store:
        found = tune(store, worker, problem, Budget(96), guidance=guidance).best
    assert (found.config, found.policy, found.median_us) == (answer.config, answer.policy, answer.median_us)


def test_a_retune_replays_the_same_recording_and_changes_nothing(shell: Shell) -> None:
    shell("tune", SHAPE)
    before = shell("best", SHAPE, "--json").json
    assert "0 of 1 bests would be measured again" in shell("retune", "--stale", "--dry-run").out
    assert shell("retune", "--stale").out == "nothing is measured again: none of 1 bests is stale\n"
    assert "0 of 1 winners moved" in shell("retune").out
    after = shell("best", SHAPE, "--json").json
    assert (before["source"], after["config"], after["time_us"]) == ("measured", before["config"], before["time_us"])


def test_a_retune_names_the_devices_whose_bests_nothing_here_compares(shell: Shell) -> None:
    shell.environment["GEMMTUNE_DB"] = url = f"sqlite:///{shell.home}/store.db"
    with Store.open(url) as store:
        keep_best(store)
    shell("tune", "512x512x512", "--device", "recorded:h100_wide", "--candidates", "2")
    listed = shell("retune", "--stale", "--dry-run", "--json")
    assert listed.json == {"bests": 0, "stale": []}
    gpus = f"left out: bests of {DEVICE} that were measured on a GPU; only a machine with an {DEVICE} compares them"
    replays = "left out: bests of NVIDIA H100 80GB HBM3 that were replayed; --device with a recording of an NVIDIA H100"
    said = " ".join(listed.err.split())
    assert gpus in said
    assert replays in said
    assert shell("retune").out == "nothing is measured again: the store has no best of this device\n"
    there = shell("retune", "--stale", "--dry-run", "--device", "recorded:h100_wide")
    assert (gpus in " ".join(there.err.split()), "replayed; --device" in there.err) == (True, False)


def test_a_retune_counts_what_several_recordings_answer(shell: Shell) -> None:
    # The first set alone holds one of them.
    for shape in ("8192x2048x128", "512x512x512"):
        shell("tune", shape, "--candidates", "2")
    said = shell("retune", "--candidates", "2").err
    assert re.findall(r"^(\d/\d)  ", said, re.MULTILINE) == ["1/2", "2/2"]


def test_a_best_of_an_older_recording_is_retuned_by_the_one_that_answers(shell: Shell) -> None:
    shape = "4096x4096x4096"
    answered = shell("best", shape, "--json").json
    shell("tune", shape, "--device", "recorded:h200", "--candidates", "4")
    assert shell("best", shape, "--json").json["policy"] == "rounds"
    assert "1 of 1 winners moved" in shell("retune", "--stale").out
    found = shell("best", shape, "--json").json
    assert (found["source"], found["time_us"]) == ("measured", answered["time_us"])


def test_a_campaign_replays_the_recording_that_answers_most_of_its_problems(shell: Shell) -> None:
    answered = shell("best", SHAPE, "--json").json
    run = shell("campaign", "run", "--ladder", "m=16384 n=4096 k=4096", "--candidates", "8")
    assert run.code == 0, run.err
    found = shell("best", SHAPE, "--json").json
    assert (answered["source"], found["source"], found["policy"]) == ("recorded", "measured", answered["policy"])


def test_problems_that_nothing_recorded_choose_no_recording(shell: Shell) -> None:
    unrecorded = "m=123,124,125 n=457 k=789"
    run = shell("campaign", "run", "--ladder", "m=16384 n=4096 k=4096", "--ladder", unrecorded, "--candidates", "8")
    assert "1 done, 3 parked" in run.out
    assert shell("best", SHAPE, "--json").json["source"] == "measured"


@pytest.mark.parametrize("held", ["a table alone", "a damaged table", "a name that opens nothing"])
def test_a_folder_that_can_t_be_replayed_is_left_out(held: str, tmp_path: Path, shell: Shell) -> None:
    folder, shipped = tmp_path / "sets", Path(__file__).resolve().parents[3] / "recorded"
    name = "bf16_nt_512x512x512.parquet"
    (folder / "h200").mkdir(parents=True)
    shutil.copy(shipped / "h200" / name, folder / "h200")
    other = folder / ("my set" if held == "a name that opens nothing" else "mine")
    other.mkdir()
    shutil.copy(shipped / "h200_settled" / FILE, other)
    if held != "a table alone":
        shutil.copy(shipped / "h200" / name, other)
    if held == "a damaged table":
        (other / FILE).write_text("{")
    shell.environment["GEMMTUNE_RECORDED_DIR"] = str(folder)
    assert shell("tune", "512x512x512", "--candidates", "2").code == 0


def test_beside_a_damaged_table_the_others_choose(tmp_path: Path) -> None:
    shipped = Path(__file__).resolve().parents[3] / "recorded"
    for name, text in (("good", (shipped / "h200_again" / FILE).read_text()), ("bad", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_text(text)
    with pytest.raises(TableError):
        recorded_bests(tmp_path)
    assert recorded_bests(tmp_path, damaged_too=False).folder_with(Gemm.parse(SHAPE), DEFAULT_DEVICE) == "good"


@pytest.mark.parametrize("device", ["recorded:h200", "recorded:h200_again"])
def test_other_commands_count_the_candidates_of_the_recording_that_was_replayed(device: str, shell: Shell) -> None:
    # Both sets hold it.
    tuned = shell("tune", "64x4096x4096", "--device", device, "--candidates", "24").out
    count = re.search(r"\b24 of ([\d,]+) recorded candidates were tried", tuned)
    assert count is not None
    for words in (("why", "64x4096x4096"), ("ladder", "4096x4096", "--m", "64")):
        assert f": {count[1]} candidates were recorded" in shell(*words).out


def test_a_word_that_names_a_recording_means_that_one(shell: Shell) -> None:
    assert "other sets do" in shell("tune", SHAPE, "--device", "recorded:h200").err


def test_a_campaign_names_the_sets_that_hold_what_it_parks(shell: Shell) -> None:
    run = shell("campaign", "run", "--ladder", "m=16384 n=4096 k=4096", "--device", "recorded:h200")
    assert run.code == 6, run.err
    assert "but other sets do (--device recorded:h100_suite, recorded:h100_wide, " in " ".join(run.out.split())


def test_what_no_recording_holds_is_told(shell: Shell) -> None:
    assert "the recording holds nothing of bf16 nt 640x640x640" in shell("tune", "640x640x640").err
