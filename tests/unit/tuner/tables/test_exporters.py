"""Exporters: what leaves is not noise, and each format is what its consumer reads."""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from space.errors import ConfigError
from space.family import families_for, family_named
from space.kinds.gemm import Gemm
from tuner.tables.entries import canonical
from tuner.tables.exporters import EXPORTERS, exporter_named
from tuner.tables.exporters.guard import Guarded, guarded
from tuner.tables.exporters.options import ExportOptions
from tuner.tables.exporters.tunableop import operation_of, rows_of, with_ordinal, with_rows
from tuner.tables.importers import shapes_of
from tuner.tables.tables import read_table
from workers.kernels.source import sources_digest

DEVICE = "NVIDIA H200"
ALGORITHM = {
    "algorithm": 66, "tile": 20, "stages": 36, "split_k": 1, "reduction": 0, "swizzle": 0, "custom": 0,
    "inner_shape": 0, "cluster": 7, "workspace_bytes": 0,
}  # fmt: skip
#: An ELF header of a CUDA program for sm_90.
CUBIN = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HH28xI", 2, 190, 90 << 8).ljust(60, b"\0")
DIGEST = "5" * 64
#: Of today's kernels, so that no entry is stale.
KERNELS = sources_digest(families_for("sm_90a"))


def entry(problem: Gemm, low: float = 1.05, family: str = "sm90_wgmma", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    config = family_named(family).config(ALGORITHM if family == "cublaslt" else {})
    return {
        "problem": problem.document(),
        "config": {"family": config.family, "knobs": config.knobs, "key": config.key},
        "runner_up": None, "policy": "sustained", "device_kind": "cuda", "median_us": 10.7, "tflops": 700.0,
        "samples_us": [10.6, 10.7, 10.8], "stage": "final", "product_joules": None, "note": "",
        "versus_cublaslt_first": {"value": low + 0.01, "low": low, "high": low + 0.02, "paired": True},
        "versus_cublaslt_best": None,
        "verification": {"elements": 65536, "mismatches": 0, "worst_ratio": 0.1, "reference": "float64"},
        "clocks": None,
        "build_digest": "" if family == "cublaslt" else DIGEST,
        "provenance": {
            "kernel_source_digest": KERNELS, "driver": "580.1", "nvrtc": "13.0", "gemmtune": "0.1", "seed": 1,
            "cublaslt": "130101", "device": DEVICE, "device_uuid": "GPU-1",
        },
        "measurement_id": 1, "study_id": 1, "taken_at": "2026-11-23T00:00:00+00:00", "tried": 9, "failed": {},
    } | more  # fmt: skip


def table(*entries: dict[str, Any], device: str = DEVICE) -> dict[str, Any]:
    document = {"schema": "gemmtune.table/1", "device": device, "entries": list(entries)}
    return document | {"content": hashlib.sha256(canonical(document)).hexdigest()}


WON, TIED = Gemm.of(16, 4096, 4096), Gemm.of(32, 4096, 4096)
UNPAIRED = {"value": 2.0, "low": 1.9, "high": 2.1, "paired": False}


def test_only_what_is_surely_faster_leaves_and_the_rest_is_counted() -> None:
    document = table(
        entry(WON), entry(TIED, 1.01), entry(Gemm.of(1, 64, 64), policy="rounds"),
        entry(Gemm.of(2, 64, 64), versus_cublaslt_first=UNPAIRED),
        entry(Gemm.of(3, 64, 64), versus_cublaslt_first=None), entry(Gemm.of(4, 64, 64), device_kind="recorded"),
    )  # fmt: skip
    found = guarded(document)
    assert [each["problem"]["key"] for each in found.entries] == [WON.key]
    assert sorted(found.left_out.values()) == [1, 1, 1, 1, 1]
    assert len(found.library) == 5
    assert len(guarded(document, 1.0).entries) == 2
    # A list of problems may have none that was tuned.
    assert (guarded(document, 1.0, set()).library, guarded(document, 1.0, set()).entries) == ([], [])
    assert (guarded(document, 1.0, {TIED.key}).library, len(guarded(document, 1.0, {TIED.key}).entries)) == ([], 1)


@pytest.mark.parametrize("policy", ["sustained", "burst", "chain", "chain_pdl"])
def test_what_programs_run_under_is_exported(policy: str) -> None:
    assert len(guarded(table(entry(WON, policy=policy))).entries) == 1


def test_the_low_end_must_exceed_the_margin() -> None:
    assert guarded(table(entry(WON, 1.02)), 1.02).entries == []


def written(format: str, found: Guarded, **options: Any) -> dict[str, bytes]:  # noqa: ANN401
    return dict(exporter_named(format).files(found, ExportOptions(**{"name": f"t.{format}"} | options)))


@pytest.mark.parametrize("min_gain", [float("nan"), float("inf")])
def test_a_margin_that_nothing_exceeds_leaves_everything_to_the_library(min_gain: float) -> None:
    assert guarded(table(entry(WON)), min_gain).library == [WON.key]


def test_json_keeps_null_for_what_the_library_won_and_is_read_back(tmp_path: Path) -> None:
    (content,) = written("json", guarded(table(entry(WON), entry(TIED, 1.0)))).values()
    document = json.loads(content)
    assert document["library"] == {TIED.key: None}
    assert document["left_out"] == {"not surely more than 1.02 times as fast as the library's first choice": 1}
    path = tmp_path / "t.json"
    path.write_bytes(content)
    assert [best.problem for best in read_table(path)] == [WON]


def test_csv_and_parquet_have_the_same_rows(tmp_path: Path) -> None:
    from pyarrow import parquet

    found = guarded(table(entry(WON), entry(TIED, 1.0)))
    (tmp_path / "t.csv").write_bytes(written("csv", found)["t.csv"])
    first, second = parquet.read_table(io.BytesIO(written("parquet", found)["t.parquet"])).to_pylist()
    assert (first["m"], first["gain_low"], first["family"]) == (16, 1.05, "sm90_wgmma")
    # As docs/files.md says, and as `gemmtune explain --config` takes it.
    assert family_named(first["family"]).parse(first["config"]).key == found.entries[0]["config"]["key"]
    assert (second["m"], second["config"], second["time_us"]) == (32, None, None)
    header, *rows = (tmp_path / "t.csv").read_text().splitlines()
    assert header.startswith("kind,m,n,k,dtype")
    assert [row.split(",")[1] for row in rows] == ["16", "32"]
    assert shapes_of([tmp_path / "t.csv"]).counts == {WON: 1, TIED: 1}


@pytest.mark.parametrize("name", ["csv", "parquet", "json"])
def test_an_empty_table_is_written_too(name: str) -> None:
    assert written(name, guarded(table()))


@pytest.mark.parametrize("name", sorted(EXPORTERS))
def test_the_same_table_gives_the_same_bytes(name: str) -> None:
    found = guarded(table(entry(WON, family="cublaslt")))
    assert written(name, found, torch="2.14.1", program=lambda _: CUBIN) == written(
        name, found, torch="2.14.1", program=lambda _: CUBIN
    )


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean parquet"):
        exporter_named("parket")


# ------------------------------------------------------------------------------------------------ TunableOp

#: As torch's GemmCublaslt.h prints a solution, and reads it.
SOLUTION = re.compile(
    r"Gemm_Cublaslt_id_-?\d+_tile_\d+_stages_\d+_splitk_-?\d+_red_\d+_swizzle_\d+_custom_\d+_inner_\d+_cluster_\d+"
)


@pytest.mark.parametrize("device", ["NVIDIA H200 (500 W)", "NVIDIA H200 (130 SMs) (500 W)"])
def test_torch_reads_the_drivers_name_of_a_device(device: str) -> None:
    found = guarded(table(entry(WON, family="cublaslt"), device=device))
    assert b"Validator,CUDA_DEVICE,9.0:NVIDIA H200\n" in written("tunableop", found, torch="2.14.1")["t0.tunableop"]


def test_rows_are_those_that_torch_reads() -> None:
    found = guarded(table(entry(WON, family="cublaslt")))
    files = written("tunableop", found, name="dir/table.csv", torch="2.14.1", gpus=2)
    assert list(files) == ["dir/table0.csv", "dir/table1.csv"]
    assert files["dir/table0.csv"] == files["dir/table1.csv"]
    assert files["dir/table0.csv"].decode() == (
        "Validator,PT_VERSION,2.14.1\nValidator,CUBLASLT_VERSION,130101\nValidator,CUDA_DEVICE,9.0:NVIDIA H200\n"
        "GemmTunableOp_BFloat16_TN,tn_4096_16_4096_ld_4096_4096_4096,Gemm_Cublaslt_id_66_tile_20_stages_36_splitk_1_"
        "red_0_swizzle_0_custom_0_inner_0_cluster_7,0.0107\n"
    )
    assert all(SOLUTION.fullmatch(row.split(",")[2]) for row in rows_of(found))


def test_libcs_own_scanner_reads_nine_numbers_from_a_solution_as_torchs_header_asks_it_to() -> None:
    found = guarded(table(entry(WON, family="cublaslt")))
    (row,) = rows_of(found)
    kinds = "iIIiIIIHH"
    asked = ("id_%d", "tile_%u", "stages_%u", "splitk_%d", "red_%u", "swizzle_%u", "custom_%u", "inner_%hu",
             "cluster_%hu")  # fmt: skip
    numbers = [{"i": ctypes.c_int, "I": ctypes.c_uint, "H": ctypes.c_ushort}[kind](99) for kind in kinds]
    scan = ctypes.CDLL(None).sscanf
    form = "Gemm_Cublaslt_" + "_".join(asked)
    assert scan(row.split(",")[2].encode(), form.encode(), *map(ctypes.byref, numbers)) == len(kinds)
    names = ("algorithm", "tile", "stages", "split_k", "reduction", "swizzle", "custom", "inner_shape", "cluster")
    assert [each.value for each in numbers] == [ALGORITHM[name] for name in names]


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize(
    ("dtype", "batch", "epilogue"), [("bf16", 1, "none"), ("fp16", 4, "none"), ("bf16", 1, "bias")]
)
def test_a_row_means_the_problem_that_it_was_made_of(
    tmp_path: Path, layout: str, dtype: str, batch: int, epilogue: str
) -> None:
    problem = Gemm.of(24, 4096, 2048, dtype, layout, batch, epilogue)
    said = operation_of(problem)
    assert said
    (tmp_path / "untuned.csv").write_text(",".join(said) + "\n")
    assert list(shapes_of([tmp_path / "untuned.csv"]).counts) == [problem]


def test_what_torch_can_not_run_is_left_out_with_its_reason() -> None:
    big = {"family": "cublaslt", "knobs": ALGORITHM | {"rank": 0, "workspace_bytes": 64 << 20}, "key": "k"}
    ranked = {"family": "cublaslt", "knobs": ALGORITHM | {"algorithm": -1}, "key": "k"}
    other = {"provenance": {"cublaslt": "130000"}}
    found = guarded(table(
        entry(WON, family="cublaslt"), entry(TIED, family="cublaslt"), entry(WON, family="cublaslt", config=big),
        entry(WON, family="cublaslt", config=ranked), entry(WON, family="cublaslt", **other),
        entry(Gemm.of(16, 64, 64, epilogue="bias+gelu"), family="cublaslt"), entry(WON),
    ))  # fmt: skip
    kept = with_rows(found)
    assert (len(kept.entries), len(kept.library), sum(kept.left_out.values())) == (2, 5, 5)
    assert rows_of(kept) == rows_of(found)
    assert any("workspace" in reason for reason in kept.left_out)
    step = exporter_named("tunableop").next_step(kept, ExportOptions("a t.csv", torch="2.14.1"))
    assert step.startswith("2 rows for torch 2.14.1 with cuBLASLt 130101")
    assert "PYTORCH_TUNABLEOP_TUNING=0 PYTORCH_TUNABLEOP_FILENAME='a t.csv'" in step


def test_a_file_is_of_the_version_that_measured_most_of_its_rows() -> None:
    def of(problem: Gemm, version: str) -> dict[str, Any]:
        return entry(problem, family="cublaslt", provenance=entry(WON)["provenance"] | {"cublaslt": version})

    eight = [of(Gemm.of(m, 64, 64, "fp8_e4m3"), "130000") for m in (1, 2, 3)]
    found = guarded(table(*eight, of(WON, "130101"), of(TIED, "130101"), of(Gemm.of(64, 64, 64), "130000")))
    assert len(rows_of(found)) == 2
    assert b"CUBLASLT_VERSION,130101\n" in written("tunableop", found, torch="2.14.1")["t0.tunableop"]
    assert with_rows(found).left_out["measured with cuBLASLt 130000, not 130101"] == 1
    assert rows_of(guarded(table(of(WON, "")))) == []


@pytest.mark.parametrize(("device", "most_kib"), [(DEVICE, 32_768), ("NVIDIA A100-SXM4-80GB", 8_320)])
def test_an_algorithm_may_take_all_of_the_workspace_that_torch_is_told_to_give(device: str, most_kib: int) -> None:
    def left_out(size_bytes: int) -> list[str]:
        config = {"family": "cublaslt", "knobs": ALGORITHM | {"rank": 0, "workspace_bytes": size_bytes}, "key": "k"}
        return list(with_rows(guarded(table(entry(WON, family="cublaslt", config=config), device=device))).left_out)

    assert left_out(most_kib << 10) == []
    assert left_out((most_kib << 10) + 1) == [
        f"needs more workspace than the {most_kib:,} KiB that torch has on this card"
    ]
    found = guarded(table(entry(WON, family="cublaslt"), device=device))
    step = exporter_named("tunableop").next_step(found, ExportOptions("t.csv"))
    # Without the variable torch gives 1 MiB.
    assert f"CUBLASLT_WORKSPACE_SIZE={most_kib} PYTORCH_TUNABLEOP_ENABLED=1" in step


@pytest.mark.parametrize("version", ["", "2.14", "2.14.1+cu130", "new"])
def test_torch_must_have_a_version(version: str) -> None:
    with pytest.raises(ConfigError, match=r"give torch=2\.14\.1 \(--torch 2\.14\.1\)"):
        written("tunableop", guarded(table(entry(WON, family="cublaslt"))), torch=version)


@pytest.mark.parametrize("version", ["2.13.9", "1.20.0", "0.0.0"])
def test_a_torch_that_ignores_every_row_gets_no_file(version: str) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(version)} is too old: .* from PyTorch 2\.14 on"):
        written("tunableop", guarded(table(entry(WON, family="cublaslt"))), torch=version)
    assert written("tunableop", guarded(table(entry(WON, family="cublaslt"))), torch="3.0.0")


