"""Files cut off at any byte and files with any byte changed: read as what they say, or refused in one sentence."""

from __future__ import annotations

import gzip
import json
import os
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gemmtune.command import app
from gemmtune.exact import exact
from space.errors import ProblemError
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.unit.tuner.tables.test_exporters import CUBIN, WON, entry, guarded, table, written
from tests.unit.tuner.tables.test_importers import MM, VLLM, trace
from tests.unit.tuner.tables.test_tunableop import SCALED, UNTUNED
from tuner.errors import TableError
from tuner.files import export_folder
from tuner.tables.bundles import read_bundle
from tuner.tables.entries import canonical, content_of
from tuner.tables.importers import shapes_of
from tuner.tables.importers.source import Asked
from tuner.tables.tables import read_table

CUTLASS: dict[str, Any] = {
    "m": 16, "n": 128, "k": 64, "batch_count": 1, "layout": "tnt", "beta": 0.0, "dtype_a": "bf16", "dtype_b": "bf16",
    "dtype_c": "bf16", "dtype_d": "bf16", "dtype_acc": "f32",
}  # fmt: skip
#: A small file of every source that needs no torch; those whose format says where it ends, and text by lines.
WHOLE: dict[str, bytes] = {
    "trace.json": trace(MM, MM).encode(),
    "trace.json.gz": gzip.compress(trace(MM).encode(), mtime=0),
    "list.json": json.dumps([{"m": 1, "n": 2, "k": 3}, {"m": 4, "n": 5, "k": 6, "count": 7}]).encode(),
    "cutlass.json": json.dumps([CUTLASS]).encode(),
    "table.json": canonical(table(entry(WON))),
    "list.csv.gz": gzip.compress(b"m,n,k\n1,2,3\n4,5,6\n", mtime=0),
    "config.json": b'{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}',
}
LINES: dict[str, bytes] = {
    "list.csv": b"m,n,k,dtype,count\n16,128,64,bf16,3\n1,2,3,int8,1\n",
    "untuned.csv": (UNTUNED + SCALED.format(scale=1, fast=0, bias="BFloat16")).encode(),
    "server.log": ("INFO starting\n" + VLLM).encode(),
}
#: What the options may ask of a file; they are refused of others.
ASKED = {"config.json": Asked(ms=(16,)), "server.log": Asked(ms=(16,), block_scaled_as="fp8_e4m3")}


def outcome(path: Path, content: bytes) -> object:
    """The problems with their counts, or the sentence that refuses the file; anything else fails the test."""
    path.write_bytes(content)
    try:
        return dict(shapes_of([path], ASKED.get(path.name, Asked())).counts)
    except ProblemError as error:
        said = str(error)
    assert "\n" not in said
    assert path.name in said
    return said


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_says_where_it_ends_is_refused_wherever_it_is_cut(tmp_path: Path, name: str) -> None:
    content = WHOLE[name]
    steps = range(len(content)) if len(content) < 700 else range(0, len(content), 7)
    for size in steps:
        found = outcome(tmp_path / name, content[:size])
        # A trace is whole once its list of events has ended.
        whole = name == "trace.json" and size == len(content) - 1
        assert isinstance(found, str) or found == {} or whole, (size, found)


@pytest.mark.parametrize("name", LINES)
def test_a_list_of_lines_that_is_cut_has_no_problem_but_its_own(tmp_path: Path, name: str) -> None:
    content = LINES[name]
    whole = outcome(tmp_path / name, content)
    assert isinstance(whole, dict)
    for size in range(len(content)):
        found = outcome(tmp_path / name, content[:size])
        last = content[:size].count(b"\n")
        ended = content[:size].rpartition(b"\n")[0]
        # Lines that are whole mean what they meant; only the last may be cut within a number.
        if isinstance(found, dict) and ended:
            before = outcome(tmp_path / name, ended + b"\n")
            kept = set(before) if isinstance(before, dict) else set()
            assert len(set(found) - kept) <= 1, (size, last)


