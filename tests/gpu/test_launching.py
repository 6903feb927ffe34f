"""`gemmtune.launch` on a real GPU: torch's tensors by DLPack, dense, apart and scaled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.studying.open_worker import driver_present

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

import gemmtune  # noqa: E402
from gemmtune.arrays import ArrayRefused  # noqa: E402
from space.devices import profile_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from space.registry import family_named  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, guarded, table, written  # noqa: E402
from tuner.files import export_folder  # noqa: E402
from workers.build import Build, compile_source  # noqa: E402
from workers.builder import source_of  # noqa: E402
from workers.cuda.device import identity_here  # noqa: E402

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