@pytest.mark.parametrize(
    ("format", "said"), [("tunableop", "no row: "), ("json", "no entry: "), ("bundle", "no entry: ")]
)
def test_a_file_without_rows_is_not_recommended(format: str, said: str) -> None:
    found = exporter_named(format).next_step(guarded(table(entry(WON, 1.0))), ExportOptions("t.csv", torch="2.14.1"))
    assert found.startswith(said)


@pytest.mark.parametrize("gpus", [0, -1, 1025])
def test_a_machine_has_one_to_1024_gpus(gpus: int) -> None:
    with pytest.raises(ConfigError, match=f"gpus = {gpus} is not a number of GPUs"):
        written("tunableop", guarded(table(entry(WON, family="cublaslt"))), torch="2.14.1", gpus=gpus)


@pytest.mark.parametrize("problem", [
    Gemm.of(24, 64, 64, batch=4, epilogue="bias"), Gemm.of(24, 64, 64, "bf16,bf16,f32,f32"),
    Gemm.of(24, 64, 64, "fp8_e4m3"), Gemm.of(24, 64, 64, epilogue="bias+relu"), Gemm.of(24, 64, 64, "fp16_acc16"),
], ids=str)  # fmt: skip
def test_a_product_that_tunableop_has_no_word_for_has_no_row(problem: Gemm) -> None:
    assert operation_of(problem) is None


