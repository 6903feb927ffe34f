"""`gemmtune recordings`: list and export."""

from __future__ import annotations

import errno
import json
import sys
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gemmtune.command import app
from space.errors import ConfigError, ProblemError
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.shell import Ran, Shell
from tests.support import FACTS, FAMILY, PROBLEM, PROVENANCE, measured, record_problem, study_key
from tuner.cli.record import part_of, read_problems, shared
from tuner.cli.recordings import list_
from tuner.errors import ExportError, NothingCorrect
from tuner.evidence.store import Store
from workers.errors import DriverError, RecordingError, RecordingExists
from workers.measurement import Measurement, Outcome, Policy
from workers.recorded import RecordedWorker
from workers.recording import read_recording

CONFIGS = [FAMILY.config({"tile_n": n}) for n in range(8, 129, 8)]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return record_problem(tmp_path / "h200", CONFIGS)


def run(*words: object) -> str:
    result = CliRunner().invoke(app, ["recordings", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list_says_what_a_folder_holds(recording: Path) -> None:
    (entry,) = json.loads(run("list", recording.parent, "--json"))["recordings"]
    assert (entry["problem"], entry["screened"], entry["device"]) == (PROBLEM.key, len(CONFIGS), "NVIDIA H200")
    assert 0 < entry["correct"] < entry["screened"]


def test_what_is_listed_before_a_file_that_cannot_be_read_is_printed(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (recording.parent / "z.parquet").write_bytes(b"not one")
    with pytest.raises(RecordingError, match=r"z\.parquet can't be read as Parquet"):
        list_(recording.parent)
    assert f"{recording}: {PROBLEM.key} on NVIDIA H200" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(RecordingError):
        list_(recording.parent, as_json=True)
    assert capsys.readouterr().out == ""


def test_a_list_refuses_a_file_without_rows_and_one_whose_times_are_none(recording: Path) -> None:
    table = pq.read_table(recording)
    samples = pa.array([[]] * len(table), table.schema.field("samples_us").type)
    bad = table.set_column(table.column_names.index("samples_us"), "samples_us", samples)
    for rows, said in ((table.slice(0, 0), "holds no measurement"), (bad, "holds a row that is not a measurement")):
        pq.write_table(rows, recording)
        with pytest.raises(RecordingError, match=said):
            list_(recording)


def test_export_writes_results_and_metadata_once(recording: Path, tmp_path: Path) -> None:
    written = json.loads(run("export", recording, "--out", tmp_path / "t4", "--json"))["written"]
    assert [Path(name).name for name in written] == [
        f"{recording.stem}.results.json", f"{recording.stem}.metadata.json",
    ]  # fmt: skip
    before = Path(written[0]).read_bytes()
    assert len(json.loads(before)["results"]) == len(CONFIGS)
    assert json.loads(run("export", recording, "--out", tmp_path / "t4", "--json"))["written"] == []
    assert Path(written[0]).read_bytes() == before


def test_recordings_of_one_problem_in_two_folders_are_both_written(recording: Path, tmp_path: Path) -> None:
    other = record_problem(tmp_path / "sets" / "new", CONFIGS[:3])
    recording = recording.rename(tmp_path / "sets" / recording.name)
    written = json.loads(run("export", tmp_path / "sets", "--out", tmp_path / "t4", "--json"))["written"]
    held = {Path(name).relative_to(tmp_path / "t4").parent.name: len(json.loads(Path(name).read_bytes())["results"])
            for name in written if name.endswith(".results.json")}  # fmt: skip
    assert held == {"": len(CONFIGS), "new": 3}
    with pytest.raises(ExportError, match=f"{recording} and {other} are of one problem: name the folder of one"):
        run("export", tmp_path / "sets", "--format", "json", "--out", tmp_path / "bests")


def test_a_table_of_bests_leaves_out_recordings_without_finals(tmp_path: Path) -> None:
    with Store.open(database := f"sqlite:///{tmp_path / 'tuned.db'}") as store:
        for problem, stages in ((PROBLEM, ("screen", "final")), (Gemm(64, 64, 64), ("screen",))):
            study = store.begin_study(study_key(problem))
            rows = [measured(CONFIGS[0], problem=problem, stage=stage) for stage in stages]
            store.record_many(study.id, rows, PROVENANCE)
    run("save", tmp_path / "saved", "--db", database)
    said = run("export", tmp_path / "saved", "--format", "json", "--out", tmp_path / "bests")
    assert "holds the bests of 1 recording; 1 recording without a correct final left out" in " ".join(said.split())
    (entry,) = json.loads((tmp_path / "bests" / "bests.json").read_text())["entries"]
    assert entry["problem"]["key"] == PROBLEM.key


def test_of_a_tune_that_went_on_the_last_finals_are_saved(tmp_path: Path) -> None:
    """Else one of its first finals, taken on a cooler card, would win against the library of its last."""
    library, (first, second, third) = family_named("cublaslt").config({"rank": 0}), CONFIGS[7:10]
    with Store.open(database := f"sqlite:///{tmp_path / 'tuned.db'}") as store:
        study = store.begin_study(study_key())
        for screened, times in (
            ((first, second), {first: 9.0, second: 9.5, library: 12.0}),
            ((third,), {second: 10.4, third: 10.5, library: 13.0}),
        ):
            store.record_many(study.id, [measured(config) for config in screened], PROVENANCE)
            finals = [measured(config, us, stage="final", policy=Policy.CHAIN) for config, us in times.items()]
            store.record_many(study.id, finals, PROVENANCE)
    (path,) = json.loads(run("save", tmp_path / "saved", "--db", database, "--json"))["written"]
    rows = [one for one, _ in read_recording(Path(path)).measurements]
    assert [one.config for one in rows if one.stage == "screen"] == [first, second, third]
    assert {one.config: one.median_us for one in rows if one.stage == "final"} == times
    run("export", path, "--format", "json", "--out", tmp_path / "bests")
    (entry,) = json.loads((tmp_path / "bests" / "bests.json").read_text())["entries"]
    assert (entry["config"]["key"], entry["versus_cublaslt_first"]["value"]) == (second.key, 13.0 / 10.4)


def test_what_another_study_found_wrong_is_not_saved_as_right(tmp_path: Path) -> None:
    """Else a build that the store serves no longer would be the recording's best, and win its replays."""
    times = {CONFIGS[7]: 9.0, CONFIGS[8]: 9.5, CONFIGS[9]: 9.7}

    def built(one: Measurement) -> Measurement:
        return replace(one, build_digest=f"{CONFIGS.index(one.config):064x}")

    with Store.open(database := f"sqlite:///{tmp_path / 'tuned.db'}") as store:
        study = store.begin_study(study_key())
        store.record_many(study.id, [built(measured(config)) for config in times], PROVENANCE)
        finals = [built(measured(config, us, stage="final", policy=Policy.CHAIN)) for config, us in times.items()]
        store.record_many(study.id, finals, PROVENANCE)
        later = store.begin_study(study_key(), fresh=True)
        store.record(later.id, built(measured(CONFIGS[7], outcome=Outcome.WRONG_RESULT)), PROVENANCE)
        store.record_many(later.id, [built(measured(config)) for config in CONFIGS[8:10]], PROVENANCE)
    (path,) = json.loads(run("save", tmp_path / "saved", "--db", database, "--json"))["written"]
    run("export", path, "--format", "json", "--out", tmp_path / "bests")
    (entry,) = json.loads((tmp_path / "bests" / "bests.json").read_text())["entries"]
    assert entry["config"]["key"] == CONFIGS[8].key
    assert CONFIGS[7] not in {one.config for one, _ in read_recording(Path(path)).measurements}


def test_a_stores_studies_are_saved_once_and_replay_under_their_own_policy(tmp_path: Path) -> None:
    database, out = f"sqlite:///{tmp_path / 'tuned.db'}", tmp_path / "saved"
    with Store.open(database) as store:
        for policy, configs in ((Policy.BURST, CONFIGS[:5]), (Policy.ROUNDS, CONFIGS[:3])):
            study = store.begin_study(replace(study_key(), policy=policy))
            rows = [measured(config, 10.0 + place, policy=policy) for place, config in enumerate(configs)]
            store.record_many(study.id, rows, PROVENANCE)
        # Of a recording that was taken with the store: the library's candidates have a study of their own.
        library = [family_named("cublaslt").config({"rank": rank}) for rank in range(8)]
        theirs = store.begin_study(replace(study_key(), family="cublaslt"))
        store.record_many(theirs.id, [measured(config) for config in library], PROVENANCE)
        replayed = store.begin_study(replace(study_key(Gemm(64, 64, 64)), device_kind="recorded"))
        store.record(replayed.id, measured(CONFIGS[0], problem=Gemm(64, 64, 64)), PROVENANCE)
    (path,) = json.loads(run("save", out, "--db", database, "--json"))["written"]
    saved = read_recording(Path(path))
    assert saved.problem == PROBLEM
    assert [one.config for one, _ in saved.measurements] == CONFIGS[:5]
    with RecordedWorker(out, None) as worker:
        assert worker.facts.screens_under is worker.begin(PROBLEM).policy is Policy.BURST
    with pytest.raises(NothingCorrect, match="tune on the GPU first"):
        run("save", out, "--db", database)
    assert list(out.iterdir()) == [Path(path)]


def test_a_folder_is_shared_as_one_file_that_replays(recording: Path, tmp_path: Path) -> None:
    archive = tmp_path / "card.zip"
    assert shared(recording.parent, archive) == 1
    with zipfile.ZipFile(archive) as made:
        made.extractall(tmp_path / "received")
    (entry,) = json.loads(run("list", tmp_path / "received" / "NVIDIA H200", "--json"))["recordings"]
    assert (entry["problem"], entry["screened"]) == (PROBLEM.key, len(CONFIGS))
    with pytest.raises(RecordingError, match=r"card\.zip exists"):
        shared(recording.parent, archive)
    with pytest.raises(RecordingError, match="recordings of no device"):
        shared(tmp_path, tmp_path / "other.zip")


def test_an_archive_that_cannot_be_written_is_one_sentence_and_leaves_nothing(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RecordingError, match="file exists: remove it"):
        shared(recording.parent, tmp_path / "file" / "card.zip")
    monkeypatch.setattr("zipfile.ZipFile.write", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    archive = tmp_path / "new" / "card.zip"
    with pytest.raises(RecordingError, match=r"card\.zip can't be written \(No space left on device\): free space"):
        shared(recording.parent, archive)
    assert list(archive.parent.iterdir()) == []


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Takes the recorder's place, beside a list of two problems and a GPU."""
    problems = {"one": PROBLEM, "two": PROBLEM.resized(8, 8, 8)}
    listed = [{"name": name, **problem.fields()} for name, problem in problems.items()]
    (tmp_path / "list.json").write_text(json.dumps(listed))
    monkeypatch.setattr("tuner.cli.record.driver_present", lambda: True)
    monkeypatch.setattr("tuner.cli.record.open_worker", lambda *_: nullcontext(Mock(facts=FACTS)))
    monkeypatch.setattr("tuner.studying.recorder.record", taken := Mock())
    return taken


def recorded(tmp_path: Path, out: str, *words: str) -> Ran:
    shell = Shell(tmp_path, {"GEMMTUNE_DB": str(tmp_path / "store.db")})
    return shell("record", str(tmp_path / "list.json"), "--out", str(tmp_path / out), *words)


def test_what_another_process_has_recorded_meanwhile_does_not_stop_the_others(recorder: Mock, tmp_path: Path) -> None:
    recorder.side_effect = RecordingExists("it exists"), Mock(path=Path("two.parquet"), screened=4, correct=4)
    ran = recorded(tmp_path, "out", "--json")
    assert (ran.code, [one["name"] for one in ran.json["recorded"]]) == (0, ["two"])
    assert "one: another process has recorded it meanwhile" in ran.err


def test_a_problem_that_the_card_cannot_hold_does_not_stop_the_others(recorder: Mock, tmp_path: Path) -> None:
    recorder.side_effect = DriverError("it needs more memory"), Mock(path=Path("two.parquet"), screened=4, correct=4)
    ran = recorded(tmp_path, "out", "--json")
    assert (ran.code, ran.json["failed"]) == (6, ["one: it needs more memory"])
    assert [one["name"] for one in ran.json["recorded"]] == ["two"]


def test_what_would_stop_a_recording_at_its_end_stops_it_before_anything_is_measured(
    recorder: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "card.zip").write_text("an earlier one")
    share = "--share", str(tmp_path / "card.zip")
    assert recorded(tmp_path, "out", *share).sentence.endswith("card.zip exists: remove it, or name another file")
    assert "card.zip can't be written (File exists)" in recorded(tmp_path, "card.zip").sentence
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = recorded(tmp_path, "new")
    assert "can't be written without PyArrow: install PyArrow, the extra `record`" in ran.sentence
    assert (ran.code, recorder.call_count, (tmp_path / "new").exists()) == (4, 0, False)


def test_a_problem_that_was_not_recorded_is_told_in_the_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list.json").write_text(json.dumps([{"name": "one", **PROBLEM.fields()}]))
    monkeypatch.setattr("tuner.cli.record.driver_present", lambda: True)
    monkeypatch.setattr("tuner.cli.record.open_worker", lambda *_: nullcontext(Mock(facts=FACTS)))
    monkeypatch.setattr("tuner.studying.recorder.record", Mock(side_effect=NothingCorrect("none is correct")))
    ran = Shell(tmp_path, {"GEMMTUNE_DB": str(tmp_path / "store.db")})(
        "record", str(tmp_path / "list.json"), "--out", str(tmp_path / "out"), "--json"
    )
    assert (ran.code, ran.json) == (6, {"recorded": [], "failed": ["one: none is correct"]})
    assert "1 of 1 problems were not recorded: one: none is correct" in ran.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "list.json cannot be read (No such file or directory): give a file of shapes"),
        (b"m,n,k\n16,16,16\n", "(Expecting value: line 1 column 1 (char 0)): give a JSON list of objects, as in ["),
        (b"\xff[]", "list.json, line 1 cannot be read: it is not UTF-8 (invalid start byte); save it as UTF-8"),
        (b"{}", 'list.json is not a list of problems: give a JSON list of objects, as in [{"name": "square", '),
        (b"[]", "list.json is not a list of problems: give a JSON list of objects, as in ["),
        (b"[[1]]", "list.json is not a list of problems: give a JSON list of objects, as in ["),
        (b'[{"m":1}]', "list.json, entry 1 has no name: name each problem, as in "),
        (b'[{"name":"one"}]', "one: a gemm problem needs m, n, k"),
    ],
    ids=str,
)
def test_a_list_to_record_that_is_none_is_one_sentence(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "list.json").write_bytes(content)
    ran = recorded(tmp_path, "out")
    assert ran.code == 3
    assert said in ran.sentence


@pytest.mark.parametrize("device", [(), ("--device", "auto"), ("--device", "cuda:1")])
def test_without_a_gpu_nothing_can_be_recorded(
    recorder: Mock, tmp_path: Path, device: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.cli.record.driver_present", lambda: False)
    ran = recorded(tmp_path, "out", *device)
    assert (ran.code, recorder.called) == (4, False)
    assert ran.sentence.endswith("(libcuda.so.1 with a GPU): run it on the machine of the card")


def test_what_cannot_be_recorded_is_not_offered(tmp_path: Path) -> None:
    """`record` refuses every recording, which its help named among the devices."""
    assert "recorded:" not in CliRunner().invoke(app, ["record", "--help"]).output
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps([{"name": name, "m": 8, "n": 8, "k": 8} for name in ("square", "few rows")]))
    with pytest.raises(ProblemError, match=r"--only squar is not in .*list.json: it has square, few rows$"):
        read_problems(listed, ["squar"])


def test_a_folder_without_recordings_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="contains no recording"):
        run("list", tmp_path)


def test_an_unknown_format_is_one_sentence(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="format 'csv' is unknown: use one of t4"):
        run("export", recording, "--out", tmp_path, "--format", "csv")


def test_a_folder_that_cannot_be_written_is_one_sentence(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ExportError, match="can't be written"):
        run("export", recording, "--out", tmp_path / "file" / "t4")


def test_parts_of_a_list_are_the_whole_list() -> None:
    named = [(f"p{place}", PROBLEM) for place in range(7)]
    parts = [part_of(named, f"{place}/3") for place in (1, 2, 3)]
    assert sorted(name for part in parts for name, _ in part) == [name for name, _ in named]
    assert [len(part) for part in parts] == [3, 2, 2]


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b", "1/2/3", "-1/2", "1/²"])
def test_a_part_that_is_none_is_named(part: str) -> None:
    with pytest.raises(ProblemError, match="is not I/N"):
        part_of([], part)
