"""Importers: shapes from files that other programs write, and hostile files, which are refused whole."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.tables.entries import content_of
from tuner.tables.importers import shapes_of
from tuner.tables.importers.source import Asked
from tuner.tables.shapes import Shapes, as_csv

Read = Callable[..., Shapes]
BF16 = "c10::BFloat16"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(name: str, content: str | bytes, **asked: Any) -> Shapes:  # noqa: ANN401
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return shapes_of([path], Asked(**asked))

    return read


def event(
    name: str, shapes: list[Any], strides: list[Any] | None, types: list[str], **more: Any  # noqa: ANN401
) -> dict[str, Any]:  # fmt: skip
    args = {"Input Dims": shapes, "Input Strides": strides, "Input type": types, **more}
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": 1, "dur": 2, "args": args}


MM = event("aten::mm", [[16, 64], [64, 128]], [[64, 1], [1, 64]], [BF16, BF16])


def trace(*events: dict[str, Any]) -> str:
    return json.dumps({"schemaVersion": 1, "deviceProperties": [{"name": "a [card]"}], "traceEvents": list(events)})


# ------------------------------------------------------------------------------------------------ traces


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_counts_every_run(read: Read, packed: bool) -> None:
    bias = event("aten::addmm", [[128], [16, 64], [64, 128], [], []], [[1], [64, 1], [128, 1], [], []], [BF16] * 3)
    batch = event("aten::bmm", [[4, 16, 64], [4, 64, 32]], [[1024, 64, 1], [2048, 1, 64]], [BF16, BF16])
    none = event("aten::mm", [[0, 64], [64, 128]], [[64, 1], [1, 64]], [BF16, BF16])
    f32 = event("aten::mm", [[16, 64], [64, 128]], [[64, 1], [1, 64]], ["float", "float"])
    grouped = event("aten::_grouped_mm", [[16, 64], [8, 64, 128]], [[64, 1], [8192, 128, 1]], [BF16, BF16])
    other = {"ph": "i", "name": "aten::mm"}
    text = trace(MM, bias, other, MM, batch, none, f32, grouped, MM).encode()
    found = read("trace.json.gz", gzip.compress(text)) if packed else read("trace.json", text)
    assert found.counts == {
        Gemm.of(16, 128, 64): 3, Gemm.of(16, 128, 64, layout="nn", epilogue="bias"): 1, Gemm.of(16, 32, 64, batch=4): 1,
    }  # fmt: skip
    assert sum(found.left_out.values()) == 3
    assert any("graph" in note for note in found.notes)


def test_8_bit_products_of_a_trace_know_their_scales_and_output(read: Read) -> None:
    types = ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "", "", "Scalar", "Scalar"]
    shapes: list[Any] = [[16, 64], [64, 128], [], [], [], [], [], []]
    strides: list[Any] = [[64, 1], [1, 64], [], [], [], [], [], []]
    inputs = ["", "", "", "", "", "", "15", "False"]
    scaled = event("aten::_scaled_mm", shapes, strides, types, **{"Concrete Inputs": inputs})
    rowwise = event("aten::_scaled_mm", [*shapes[:2], [16, 1], [1, 128], *shapes[4:]],
                    [*strides[:2], [1, 1], [128, 1], *strides[4:]], types, **{"Concrete Inputs": inputs})  # fmt: skip
    blocks = event("aten::_scaled_mm", [*shapes[:2], [16, 2], [2, 1], *shapes[4:]],
                   [*strides[:2], [2, 1], [1, 1], *strides[4:]], types, **{"Concrete Inputs": inputs})  # fmt: skip
    found = read("trace.json", trace(scaled, rowwise, blocks))
    dtypes = ("fp8_e4m3", "fp8_e4m3", "bf16", "f32_promoted", "nt", 1)
    assert list(found.counts) == [Gemm(16, 128, 64, *dtypes, epilogue) for epilogue in ("scaled", "scaled_rowwise")]
    assert ["a scale for each block" in reason for reason in found.left_out] == [True]


def test_an_output_dtype_that_a_product_was_asked_for_counts(read: Read) -> None:
    more = event("aten::addmm", [[16, 128], [16, 64], [64, 128]], [[128, 1], [64, 1], [1, 64]], [BF16] * 3)
    asked = [
        MM | {"args": MM["args"] | {"Concrete Inputs": ["", "", "6"]}},
        more | {"args": more["args"] | {"Concrete Inputs": ["", "", "", "6", "1", "1"]}},
        more | {"args": more["args"] | {"Concrete Inputs": ["", "", "", "6", "1"]}},
    ]
    found = read("trace.json", trace(*asked))
    wide = ("bf16", "bf16", "f32", "f32", "nt", 1)
    assert list(found.counts) == [
        Gemm(16, 128, 64, *wide, "none"), Gemm(16, 128, 64, *wide, "beta"), Gemm.of(16, 128, 64, epilogue="beta"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("concrete", "epilogue"),
    [
        (["1", "1"], "bias"), (["1", "0.5"], "alpha+bias"), (["0", "0.5"], "alpha"), (["0", "1"], "none"),
        (["15", "1", "2"], "alpha+bias"), (["1", "x"], "bias"), ([], "bias"),
    ],
)  # fmt: skip
def test_a_trace_says_what_multiplies_a_product_and_a_bias(read: Read, concrete: list[str], epilogue: str) -> None:
    more = {"Concrete Inputs": ["", "", "", *concrete]} if concrete else {}
    bias = event("aten::addmm", [[128], [16, 64], [64, 128]], [[1], [64, 1], [1, 64]], [BF16] * 3, **more)
    assert list(read("trace.json", trace(bias)).counts) == [Gemm.of(16, 128, 64, epilogue=epilogue)]


def test_factors_that_are_no_numbers_of_a_program_count_as_1(read: Read) -> None:
    bias = event("aten::addmm", [[128], [16, 64], [64, 128]], [[1], [64, 1], [1, 64]], [BF16] * 3)
    bias["args"]["Concrete Inputs"] = ["", "", "", 10**400, "1"]
    assert list(read("trace.json", trace(bias)).counts) == [Gemm.of(16, 128, 64, epilogue="bias")]


def test_products_of_operators_that_are_not_read_are_said(read: Read) -> None:
    other = event("aten::_addmm_activation", [[128], [16, 64], [64, 128]], [[1], [64, 1], [1, 64]], [BF16] * 3)
    found = read("trace.json", trace(other))
    assert list(found.left_out) == ["products of _addmm_activation, which gemmtune does not read"]


@pytest.mark.parametrize("inputs", [5, None, {"a": 1}, "15", [], [None] * 9])
def test_inputs_of_any_form_are_no_fault_of_the_product(read: Read, inputs: Any) -> None:  # noqa: ANN401
    found = read("trace.json", trace(MM | {"args": MM["args"] | {"Concrete Inputs": inputs}}))
    assert found.counts == {Gemm.of(16, 128, 64): 1}


def test_a_trace_is_read_event_by_event_across_chunks(read: Read) -> None:
    events = [MM | {"name": "x" * 200_000}] * 12 + [MM]
    assert read("trace.json", trace(*events)).counts == {Gemm.of(16, 128, 64): 1}


# ------------------------------------------------------------------------------------------------ engines

VLLM = (
    "(EngineCore pid=7) WARNING 11-23 10:00:01 [fp8_utils.py:512] Using default W8A8 Block FP8 kernel config. "
    "Performance might be sub-optimal! Config file not found at /opt/vllm/configs/N=1536,K=7168,device_name=NVIDIA_H200"
    ",dtype=fp8_w8a8,block_shape=[128,128].json\n"
)
SGLANG = (
    "[2026-11-23 10:00:01] Using default MoE kernel config. Performance might be sub-optimal! Config file not found at "
    "/sgl/configs/triton_3_9_0/E=128,N=768,device_name=NVIDIA_H200,block_shape=[128, 128].json, you can create them\n"
)


def test_a_log_says_what_is_missing_and_lists_nothing_by_default(read: Read) -> None:
    log = "INFO starting\n" * 3 + VLLM * 8 + SGLANG
    found = read("server.log", log)
    assert (found.counts, len(found.left_out)) == ({}, 2)
    assert any("N = 1536 and K = 7168" in reason for reason in found.left_out)
    assert any("128 experts" in reason for reason in found.left_out)
    listed = read("server.log", log, block_scaled_as="fp8_e4m3", ms=(1, 64))
    assert listed.counts == {Gemm.of(1, 1536, 7168, "fp8_e4m3"): 1, Gemm.of(64, 1536, 7168, "fp8_e4m3"): 1}


@pytest.mark.parametrize("first", ["", "[rank0] ready\n", "[Gloo] Rank 0 is connected\n", "[W1123 10:00:00] torch\n"])
def test_a_log_may_begin_with_a_bracket(read: Read, first: str) -> None:
    found = read("server.log", first + SGLANG)
    assert ["128 experts" in reason for reason in found.left_out] == [True]


def test_the_name_of_an_engines_table_says_its_shapes(read: Read) -> None:
    name = "N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
    content = {"triton_version": "3.6", "1": {"BLOCK_SIZE_M": 64, "32": {}}, "64": None}
    found = read(name, json.dumps(content), block_scaled_as="fp8_e4m3")
    assert [problem.m for problem in found.counts if isinstance(problem, Gemm)] == [1, 64]


# ------------------------------------------------------------------------------------------------ our own


def test_what_is_written_is_read_back(read: Read) -> None:
    listed: list[tuple[Problem, int]] = [(Gemm.of(16, 128, 64, epilogue="bias+gelu"), 7), (Gemm.of(1, 2, 3, "int8"), 1)]
    assert list(read("shapes.csv", as_csv(listed)).counts.items()) == listed
    assert read("shapes.csv", as_csv([])).counts == {}  # written where everything was left out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", '\ufeffm,n,k,count\r\n"16","128","64","7"\r\n'),
        ("t.csv", "\ufeffm;n;k;count\r\n16;128;64;7\r\n"),
        ("t.tsv", "m\tn\tk\tcount\n16\t128\t64\t7\n"),
        ("t.txt", '"m","n","k","count"\n16,128,64,7\n'),
        ("t.csv", "M,N,K,Count\n16,128,64,7\n"),
        ("t.txt", "M, N, K, Count\n16, 128, 64, 7\n"),
        ("t.csv", "m,n,k,count\r\n16,128,64,7\r\n,,,\r\n , ,,\r\n"),
        ("t.csv", "m,n,k,count,,\n16,128,64,7,,\n"),
    ],
)
def test_a_list_is_read_as_spreadsheets_write_it(read: Read, name: str, content: str) -> None:
    assert read(name, content).counts == {Gemm.of(16, 128, 64): 7}


@pytest.mark.parametrize("key", ["conv:1x2x3", "gemm:fp6,fp6,bf16,f32:nt:1x2x3:b1:none"])
def test_a_table_with_a_problem_of_a_newer_version_is_named(read: Read, key: str) -> None:
    document = {"schema": "gemmtune.table/1", "entries": [], "library": {Gemm.of(1, 2, 3).key: None, key: None}}
    with pytest.raises(ProblemError, match=r"table\.json, problem 2: "):
        read("table.json", json.dumps(document | {"content": content_of(document)}))


def test_several_files_add_up(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("m,n,k,count\n16,128,64,2\n")
    (tmp_path / "b.json").write_text(trace(MM))
    assert shapes_of([tmp_path / "a.csv", tmp_path / "b.json"]).counts == {Gemm.of(16, 128, 64): 3}


# ------------------------------------------------------------------------------------------------ hostile files


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", "GemmTunableOp_BFloat16_TN,tn_64_8_32_ld_32_32_64\nGemmTunableOp_BFloat16_TN,tn_64_8\n", "line 2"),
        ("t.csv", "GemmTunableOp_Half_TN,tn_64_8_32_ld_32_32_64\nGemmTunableOp_Half_TN,tn_64_8_3", "line 2: .* cut"),
        ("t.csv", "GemmTunableOp_BFloat16_TN,nn_64_8_32_ld_32_32_64\n", "line 1: .* is not a row of TunableOp"),
        ("t.csv", "GemmTunableOp_BFloat16_TN,tn_64_8_32_B_4_ld_32_32_64\n", "line 1: .* is not a row of TunableOp"),
        ("t.csv", "GemmStridedBatchedTunableOp_Half_TN,tn_64_8_32_ld_32_32_64\n", "line 1: .* is not a row"),
        ("t.csv", "m,n,k\n" + "".join(f"{m},64,64\n" for m in range(1, 20_003)), r"line 20002: more than 20,000"),
        ("t.csv", "m,n,k\n" + "1" * 2_000_000, "line 2: longer than"),
        ("t.csv", "m,n,k,count\n" + "1,2,3,9999999999999\n", "count"),
        ("t.csv.gz", gzip.compress(b"m,n,k\n" + b"1,2,3\n" * 100_000)[:-40], "gzip file is broken"),
        ("t.csv", b"\x1f\x8b\x08\x00not gzip at all", "gzip file is broken"),
        ("t.csv", b"m,n,k\n1,2,\xff\n", "not UTF-8"),
        ("t.csv", "", "no header"),
        ("t.csv", "4096,4096,4096\n", "no header"),
        ("t.csv", "m,n,k,m\n1,2,3,4\n", "line 1 names 'm' twice"),
        ("t.csv", "m,n,k,M\n1,2,3,4\n", "line 1 names 'm' twice"),
        ("t.csv", "m,n,k,\n1,2,3,4\n", "line 2: '' is not a field"),
        ("trace.json", trace(MM)[:-30], "cut off"),
        ("trace.json", '{"traceEvents": [{"name": "' + "a" * 3_000_000, "can't be read"),
        ("trace.json", '{"traceEvents": [' + "[" * 100_000, "nested too deeply|can't be read|cut off"),
        ("trace.json", trace(MM)[:-2] + ', {"a": b}]}', "cut off, or event 2 is broken .Expecting value."),
        ("trace.json", trace(MM)[:-2] + ', {"a": ' + "1" * 5000 + "}]}", "event 2 is broken .Exceeds the limit"),
        ("trace.json", trace({"name": "aten::mm", "args": {"Ev Idx": 1}}), "record_shapes"),
        ("trace.json", trace(event("aten::mm", [[2**61] * 5000, [2]], None, [BF16, BF16])), "event 1: .* not extents"),
        ("trace.json", trace(event("aten::mm", [[-1, 2], [2, 2]], [[1, 1], [1, 1]], [BF16, BF16])), "event 1"),
        ("p.json", json.dumps([{"m": 1, "n": 2, "layout": "tnt", "dtype_a": "bf16"}]), "entry 1 has no dtype_b"),
        ("p.json", json.dumps([{"layout": "tnt"}, {"layout": "abc"}])[:-1] + "]", "entry 1 has no m"),
        ("table.json", '{"schema": "gemmtune.table/9", "entries": []}', "not a 'gemmtune.table/1'"),
        ("table.json", '{"schema": "gemmtune.table/1", "entries": [7]}', "not a table"),
        ("server.log", "INFO nothing to see\n", "nothing is missing"),
        ("out.txt", "starting\n" * 9_000 + "[2026-11-20 10:00:01 TP0] ready\n", "nothing is missing"),
        ("N=64,K=128,device_name=X,dtype=fp8_w8a8.json", "not JSON", "is not valid JSON"),
        ("N=64,K=128,device_name=X,dtype=fp8_w8a8.json", '{"1": {"num_warps": 4}, "64": {"num', "is not valid JSON"),
        ("N=64,K=128,device_name=X,dtype=fp8_w8a8.json", '{"1": {}, "1": {}}', "'1' is given twice"),
        ("N=64,K=128,device_name=X,dtype=fp8_w8a8.json", '["1"]', "has no entry of an M"),
        ("N=64,K=128,device_name=X,dtype=fp8_w8a8.json", '{"triton_version": "3.6"}', "has no entry of an M"),
        ("picture.png", b"\x89PNG\r\n\x1a\n", "not UTF-8"),
        ("t.parquet", b"PAR1\x15\x04\x15\xff", "t.parquet is Parquet, which is not read as a list: export it as csv"),
        ("shapes.txt", "1024x1024x1024\n", "none of the formats that list shapes: .*CSV list with a header"),
        ("shapes", "64 64 64\nplain words\n", "none of the formats"),
        ("notes.md", "# Notes\nNothing here.\n", "none of the formats"),
        ("config.json", '{"text_config": {"model_type": "llama"}}', "model_type = None: name the type"),
        ("config.json", '{"architectures": ["LlamaForCausalLM"]}', "model_type = None: name the type"),
        ("config.json", '{"model_type": 5, "text_config": {"model_type": "llama"}}', "model_type = 5: name the type"),
        ("config.json", '{"model_type": "llama", "num_hidden_layers": 100000}', "100,000 is more than"),
        ("config.json", '{"model_type": "llama", "hidden_size": 99999999999}', "beyond 31 bits"),
        ("config.json", '{"model_type": "swin", "depths": [2, 1000000000]}', "depths = 1,000,000,000 is more than"),
        ("config.json", '{"model_type": "x", "vision_config": {"depth": 100000}}', "depth = 100,000 is more than"),
        ("config.json", '{"model_type": "x", "towers": [{"num_blocks": 5000}]}', "num_blocks = 5,000 is more than"),
    ],
)  # fmt: skip
def test_what_breaks_a_format_is_refused_with_its_place(read: Read, name: str, content: str | bytes, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        read(name, content)


def test_values_of_m_and_gpus_that_no_file_uses_are_refused(read: Read, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="--m is for files that leave M open"):
        read("shapes.csv", "m,n,k\n1,2,3\n", ms=(4,))
    with pytest.raises(ProblemError, match="--m is for files that leave M open"):
        read("N=64,K=128,device_name=X,dtype=fp8_w8a8.json", '{"16": {}}', ms=(4,), block_scaled_as="fp8_e4m3")
    with pytest.raises(ProblemError, match="--m is for"):
        shapes_of([], Asked(ms=(4,)))
    with pytest.raises(ProblemError, match="--tp cuts the layers of a model's config"):
        read("shapes.csv", "m,n,k\n1,2,3\n", tp=2)


def test_a_gzip_bomb_ends_at_the_limit(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.tables.importers.source.MOST_BYTES", 8 << 20)
    blank = gzip.compress(b'{"traceEvents": [' + b" " * (16 << 20), compresslevel=1)
    with pytest.raises(ProblemError, match="more than 8 MiB"):
        read("trace.json.gz", blank)


def test_pipes_and_devices_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "shapes.csv")
    for path in (tmp_path / "shapes.csv", Path("/dev/zero")):
        with pytest.raises(ProblemError, match="a pipe or a device"):
            shapes_of([path])