@pytest.mark.parametrize("name", [*WHOLE, *LINES])
def test_any_changed_byte_is_read_or_refused(tmp_path: Path, name: str) -> None:
    content, chance = bytearray((WHOLE | LINES)[name]), random.Random(name)
    for _ in range(150):
        place, byte = chance.randrange(len(content)), chance.randrange(256)
        before, content[place] = content[place], byte
        outcome(tmp_path / name, bytes(content))
        content[place] = before


def test_a_dtype_for_an_engine_s_products_is_refused_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(LINES["list.csv"])
    with pytest.raises(ProblemError, match="--block-scaled-as is for an engine's log or its config, and none was"):
        shapes_of([tmp_path / "list.csv"], replace(ASKED["server.log"], ms=()))


def test_a_bundle_s_manifest_is_no_list_and_says_where_it_is(tmp_path: Path) -> None:
    said = outcome(tmp_path / "manifest.json", b'{"schema":"gemmtune.bundle/1"}')
    assert str(said).endswith("not a table: name the bundle's folder, or its table.json where a file is read")


def test_a_refused_source_writes_no_list_and_keeps_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_bytes(LINES["list.csv"])
    (tmp_path / "bad.csv").write_bytes(LINES["list.csv"] + b"1,2\n")
    out = tmp_path / "shapes.csv"
    for before in (None, "kept"):
        if before:
            out.write_text(before)
        sources = [str(tmp_path / name) for name in ("good.csv", "bad.csv")]
        done = CliRunner().invoke(app, ["shapes", *sources, "--out", str(out)])
        assert done.exit_code != 0
        assert (out.read_text() if out.exists() else None) == before
        assert {path.name for path in tmp_path.iterdir()} - {"shapes.csv"} == {"bad.csv", "good.csv"}


def test_ten_million_rows_are_refused_without_parsing_or_holding_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"m,n,k\n")
        rows = b"".join(b"%d,4096,4096\n" % (m + 1) for m in range(4096)) * 24
        for _ in range(102):
            file.write(rows)
    tracemalloc.start()
    try:
        with pytest.raises(ProblemError, match=r"rows\.csv\.gz, line 1,000,001: more than 1,000,000 lines"):
            shapes_of([path])
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("far.csv", b"m,n,k,name\n" + b"1,2,3,x\n" * 9000 + b"1,2,3,\xe9\n" + b"1,2,3,x\n" * 9000,
         "line 9002 cannot be read: it is not UTF-8"),
        ("near.csv", b"m,n,k,name\n1,2,3,\xe9\n", "line 2 cannot be read: it is not UTF-8"),
        ("wide.csv", "m,n,k\n1,2,3\n".encode("utf-16"),
         "line 1 cannot be read: it is not UTF-8 (invalid start byte); save it as UTF-8"),
        ("huge.csv", b"m,n,k\n99999999999,2,3\n", "line 2: m = 99999999999 is not a GEMM extent: it must be 1 to"),
        ("below.csv", b"m,n,k\n1,2,-3\n", "line 2: k = -3 is not a GEMM extent"),
        ("quoted.csv", b'm,n,k\n1,2,3\n1,"2"3,4\n', "line 3 is not valid CSV"),
        ("long.csv", b"m,n,k\n1,2,3\n1,2," + b"3" * 200_000 + b"\n", "line 3 is not valid CSV"),
        ("split.csv", b'm,n,k\n"40\n96",2,3\n', "line 3: m = '40\\n96' is not a whole number"),
        ("twice.json", b'[{"m": 1, "n": 2, "k": 3, "m": 4}]', "is not valid JSON ('m' is given twice in one object)"),
        ("cutlass.json", json.dumps([CUTLASS]).replace('"n"', '"m"').encode(), "('m' is given twice in one object)"),
    ],
)
def test_a_refusal_names_the_line_and_the_reason(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    found = outcome(tmp_path / name, content)
    assert isinstance(found, str), found
    assert said in found


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("server.log", "Config file not found at " + "N=" * 400_000),
        ("server.log", "Config file not found at " + "N= " * 300_000),
        ("t.csv", UNTUNED.splitlines()[0].replace("Gemm", "ScaledGemm") + "_a_" + "b_b_" * 40_000 + "_c_" * 40_000
         + "_as_" * 40_000 + "_bs_" * 40_000),
    ],
    ids=["names", "words", "dtypes"],
)  # fmt: skip
def test_a_line_that_may_be_read_in_many_ways_is_refused_at_once(tmp_path: Path, name: str, line: str) -> None:
    # A pattern that tries them all takes hours.
    found = outcome(tmp_path / name, f"{line}\n".encode())
    assert isinstance(found, str)
    assert "nothing is missing" in found or "does not say how the product is scaled" in found


