"""`gemmtune.launch` on a real GPU: torch's tensors by DLPack, dense, apart and scaled; our kernels and cuBLASLt's."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from tuner.studying.open_worker import driver_present

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

import gemmtune  # noqa: E402
from gemmtune.arrays import ArrayRefused  # noqa: E402
from space.config import Config  # noqa: E402
from space.devices import profile_named  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.gpu.torch_products import listed  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, guarded, table, written  # noqa: E402
from tuner.errors import TableError  # noqa: E402
from tuner.files import export_folder  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402
from workers.build import Build, compile_source  # noqa: E402
from workers.builder import source_of  # noqa: E402
from workers.cuda.copies import Copy  # noqa: E402
from workers.cuda.device import identity_here  # noqa: E402
from workers.cuda.machine import this_machine  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]

PLAIN = Gemm.of(256, 512, 1024)
SCALED = Gemm.of(256, 512, 1024, "fp8_e4m3", epilogue="scaled_rowwise")
KNOBS: dict[str, dict[str, object]] = {PLAIN.key: {}, SCALED.key: {"tile_k": 128}}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Its driver and library are made up, so that it is stale.
    entries, programs = [], {}
    for place, problem in enumerate((PLAIN, SCALED)):
        config = family_named("sm90_wgmma").config(KNOBS[problem.key])
        built = compile_source(source_of(problem, config, profile_named(identity_here()).arch.name), "sm_90a", None)
        assert isinstance(built, Build)
        programs[problem.key] = built.cubin
        document = {"family": config.family, "knobs": config.knobs, "key": config.key}
        entries.append(entry(problem, config=document, build_digest=f"{place}" * 64))
    chosen = guarded(table(*entries, device=identity_here()))
    files = written("bundle", chosen, program=lambda each: programs[each["problem"]["key"]])
    folder = tmp_path_factory.mktemp("launching") / "bundle"
    export_folder(folder, files)
    return folder


def right(found: Any, expected: Any) -> bool:  # noqa: ANN401
    return bool(torch.allclose(found.float(), expected.float(), rtol=0.02, atol=0.5))


def test_rows_apart_and_dense_ones_run_the_same_program(bundle: Path) -> None:
    stream = torch.cuda.current_stream().cuda_stream
    fused = torch.randn(256, 3072, device="cuda").to(torch.bfloat16)
    w = torch.randn(512, 1024, device="cuda").to(torch.bfloat16)
    out = torch.empty(256, 512, device="cuda", dtype=torch.bfloat16)
    for a in (fused[:, :1024].contiguous(), fused[:, 1024:2048], fused[:, 2048:]):
        gemmtune.launch(a, w.t(), out, stream, table=bundle, stale=True)
        torch.cuda.synchronize()
        assert right(out, a.float() @ w.float().t())
    with pytest.raises(ArrayRefused, match="multiples of 16 bytes apart"):
        gemmtune.launch(torch.empty(256, 1025, device="cuda", dtype=torch.bfloat16)[:, :1024], w.t(), out, stream,
                        table=bundle, stale=True)  # fmt: skip


def test_scales_are_read_on_the_device(bundle: Path) -> None:
    stream = torch.cuda.current_stream().cuda_stream
    a, w = (torch.randn(rows, 1024, device="cuda").to(torch.float8_e4m3fn) for rows in (256, 512))
    rows, columns = torch.rand(256, 1, device="cuda") + 0.5, torch.rand(1, 512, device="cuda") + 0.5
    out = torch.empty(256, 512, device="cuda", dtype=torch.bfloat16)
    for _ in range(2):
        gemmtune.launch(a, w.t(), out, stream, scales=(rows, columns), table=bundle, stale=True)
        torch.cuda.synchronize()
        assert right(out, rows * columns * (a.float() @ w.float().t()))
        rows.mul_(-2.0)


#: Long sums of few elements, of which the library computes parts in a workspace.
LONG = Gemm.of(64, 64, 16384)


def library_table(path: Path, problem: Gemm, config: Config, version: str = "") -> Path:
    """A table whose answer is an algorithm of cuBLASLt, measured with the version that is loaded here by default."""
    document = {"family": config.family, "knobs": config.knobs, "key": config.key}
    kept = entry(problem, family="cublaslt", config=document)
    kept["provenance"] |= {"cublaslt": version or this_machine().cublaslt}
    path.write_bytes(canonical(table(kept, device=identity_here())))
    return path


def alone(matmul: Any, config: Config, a: Any, b: Any, out: Any) -> Any:  # noqa: ANN401
    """The product by one algorithm, called without gemmtune's launch path."""
    algorithm = matmul.algorithm(config)
    workspace = torch.empty(max(algorithm.workspace_bytes, 1), device="cuda", dtype=torch.uint8)
    one, nothing = ctypes.c_float(1.0), ctypes.c_float(0.0)
    copy = Copy(a.data_ptr(), b.data_ptr(), out.data_ptr())
    stream = torch.cuda.current_stream().cuda_stream
    matmul.launch(stream, copy, algorithm, workspace.data_ptr(), ctypes.addressof(one), ctypes.addressof(nothing))
    torch.cuda.synchronize()
    return out


