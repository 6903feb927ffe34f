"""gemmtune/cublaslt.hpp on a real GPU: cuBLASLt's algorithms are rebuilt and right, and have the bits of Python's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tuner.studying.open_worker import driver_present

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks import cpp_built, cpp_bundle  # noqa: E402
from benchmarks.launchers import copy_of, poisoned  # noqa: E402
from gemmtune.exact import exact  # noqa: E402
from gemmtune.torch.expected import Expected  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.gpu.torch_products import listed  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, guarded, table, written  # noqa: E402
from tuner.files import export_folder  # noqa: E402
from tuner.tables.programs import plans_of  # noqa: E402
from workers.cuda.device import identity_here  # noqa: E402
from workers.cuda.families.cublaslt import opened  # noqa: E402
from workers.cuda.library_plans import rebuilds  # noqa: E402

pytestmark = [
    pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler"),
]  # fmt: skip

#: The second splits K; then a batch, what is fused, and each way to scale and to sum.
PROBLEMS = [
    Gemm.of(256, 512, 1024), Gemm.of(64, 128, 16384), Gemm.of(128, 256, 512, layout="nn", batch=3),
    Gemm.of(128, 256, 512, "fp16", "tn", epilogue="alpha+beta+bias+gelu"), Gemm.of(128, 256, 512, "tf32", "tt"),
    Gemm.of(256, 512, 512, "fp8_e4m3", epilogue="scaled"),
    Gemm.of(256, 512, 512, "fp8_e4m3", epilogue="scaled_rowwise"),
    Gemm.of(256, 512, 512, "fp8_e4m3_promoted"), Gemm.of(256, 512, 512, "int8"), Gemm.of(256, 512, 512, "fp16_acc16"),
]
OTHER = Gemm.of(512, 512, 512)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[cpp_bundle.Library, Path]:
    """The headers with a bundle of the last algorithm that the heuristic lists of each problem."""
    folder, entries = tmp_path_factory.mktemp("algorithms"), []
    for problem in (*PROBLEMS, OTHER):
        config = [each for each in listed(problem)[1] if rebuilds(each)][-1]
        document = {"family": config.family, "knobs": config.knobs, "key": config.key}
        found = entry(problem, family="cublaslt", config=document)
        handle, _ = opened()
        version = "10" if problem == OTHER else handle.version
        entries.append(found | {"provenance": found["provenance"] | {"cublaslt": version}})
    chosen = guarded(table(*entries, device=identity_here()))
    files = written("bundle", chosen, program=lambda _: b"", plan=plans_of(identity_here()))
    export_folder(folder / "bundle", files)
    if not cpp_built.cublaslt(folder):
        pytest.skip("cublasLt.h is not here")
    return cpp_bundle.Library(cpp_built.built(folder)[0], folder / "bundle"), folder / "bundle"


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.title)
def test_an_algorithm_is_right_and_has_the_bits_of_pythons(
    problem: Gemm, library: tuple[cpp_bundle.Library, Path]
) -> None:
    headers, bundle = library
    expected, stream = Expected(problem, torch.device("cuda")), torch.cuda.current_stream().cuda_stream
    outputs = [poisoned(expected) for _ in range(2)]
    kernel = headers.kernel(problem)
    try:
        headers.launch(kernel, stream, cpp_bundle.Operands(*copy_of(expected, outputs[0])))
        cpp_bundle.Python(exact(bundle), problem)(stream, copy_of(expected, outputs[1]))
        torch.cuda.synchronize()
    finally:
        headers.close(kernel)
    assert expected.difference(outputs[0]) == ""
    assert torch.equal(*(each.view(torch.uint8) for each in outputs))


def test_an_algorithm_of_another_version_is_refused(library: tuple[cpp_bundle.Library, Path]) -> None:
    with pytest.raises(cpp_bundle.Failed, match="was measured with cuBLASLt 10, this program runs"):
        library[0].kernel(OTHER)