@pytest.mark.parametrize("name", ["list.json.gz", "cutlass.json.gz"])
def test_ten_million_values_are_refused_without_parsing_them(tmp_path: Path, name: str) -> None:
    begin = b'[{"layout": "tnt"},' if name.startswith("cutlass") else b"["
    path = tmp_path / name
    path.write_bytes(gzip.compress(begin + b"{}," * 10_000_000 + b"{}]", 1))
    tracemalloc.start()
    try:
        with pytest.raises(ProblemError, match=rf"{name} has more than 8,000,000 values: give a shorter list"):
            shapes_of([path])
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_is_larger_than_any_table_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.tables.tables.MOST_TABLE_BYTES", 1 << 20)
    path = tmp_path / "t.json"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(TableError, match=r"t\.json has more than 1 MiB, as no table has"):
        read_table(path)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("samples_us", 0), "1", "'1' for a time"), (("samples_us", 0), -1.0, "-1.0 for a time"),
        (("samples_us", 1), float("nan"), "nan for a time"), (("samples_us", 0), 0, "0 for a time"),
        (("versus_cublaslt_first", "value"), None, "None for a"),
        (("versus_cublaslt_first", "low"), float("inf"), "inf for a"), (("provenance", "driver"), 580, "580 for a ver"),
        (("provenance", "kernel_source_digest"), None, "None for a version"),
        (("provenance", "cublaslt"), ["130100"], "for a version"), (("problem", "key"), WON.key, "is in it twice"),
    ],
)  # fmt: skip
def test_a_whole_table_whose_content_can_not_be_is_refused(
    tmp_path: Path, place: tuple[Any, Any], value: object, said: str
) -> None:
    document = json.loads(canonical(table(entry(WON), entry(Gemm.of(8, 64, 64)))))
    document["entries"][1][place[0]][place[1]] = value
    document["content"] = content_of(document)
    (tmp_path / "t.json").write_text(json.dumps(document))
    for guard in (False, True):
        with pytest.raises(TableError, match=rf"t\.json is not a table .*{said}"):
            exact(tmp_path / "t.json", guard=guard)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (("config", "knobs", "tile_n", 1_000), "tile_n = 1000 is outside its domain"),
        (("config", "knobs", "lookahead", 2), "'lookahead' is not a knob of"),
        (("config", "family", "sm100_tcgen05"), "family 'sm100_tcgen05' is unknown"),
        (("problem", "key", "conv:bf16:1x2x3"), "'conv:bf16:1x2x3' is not a problem key"),
        (("provenance", "firmware", "96.00"), "'firmware'"),
    ],
)  # fmt: skip
def test_a_table_of_a_newer_version_is_called_so(tmp_path: Path, place: tuple[Any, ...], said: str) -> None:
    document = json.loads(canonical(table(entry(WON))))
    *path, name, value = place
    at = document["entries"][0]
    for each in path:
        at = at[each]
    at[name] = value
    document["content"] = content_of(document)
    (tmp_path / "t.json").write_text(json.dumps(document))
    with pytest.raises(TableError, match=rf"t\.json has what this version of gemmtune does not know \(.*{said}"):
        exact(tmp_path / "t.json")


@pytest.mark.parametrize("knobs", [{}, {"algorithm": 66}, {"tile": 24, "stages": 35}])
def test_an_algorithm_whose_knobs_are_not_those_of_its_key_is_refused(tmp_path: Path, knobs: dict[str, int]) -> None:
    # What is left out would take a default, and another algorithm would run.
    document = json.loads(canonical(table(entry(WON))))
    whole = family_named("cublaslt").config({"algorithm": 66, "tile": 24, "stages": 35})
    document["entries"][0]["config"] = {"family": whole.family, "key": whole.key, "knobs": knobs}
    document["content"] = content_of(document)
    (tmp_path / "t.json").write_text(json.dumps(document))
    said = rf"t\.json is not a table \(its knobs make cublaslt:.* its key is '{whole.key}'"
    with pytest.raises(TableError, match=said):
        exact(tmp_path / "t.json")


