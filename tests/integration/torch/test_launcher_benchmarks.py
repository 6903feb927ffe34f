"""`benchmarks.cpp_bundle` and `benchmarks.algorithm_round_trip` on the CPU, with a stub driver and a recorder."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks import algorithm_round_trip, cpp_bundle  # noqa: E402
from benchmarks.model.machines import Cpu  # noqa: E402
from benchmarks.published import ROOT  # noqa: E402
from gemmtune.exact import exact  # noqa: E402
from gemmtune.torch.expected import Expected  # noqa: E402
from space.family import config_named, family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.fake_cublaslt import Recorder  # noqa: E402
from tests.unit.tuner.tables.test_exporters import ALGORITHM, CUBIN, entry, table, written  # noqa: E402
from tuner.files import export_folder  # noqa: E402
from tuner.tables.exporters.guard import guarded  # noqa: E402
from tuner.tables.programs import plans_of  # noqa: E402
from workers.build import Build  # noqa: E402
from workers.cuda.families import cublaslt  # noqa: E402

ONE, BIASED = Gemm.of(64, 128, 256), Gemm.of(64, 128, 256, "fp16", epilogue="bias")
LIBRARYS = Gemm.of(32, 128, 256)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_both_launchers_are_compared_on_every_kernel_of_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = table(entry(ONE), entry(BIASED), entry(LIBRARYS, family="cublaslt"))
    files = written("bundle", guarded(document), program=lambda _: CUBIN, plan=plans_of("NVIDIA H200"))
    export_folder(tmp_path / "bundle", files)
    stub, cpp = ROOT / "tests" / "cpp_stub", ROOT / "gemmtune" / "cpp" / "include"
    subprocess.run(
        ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-DWITH_CUBLASLT", "-shared", "-fPIC", f"-I{stub}",
         f"-I{cpp}", str(stub / "driver.cpp"), str(stub / "cublaslt.cpp"),
         str(ROOT / "benchmarks" / "cpp_bundle.cpp"), "-o", str(tmp_path / "library.so")],
        check=True,
    )  # fmt: skip
    monkeypatch.setattr(cpp_bundle, "Python", lambda source, problem: lambda stream, copy: None)
    monkeypatch.setattr(cpp_bundle, "PAIRS_SECONDS", 0.0)
    monkeypatch.setattr(cpp_bundle, "MOST_APART", 1e9)
    library = cpp_bundle.Library(tmp_path / "library.so", tmp_path / "bundle")
    rows, skipped = cpp_bundle.measured(exact(tmp_path / "bundle"), library, Cpu(), float("inf"))
    assert ([row.problem for row in rows], skipped) == ([ONE, BIASED, LIBRARYS], [])
    # The stub computes nothing: C is still poisoned.
    assert all("elements are off" in row.wrong and row.alike for row in rows)
    assert "3 problems of the bundle; 0 right" in cpp_bundle.summary(rows, skipped, ["launched"])
    _, skipped = cpp_bundle.measured(exact(tmp_path / "bundle"), library, Cpu(), 0.0)
    assert len(skipped) == 3
    with pytest.raises(cpp_bundle.Failed, match="no kernel for"):
        library.kernel(Gemm.of(1, 2, 3))
    capsys.readouterr()
    ctypes.CDLL(None).fflush(None)


def test_a_bundle_is_made_of_a_tables_kernels_as_they_are_built_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The environment of these tests has no NVRTC.
    built = Build("7" * 64, CUBIN, 90, (), "13.0", 0.1)
    monkeypatch.setattr(cpp_bundle, "compile_source", lambda *_: built)
    document = table(entry(ONE), entry(BIASED, family="cublaslt"))
    monkeypatch.setattr(cpp_bundle, "opened", lambda: (None, "not installed"))
    assert set(exact(cpp_bundle.exported(document, tmp_path / "kernels")).bests) == {ONE.key}
    monkeypatch.setattr(cpp_bundle, "opened", lambda: (SimpleNamespace(version="130200"), ""))
    source = exact(cpp_bundle.exported(document, tmp_path / "bundle"))
    assert set(source.bests) == {ONE.key, BIASED.key}
    # The library that is loaded here rebuilds what another one measured.
    (text,) = (path.read_text() for path in (tmp_path / "bundle").glob("algorithms/*"))
    assert "\ncublaslt 130200\n" in text
    assert source.bundle is not None
    assert source.bundle.program(ONE) == CUBIN
    assert source.bests[ONE.key].winner.measurement.build_digest == built.digest


def test_an_algorithm_is_rebuilt_from_its_row_and_compared_with_the_heuristics(monkeypatch: pytest.MonkeyPatch) -> None:
    fp8 = Gemm.of(64, 128, 256, "fp8_e4m3")
    nine = {name: value for name, value in ALGORITHM.items() if name != "workspace_bytes"}
    best = family_named("cublaslt").config(ALGORITHM)
    found = [algorithm_round_trip.exported(each, best, 9.0, "NVIDIA H200", "130100") for each in (ONE, BIASED, fp8)]
    assert found == [("TunableOp", nine), ("TunableOp", nine), ("config", nine)]
    with pytest.raises(ValueError, match="is not a name"):
        algorithm_round_trip.numbers_of("Gemm_Cublaslt_id_66")

    handle = object.__new__(cublaslt.Handle)
    handle.lt, handle.handle, handle.version = Recorder(), 1, "130100"
    monkeypatch.setattr(algorithm_round_trip, "PAIRS_SECONDS", 0.0)
    listed = cublaslt.Matmul(handle, ONE).listed
    with pytest.raises(LookupError, match="no algorithm that is right"):
        algorithm_round_trip.fastest(handle, ONE, Cpu())
    # Listed, and without a row: the table says why.
    with pytest.raises(LookupError, match="cuBLASLt fuses no silu"):
        algorithm_round_trip.row_of_best(handle, Gemm.of(64, 128, 256, epilogue="silu"), Cpu(), "NVIDIA H200")
    with monkeypatch.context() as patched:
        patched.setattr(Expected, "difference", lambda self, c: "")
        config, us = algorithm_round_trip.fastest(handle, ONE, Cpu())
        assert config in listed
        assert us > 0
        row = algorithm_round_trip.row_of_best(handle, ONE, Cpu(), "NVIDIA H200")
    assert row.numbers == {name: config_named(listed[row.rank or 0].key).number(name) for name in nine}
    for config, rank in ((listed[0], 0), (listed[1], 1)):
        numbers = {name: config.number(name) for name in nine}
        row = algorithm_round_trip.row_of(handle, ONE, "TunableOp", numbers, Cpu())
        assert (row.rank, row.result[:6]) == (rank, "wrong:")
    numbers = {name: listed[0].number(name) for name in nine} | {"swizzle": 1}
    row = algorithm_round_trip.row_of(handle, ONE, "TunableOp", numbers, Cpu())
    assert row.rank is None
    assert "1 are not in the heuristic's list" in algorithm_round_trip.summary([row], [], "130100", "NVIDIA H200")
    said = [algorithm_round_trip.compared("", *flags) for flags in ((True, True), (False, True), (False, False))]
    assert said == ["same bits", "other bits", "right; the library's own runs differ in bits too"]