def near(found: Any, a: Any, w: Any) -> bool:  # noqa: ANN401
    """Whether it is the product, whose parts may have been rounded to bf16 before they were added."""
    return bool(torch.allclose(found.float(), a.float() @ w.float().t(), rtol=0.02, atol=0.02 * a.shape[1] ** 0.5))


@pytest.mark.parametrize("problem", [PLAIN, LONG], ids=lambda each: each.key)
def test_the_measured_algorithm_of_the_library_runs(tmp_path: Path, problem: Gemm) -> None:
    a = torch.randn(problem.m, problem.k, device="cuda").to(torch.bfloat16)
    w = torch.randn(problem.n, problem.k, device="cuda").to(torch.bfloat16)
    out, theirs = (torch.empty(problem.m, problem.n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    matmul, configs = listed(problem)
    assert configs
    stream = torch.cuda.current_stream().cuda_stream
    for rank, config in enumerate(configs[:4]):
        measured = library_table(tmp_path / f"{rank}.json", problem, config)
        for _ in range(2):
            out.fill_(float("nan"))
            gemmtune.launch(a, w.t(), out, stream, table=measured, stale=True)
            torch.cuda.synchronize()
            assert torch.equal(out, alone(matmul, config, a, w, theirs)), config.key
        assert near(out, a, w)


@pytest.mark.parametrize("epilogue", ["scaled", "scaled_rowwise"])
def test_the_librarys_algorithm_reads_scales_on_the_device(tmp_path: Path, epilogue: str) -> None:
    problem = Gemm.of(256, 512, 1024, "fp8_e4m3", epilogue=epilogue)
    measured = library_table(tmp_path / "table.json", problem, listed(problem)[1][0])
    a, w = (torch.randn(rows, 1024, device="cuda").to(torch.float8_e4m3fn) for rows in (256, 512))
    sizes = ((), ()) if epilogue == "scaled" else ((256, 1), (1, 512))
    first, second = (torch.rand(size, device="cuda") + 0.5 for size in sizes)
    out = torch.empty(256, 512, device="cuda", dtype=torch.bfloat16)
    for _ in range(2):
        stream = torch.cuda.current_stream().cuda_stream
        gemmtune.launch(a, w.t(), out, stream, scales=(first, second), table=measured, stale=True)
        torch.cuda.synchronize()
        assert right(out, first * second * (a.float() @ w.float().t()))
        first.mul_(-2.0)


def test_the_librarys_algorithm_reads_rows_that_lie_apart(tmp_path: Path) -> None:
    measured = library_table(tmp_path / "table.json", PLAIN, listed(PLAIN)[1][0])
    fused = torch.randn(256, 3072, device="cuda").to(torch.bfloat16)
    w = torch.randn(512, 1024, device="cuda").to(torch.bfloat16)
    out, dense = (torch.empty(256, 512, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    stream = torch.cuda.current_stream().cuda_stream
    for a in (fused[:, 1024:2048], fused[:, 2048:]):
        gemmtune.launch(a, w.t(), out, stream, table=measured, stale=True)
        gemmtune.launch(a.contiguous(), w.t(), dense, stream, table=measured, stale=True)
        torch.cuda.synchronize()
        assert right(out, a.float() @ w.float().t())
        assert torch.equal(out, dense)


def test_a_graph_replays_the_librarys_algorithm_on_what_its_operands_hold_by_then(tmp_path: Path) -> None:
    config = next((each for each in listed(LONG)[1] if each["workspace_bytes"]), listed(LONG)[1][0])
    measured = library_table(tmp_path / "table.json", LONG, config)
    a, w = (torch.randn(64, 16384, device="cuda").to(torch.bfloat16) for _ in range(2))
    out = torch.empty(64, 64, device="cuda", dtype=torch.bfloat16)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    gemmtune.launch(a, w.t(), out, stream.cuda_stream, table=measured, stale=True)
    with torch.cuda.graph(graph, stream=stream):
        gemmtune.launch(a, w.t(), out, stream.cuda_stream, table=measured, stale=True)
    for _ in range(2):
        a.copy_(torch.randn(64, 16384, device="cuda"))
        out.fill_(float("nan"))
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            graph.replay()
        torch.cuda.synchronize()
        assert near(out, a, w)


def test_an_algorithm_of_another_version_is_refused_with_both(tmp_path: Path) -> None:
    measured, here = library_table(tmp_path / "table.json", PLAIN, listed(PLAIN)[1][0], "10"), this_machine().cublaslt
    a, w = (torch.randn(rows, 1024, device="cuda").to(torch.bfloat16) for rows in (256, 512))
    out = torch.full((256, 512), 7.0, device="cuda", dtype=torch.bfloat16)
    stream = torch.cuda.current_stream().cuda_stream
    with pytest.raises(TableError, match=f"cuBLASLt 10, and {here} is loaded here; measure again"):
        gemmtune.launch(a, w.t(), out, stream, table=measured)
    said = f"was measured with cuBLASLt 10, and {here} is loaded here: tune again with it"
    with pytest.raises(ArrayRefused, match=said):
        gemmtune.launch(a, w.t(), out, stream, table=measured, stale=True)
    torch.cuda.synchronize()
    assert bool((out == 7.0).all())