@pytest.mark.parametrize(("name", "value"), [
    ("device", 5), ("device", None), ("note", ["x"]), ("note", 5), ("build_digest", True), ("build_digest", None),
])  # fmt: skip
def test_a_whole_table_whose_words_are_no_text_is_refused(tmp_path: Path, name: str, value: object) -> None:
    document = json.loads(canonical(table(entry(WON))))
    (document if name == "device" else document["entries"][0])[name] = value
    document["content"] = content_of(document)
    (tmp_path / "t.json").write_text(json.dumps(document))
    with pytest.raises(TableError, match=r"t\.json is not a table .* for a device, a build or a note"):
        read_table(tmp_path / "t.json")


@pytest.mark.parametrize(("name", "value", "said"), [
    ("tried", "48", "'48' for a count"), ("tried", None, "None for a count"), ("tried", -1, "-1 for a count"),
    ("failed", {"timeout": "x"}, "'x' for a count"), ("product_joules", "0.2", "'0.2' for an energy"),
    ("product_joules", -0.2, "-0.2 for an energy"),
])  # fmt: skip
def test_a_whole_table_whose_counts_or_joules_are_none_is_refused(
    tmp_path: Path, name: str, value: object, said: str
) -> None:
    document = json.loads(canonical(table(entry(WON))))
    document["entries"][0][name] = value
    document["content"] = content_of(document)
    (tmp_path / "t.json").write_text(json.dumps(document))
    with pytest.raises(TableError, match=rf"t\.json is not a table .*{said}"):
        read_table(tmp_path / "t.json")


@pytest.mark.parametrize("margin", ["1.02", None, [], {}])
def test_a_margin_that_is_no_number_is_refused(tmp_path: Path, margin: object) -> None:
    document = table(entry(WON)) | {"min_gain": margin}
    (tmp_path / "t.json").write_text(json.dumps(document | {"content": content_of(document)}))
    with pytest.raises(TableError, match=r"t\.json is not a table"):
        exact(tmp_path / "t.json", guard=True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema": "gemmtune.table/9"}, "is a 'gemmtune.table/9', not a 'gemmtune.table/1'"),
        ({"schema": "gemmtune.bundle/1"}, "is a bundle's manifest, not a table: name the bundle's folder"),
        ({"device": "NVIDIA H100 80GB HBM3"}, "was changed: its content does not match its hash"),
        ({"entries": []}, "was changed: its content does not match its hash"),
        ({"note": ""}, "was changed: its content does not match its hash"),
    ],
)  # fmt: skip
def test_a_table_that_its_hash_or_version_does_not_cover_is_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    document = table(entry(WON))
    (tmp_path / "t.json").write_bytes(canonical(document))
    assert len(exact(tmp_path / "t.json").bests) == 1
    (tmp_path / "t.json").write_bytes(canonical(document | changed))
    with pytest.raises(TableError, match=said):
        exact(tmp_path / "t.json")


def test_a_table_and_every_file_of_a_bundle_are_refused_wherever_they_are_cut(tmp_path: Path) -> None:
    content = canonical(table(entry(WON)))
    path = tmp_path / "t.json"
    for size in range(0, len(content), 11):
        path.write_bytes(content[:size])
        with pytest.raises(TableError, match=r"t\.json"):
            read_table(path)
    folder = tmp_path / "bundle"
    document = guarded(table(entry(WON), entry(Gemm.of(8, 64, 64), family="cublaslt")))
    export_folder(folder, written("bundle", document, program=lambda _: CUBIN, plan=lambda _: "gemmtune.plan/1\nend\n"))
    read_bundle(folder)
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        whole = file.read_bytes()
        for size in range(0, len(whole), max(1, len(whole) // 60)):
            file.write_bytes(whole[:size])
            with pytest.raises(TableError):
                read_bundle(folder)
        file.write_bytes(whole)
    read_bundle(folder)
