"""`gemmtune shapes` and `gemmtune export` as a user types them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gemmtune.command import app
from space.errors import ConfigError, ProblemError
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.answering.answers import measured as answer
from tuner.evidence import misses
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Best, Policy, Ratio
from tuner.evidence.store import Store
from tuner.fleet.campaigns import results
from tuner.tables.bundles import read_bundle
from tuner.tables.exporters import EXPORTERS
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.options import ExportOptions
from tuner.tables.importers import shapes_of
from tuner.tables.tables import read_table

UNTUNED = "GemmTunableOp_BFloat16_TN,tn_256_256_256_ld_256_256_256\nGemmTunableOp_double_TN,tn_8_8_8_ld_8_8_8\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store)
    (tmp_path / "untuned.csv").write_text(UNTUNED)
    (tmp_path / "counted.csv").write_text("m,n,k,count\n16,6144,4096,32\n")
    return tmp_path


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def export(folder: Path, out: str, *words: object) -> str:
    return run("export", "--out", folder / out, "--device", DEVICE, "--db", folder / "store.db", *words)


def test_an_export_says_what_its_problems_left_out_and_refuses_a_list_of_none(folder: Path) -> None:
    words = ("export", "--device", DEVICE, "--db", folder / "store.db", "--out", folder / "t.json", "--problems")
    done = CliRunner().invoke(app, [str(word) for word in (*words, folder / "untuned.csv")])
    assert "left out 1 ×: double products" in done.stderr
    (folder / "none.csv").write_text("m,n,k\n")
    (folder / "t.json").unlink()
    done = CliRunner().invoke(app, [str(word) for word in (*words, folder / "none.csv")])
    assert isinstance(done.exception, ConfigError)
    assert "none.csv lists no problem to export" in str(done.exception)
    assert not (folder / "t.json").exists()


def test_an_engines_block_scaled_products_are_tuned_and_exported_as_they_are_listed(folder: Path) -> None:
    log = folder / "server.log"
    log.write_text(
        "Config file not found at /x/N=4096,K=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json\n"
    )
    plain = ("--m", 64, "--block-scaled-as", "fp8_e4m3")
    words = (*plain, "--device", DEVICE, "--db", folder / "store.db", "--json")
    assert json.loads(run("campaign", "create", log, *words, "--dry-run"))["problems"] == 1
    never = json.loads(export(folder, "t.json", "--problems", log, *plain, "--json"))["never_tuned"]
    assert [key.split(":")[3] for key in never] == ["64x4096x4096"]


def test_a_ladder_leaves_the_counts_of_files_as_they_are(folder: Path) -> None:
    (folder / "two.csv").write_text("m,n,k,count\n8,64,64,1\n8192,64,64,2\n")
    at = ("--db", folder / "store.db", "--json")
    words = ("--ladder", "m=4096,8192 n=64 k=64", "--device", DEVICE, *at)
    number = json.loads(run("campaign", "create", folder / "two.csv", *words))["id"]
    found = json.loads(run("campaign", "results", number, *at))["problems"]
    assert [(each["problem"]["m"], each["count"]) for each in found] == [(8192, 2), (4096, 1), (8, 1)]


@pytest.mark.parametrize("command", ["create", "run"])
def test_a_campaign_of_files_that_list_nothing_names_them(folder: Path, command: str) -> None:
    (folder / "none.csv").write_text("m,n,k\n")
    words = ("campaign", command, str(folder / "none.csv"), "--db", str(folder / "store.db"), "--dry-run")
    done = CliRunner().invoke(app, list(words))
    assert isinstance(done.exception, ProblemError)
    assert "none.csv lists no problem to tune" in str(done.exception)


def test_a_campaign_says_what_to_know_of_its_files_counts(folder: Path) -> None:
    trace = folder / "trace.json"
    trace.write_text('{"schemaVersion": 1, "traceEvents": []}')
    done = CliRunner().invoke(app, ["campaign", "create", str(trace), "--ladder", "m=64 n=64 k=64", "--dry-run",
                                    "--db", str(folder / "store.db"), "--device", DEVICE])  # fmt: skip
    assert "record with graphs off" in done.stderr


def test_the_command_that_tunes_a_list_can_be_copied_whatever_the_list_is_called(folder: Path) -> None:
    (folder / "shapes.csv").write_text("m,n,k\n16,2112,7168\n")
    said = run("shapes", folder / "shapes.csv", "--out", folder / "my shapes.csv")
    assert f"gemmtune campaign run '{folder}/my shapes.csv'" in " ".join(said.split())


@pytest.mark.parametrize(("content", "told"), [("m,n,k\n", False), (UNTUNED.splitlines()[1], True)])
def test_a_list_without_problems_is_not_written(folder: Path, content: str, told: bool) -> None:
    # As CSV it would have no column of a problem, and every command would refuse it.
    (folder / "none.csv").write_text(content)
    words = ("shapes", folder / "none.csv")
    assert "0 problems" in run(*words)
    with pytest.raises(ProblemError, match=r"none\.csv lists no problem: nothing is written to .*out\.csv") as refused:
        run(*words, "--out", folder / "out.csv")
    assert str(refused.value).endswith("says what is left out") == told
    assert not (folder / "out.csv").exists()


def test_a_ladder_of_a_weight_takes_steps(folder: Path) -> None:
    found = json.loads(run("ladder", "4096x4096", "--m", "1..64:x4,96", "--db", folder / "store.db", "--json"))
    assert [each["m"] for each in found["rungs"]] == [1, 4, 16, 64, 96]


def test_shapes_of_several_sources_become_one_list(folder: Path) -> None:
    out = folder / "shapes.csv"
    text = run("shapes", folder / "untuned.csv", folder / "counted.csv", "--out", out)
    assert "2 problems, 33 runs" in text
    assert "left out 1 ×: double products" in text
    found = json.loads(run("shapes", out, "--json"))
    assert [(each["problem"]["m"], each["count"]) for each in found["shapes"]] == [(16, 32), (256, 1)]
    assert sum(each["share"] for each in found["shapes"]) == pytest.approx(1.0)


def test_a_wrong_source_is_one_sentence(folder: Path) -> None:
    (folder / "notes.md").write_text("# Title\n")
    with pytest.raises(ProblemError, match="none of the formats"):
        run("shapes", folder / "notes.md")
    with pytest.raises(ProblemError, match="no source given"):
        run("shapes")


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_utf_8_can_not_spell_is_printed_escaped(folder: Path, words: tuple[str, ...]) -> None:
    kept = {"layout": "tnt", "m": 1, "n": 2, "k": 3, "dtype_b": "bf16", "dtype_d": "bf16"}
    (folder / "cutlass.json").write_text(json.dumps([kept | {"dtype_a": "\ud800"}]))
    done = subprocess.run([sys.executable, "-m", "gemmtune", "shapes", folder / "cutlass.json", *words],
                          capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
    assert (done.returncode, r"\ud800 × bf16" in done.stdout) == (0, True), done.stderr


def test_an_export_says_what_it_leaves_to_the_library(folder: Path) -> None:
    text = export(folder, "t.csv", "--format", "csv", "--min-gain", "1.0")
    assert "t.csv: " in text
    report = json.loads(export(folder, "t.json", "--min-gain", "50", "--json"))
    assert (report["entries"], report["library"], sum(report["left_out"].values())) == (0, 1, 1)
    assert read_table(folder / "t.json") == []


@pytest.mark.parametrize("gain", ["inf", "nan", "1e400", "-1"])
def test_a_least_gain_that_json_can_not_spell_is_refused(folder: Path, gain: str) -> None:
    words = ("export", "--out", folder / "t.json", "--device", DEVICE, "--db", folder / "store.db", "--min-gain", gain)
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert (done.exit_code == 0, (folder / "t.json").exists()) == (False, False)


def test_the_table_has_a_gpus_own_best_and_not_the_faster_replay_of_it(folder: Path) -> None:
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        study = store.begin_study(replace(study_key(), device_kind="recorded"))
        stored = store.record(study.id, measured(FAMILY.config({}), 1.0), PROVENANCE)
        replayed = Best(PROBLEM, DEVICE, "recorded", stored, Ratio(9.0, 8.0, 10.0, True), None, None, 1, {})
        store.set_bests([replayed])
    export(folder, "t.json", "--all")
    assert [(best.device_kind, best.median_us) for best in read_table(folder / "t.json")] == [("cuda", 10.0)]


def test_an_export_is_of_the_kernels_that_are_fastest_among_its_neighbours(folder: Path) -> None:
    early, other = FAMILY.config({"pdl": 1}), Gemm.of(24, 4096, 4096)
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        keep_best(store, other)
        for kind, time_us in (("cuda", 9.5), ("recorded", 1.0)):
            study = store.begin_study(replace(study_key(), device_kind=kind))
            stored = store.record(study.id, measured(early, time_us, policy=Policy.CHAIN_PDL), PROVENANCE)
            store.set_bests([Best(PROBLEM, DEVICE, kind, stored, Ratio(1.2, 1.1, 1.3, True), None, None, 1, {})])
    for words, expected in (((), "burst"), (("--neighbours", "plain"), "burst"),
                            (("--neighbours", "pdl"), "chain_pdl")):  # fmt: skip
        export(folder, "t.json", "--min-gain", "0.5", *words)
        found = {best.problem: best for best in read_table(folder / "t.json")}
        assert (found[PROBLEM].policy, found[PROBLEM].config["pdl"]) == (expected, int(expected == "chain_pdl"))
        # Of a problem that was not measured so, what was.
        assert (found[other].policy, len(found)) == ("burst", 2)
    for words in (("--all",), ("--format", "tunableop", "--torch", "2.14.1")):
        with pytest.raises(ConfigError, match=r"leave out .*--neighbours"):
            export(folder, "t.json", "--neighbours", "pdl", *words)


def test_an_export_may_be_of_some_problems(folder: Path) -> None:
    report = json.loads(export(folder, "t.csv", "--format", "csv", "--problems", folder / "counted.csv", "--json"))
    assert (report["entries"], report["library"]) == (0, 0)
    assert shapes_of([folder / "t.csv"]).counts == {}


def test_an_exports_problems_are_read_as_those_of_a_campaign(folder: Path) -> None:
    (folder / "f32.csv").write_text("GemmTunableOp_float_TN,tn_8_8_8_ld_8_8_8\n")
    words = ("--problems", folder / "f32.csv", "--tf32", "--tp", "1", "--json")
    report = json.loads(export(folder, "t.json", *words))
    assert report["never_tuned"] == ["gemm:tf32,tf32,f32,f32:nt:8x8x8:b1:none"]


def test_an_export_says_which_problems_were_never_tuned(folder: Path) -> None:
    words = ("--problems", folder / "counted.csv", "--problems", folder / "untuned.csv")
    text = export(folder, "t.json", *words)
    assert f"1 of 2 problems in the files was never tuned on {DEVICE}" in text
    report = json.loads(export(folder, "t.csv", "--format", "csv", *words, "--json"))
    assert report["never_tuned"] == ["gemm:bf16,bf16,bf16,f32:nt:16x6144x4096:b1:none"]


def test_an_export_says_which_bests_a_rule_forbids_by_now(folder: Path) -> None:
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        broken = keep_best(store, Gemm.of(16, 6144, 4096, "fp16_acc16")).problem
    (folder / "broken.csv").write_text("m,n,k,dtype\n16,6144,4096,fp16_acc16\n")
    again = f"gemmtune retune --stale --db {folder}/store.db"
    said = f"1 best is left out: a rule forbids the config by now; `{again}` measures again"
    for words in (("--all",), ("--format", "csv", "--problems", folder / "broken.csv")):
        assert said in (text := export(folder, "t", *words)).splitlines()
        assert "never tuned" not in text
        report = json.loads(export(folder, "t", *words, "--json"))
        assert (report["forbidden"], report.get("never_tuned", [])) == ([broken.key], [])


@pytest.mark.parametrize("words", [("--all",), ("--min-gain", "1.0"), ("--format", "csv", "--min-gain", "1.0")])
def test_an_export_says_which_kernels_have_changed_since(folder: Path, words: tuple[str, ...]) -> None:
    assert "changed since" not in export(folder, "t", *words)
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        keep_best(store, Gemm.of(24, 4096, 4096), by=replace(PROVENANCE, kernel_source_digest="e" * 64))
    said = "1 entry is stale: its kernel or NVRTC has changed since; "
    said += f"`gemmtune retune --stale --db {folder}/store.db` measures again on the GPU"
    assert said in export(folder, "t", *words).splitlines()
    assert json.loads(export(folder, "t", *words, "--json"))["stale"] == 1


def test_an_export_counts_as_stale_what_is_answered_as_stale(folder: Path) -> None:
    earlier = {"cuda": replace(PROVENANCE, nvrtc="12.9"), "recorded": replace(PROVENANCE, kernel_source_digest="older")}
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        for kind, by in earlier.items():
            problem = Gemm.of(24 + 8 * len(kind), 4096, 4096)
            study = store.begin_study(replace(study_key(problem), device_kind=kind))
            stored = store.record(study.id, measured(FAMILY.config({}), problem=problem), by)
            store.set_bests([Best(problem, DEVICE, kind, stored, None, None, None, 1, {})])
        assert [answer(best).source for best in store.bests(DEVICE)].count("stale") == 2
    assert json.loads(export(folder, "t", "--all", "--json"))["stale"] == 2
    # What `retune --stale` would not take up on a GPU is no advice.
    said, place = export(folder, "t", "--all").splitlines()[-2:], f"--db {folder}/store.db"
    assert said == [
        f"1 entry is stale: its kernel or NVRTC has changed since; `gemmtune retune --stale {place}` measures again on "
        "the GPU",
        "1 entry is stale: its kernel has changed since a GPU's times were recorded; `gemmtune tune 88x4096x4096 "
        f"{place}` measures again on the GPU",
    ]


def test_all_is_the_whole_table_and_nothing_else(folder: Path) -> None:
    export(folder, "t.json", "--all")
    assert len(read_table(folder / "t.json")) == 1
    for words in (("--format", "csv"), ("--min-gain", "1.0"), ("--problems", folder / "counted.csv")):
        with pytest.raises(ConfigError, match="--all is the whole table"):
            export(folder, "t.json", "--all", *words)


def test_how_files_are_read_is_refused_without_files(folder: Path) -> None:
    for words in (("--m", "16"), ("--tp", "2"), ("--tf32",), ("--block-scaled-as", "fp8_e4m3"), ("--all", "--tp", "2")):
        with pytest.raises(ConfigError, match="say how the files of --problems are read"):
            export(folder, "t.json", *words)
    assert not (folder / "t.json").exists()


def test_json_says_null_where_the_library_won_and_why(folder: Path) -> None:
    tied = Gemm.of(24, 4096, 4096)
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        best = keep_best(store, tied)
        store.set_bests([replace(best, versus_first=Ratio(1.0, 0.99, 1.01, True))])
    text = export(folder, "t.json")
    document = json.loads((folder / "t.json").read_bytes())
    assert re.search(r"left to the library 1 ×: not surely more than 1\.02 .*", text)
    assert "--all exports those too" in text
    assert document["library"][tied.key] is None
    assert tied.key not in {each["problem"]["key"] for each in document["entries"]}
    # Every problem is still in the list of shapes.
    assert set(shapes_of([folder / "t.json"]).counts) == {tied, PROBLEM}
    text = export(folder, "t.json", "--all")
    assert re.search(r"t\.json: 2 bests of .*\n1 of them not surely more than 1\.02 .*\ninstall\(\) leaves those", text)
    assert list(json.loads(export(folder, "t.json", "--all", "--json"))["doubtful"].values()) == [1]


class OfKeys:
    """A format that nothing else knows: a folder with the keys of problems of at most 16 rows."""

    NAME, MEDIA_TYPE, WRITES, OF_LIBRARY, FOLDER = "keys", "text/plain", "keys of small problems", False, True

    def writable(self, table: Guarded, options: ExportOptions) -> Guarded:
        small = [each for each in table.entries if each["problem"]["m"] <= 16]
        return replace(table, entries=small, left_out={"too large": len(table.entries) - len(small)})

    def files(self, table: Guarded, options: ExportOptions) -> dict[str, bytes]:
        return {"of/keys.txt": "\n".join(each["problem"]["key"] for each in table.entries).encode()}

    def next_step(self, table: Guarded, options: ExportOptions) -> str:
        return f"read {options.name}"


def test_a_new_format_is_exported_by_being_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPORTERS, OfKeys.NAME, OfKeys())
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        keep_best(store, Gemm.of(8, 4096, 4096))
    text = export(folder, "out", "--format", "keys", "--min-gain", "0.5")
    assert f"1 best of {DEVICE}\nleft to the library 1 ×: too large\nread " in text
    assert (folder / "out" / "of" / "keys.txt").read_text() == Gemm.of(8, 4096, 4096).key


def test_without_misses_a_campaign_of_them_says_so(folder: Path) -> None:
    with pytest.raises(ProblemError, match=f"no question about {DEVICE} had no measured answer"):
        run("campaign", "create", "--misses", "--device", DEVICE, "--db", folder / "store.db")


def test_misses_become_a_campaign_with_their_counts(folder: Path) -> None:
    db = f"sqlite:///{folder}/store.db"
    often, once = Gemm.of(4096, 4096, 4096), Gemm.of(16, 6144, 4096)
    with Store.open(db) as store:
        misses.add(store, {(often.key, DEVICE): 7, (once.key, DEVICE): 1, (once.key, "NVIDIA L40S"): 9})
    made = created(db)
    assert made["name"] == "misses"
    found = problems_of(db, made["id"])
    assert found == {often.key: 7, once.key: 1}
    both = created(db, "--device", f"recorded:{DEVICE}")
    assert problems_of(db, both["id"]) == found
    added = created(db, folder / "counted.csv")
    assert added["name"] == "counted.csv + misses"
    assert problems_of(db, added["id"]) == {often.key: 7, once.key: 33}


def created(db: str, *more: str | Path) -> Any:  # noqa: ANN401
    words = ["campaign", "create", *map(str, more), "--misses", "--device", DEVICE, "--db", db, "--json"]
    # That no worker is there to take it is said on the other stream.
    return json.loads(CliRunner().invoke(app, words).stdout)


def problems_of(db: str, campaign: int) -> dict[str, int]:
    with Store.open(db) as store:
        return {entry.problem.key: entry.count for entry in results.problems(store, campaign)}


def test_a_bundle_without_the_measured_program_leaves_it_to_the_library(folder: Path) -> None:
    report = json.loads(export(folder, "bundle", "--format", "bundle", "--min-gain", "1.0", "--json"))
    assert (report["entries"], report["library"]) == (0, 1)
    assert ["program" in reason for reason in report["left_out"]] == [True]
    assert read_bundle(folder / "bundle").library == {PROBLEM.key}


def test_every_tuned_problem_has_a_row_for_tunableop_or_a_reason(folder: Path) -> None:
    ranked = Gemm.of(24, 4096, 4096)
    with Store.open(f"sqlite:///{folder}/store.db") as store:
        study = store.begin_study(study_key(ranked))
        configs = [FAMILY.config({}), *(family_named("cublaslt").config({"rank": rank}) for rank in (0, 3))]
        times = zip(configs, (9.0, 12.0, 10.0), strict=True)
        taken = [measured(config, us, ranked, "final") for config, us in times]
        store.set_bests(bests_of(ranked, store.record_many(study.id, taken, PROVENANCE), 3, {}))
    words = ("--format", "tunableop", "--torch", "2.14.1", "--min-gain", "1.0")
    text = export(folder, "t.csv", *words, "--gpus", "12")
    assert text.startswith(f"{folder}/t0.csv to {folder}/t11.csv: 0 bests of")
    text = export(folder, "t.csv", *words)
    assert text.startswith(f"{folder}/t0.csv: 0 bests of")
    report = json.loads(export(folder, "t.csv", *words, "--json"))
    rows = [line for line in (folder / "t0.csv").read_text().splitlines() if not line.startswith("Validator,")]
    assert (report["entries"], report["library"], sum(report["left_out"].values())) == (len(rows), 2, 2)
    assert any("never compared with cuBLASLt's candidates" in reason for reason in report["left_out"])
    report = json.loads(export(folder, "t.csv", *words, "--problems", folder / "untuned.csv", "--json"))
    assert (report["entries"], report["library"], report["never_tuned"]) == (0, 1, [])


def test_an_unknown_format_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="'xml'"):
        export(folder, "t.xml", "--format", "xml")