@pytest.mark.parametrize(("problem", "parameters"), [
    (Gemm.of(64, 1, 4096, layout="nn"), "nn_1_64_4096_ld_1_4096_1"),
    (Gemm.of(64, 1, 4096, layout="tn"), "nt_1_64_4096_ld_1_64_1"),
    (Gemm.of(1, 64, 4096), "tn_64_1_4096_ld_4096_4096_64"),
    (Gemm.of(1, 64, 4096, epilogue="bias"), "tn_64_1_4096_ld_4096_4096_64"),
    (Gemm.of(1, 64, 4096, batch=4, layout="tt"), "tt_64_1_4096_B_4_ld_4096_1_64"),
    (Gemm.of(64, 1, 4096), "asks for nn where this is nt"), (Gemm.of(64, 1, 4096, layout="tt"), "asks for tn where"),
    (Gemm.of(1, 64, 4096, layout="tt"), "asks for nt where this is tt"), (Gemm.of(1, 1, 64), "asks for nn where"),
    (Gemm.of(64, 32, 1, layout="tn"), "asks for nn where"), (Gemm.of(64, 1, 4096, batch=4, layout="nn"), "N = 1"),
    (Gemm.of(64, 1, 4096, layout="nn", epilogue="bias"), "bias where N or K is 1"),
], ids=str)  # fmt: skip
def test_a_product_with_a_vector_has_a_row_only_where_torch_asks_for_it_as_measured(
    problem: Gemm, parameters: str
) -> None:
    """`torch.mm(x, weight.t())` of a weight with one row looks for NN: that weight is contiguous as it is."""
    found = guarded(table(entry(problem, family="cublaslt")))
    rows, reasons = rows_of(found), list(with_rows(found).left_out)
    assert [row.split(",")[1] for row in rows] == ([] if reasons else [parameters])
    assert all(parameters in reason for reason in reasons)
    assert len(rows) + len(reasons) == 1


def test_the_ordinal_stands_where_torch_puts_it() -> None:
    assert with_ordinal("a.b/table.csv", 3) == "a.b/table3.csv"
    assert with_ordinal("gpu%d_table.csv", 3) == "gpu3_table.csv"
    assert with_ordinal("dir/table", 3) == "dir/table3"


@pytest.mark.parametrize("name", ["v1.2/table", ".table", "v1.2/.table", "table."])
def test_a_name_whose_last_dot_is_no_endings_is_refused(name: str) -> None:
    # torch would look for v10.2/table.
    with pytest.raises(ConfigError, match=f"{re.escape(name)} has no ending"):
        written("tunableop", guarded(table(entry(WON, family="cublaslt"))), name=name, torch="2.14.1")
