"""The float64 reference of the GPU against float64 of NumPy, and what the checks catch, for every dtype and layout."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from space.kinds.gemm import DTYPES, Gemm
from space.problem import DTYPE_BYTES
from tests.elements import decoded, product, size_bytes
from tuner.studying.open_worker import driver_present

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]

EPILOGUES = ["alpha", "alpha+beta", "bias+relu", "alpha+beta+bias+gelu", "bias+silu"]
OTHERS = ["bf16,bf16,f32,f32", "fp16,fp16,fp16,f32", "fp8_e5m2,fp8_e4m3,fp8_e4m3,f32", "int8,uint8,bf16,s32",
          "int8,int8,int8,s32", "int8,int8,s32,s32"]  # fmt: skip
PROBLEMS = [
    *(Gemm.of(133, 87, 150, dtype, layout, 1 + 2 * (layout == "nn")) for dtype in DTYPES
      for layout in ("nt", "nn", "tn", "tt")),
    *(Gemm.of(70, 67, 90, dtypes, "nt", 2, epilogue) for dtypes in OTHERS for epilogue in EPILOGUES),
]  # fmt: skip


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[object, object]]:
    from cuda.bindings import driver as cu

    from workers.build import Build, compile_source
    from workers.cuda.driver import Stream, check
    from workers.cuda.toolbox import Toolbox
    from workers.kernels.verify import SOURCE as VERIFY

    check("cuInit", cu.cuInit(0))
    device = check("cuDeviceGet", cu.cuDeviceGet(0))
    check("cuCtxSetCurrent", cu.cuCtxSetCurrent(check("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(device))))
    build = compile_source(VERIFY.render(), "sm_90a", tmp_path_factory.mktemp("cache"))
    assert isinstance(build, Build)
    stream = Stream()
    yield Toolbox(build, stream, 132), stream
    check("cuDevicePrimaryCtxRelease", cu.cuDevicePrimaryCtxRelease(device))


def download(address: int, count: int, dtype: str) -> np.ndarray:
    """Elements of a device array as float64, decoded here."""
    from cuda.bindings import driver as cu

    from workers.cuda.driver import check

    raw = np.zeros(size_bytes(count, dtype), dtype=np.uint8)
    check("cuMemcpyDtoH", cu.cuMemcpyDtoH(raw.ctypes.data, address, raw.nbytes))
    return decoded(raw, dtype)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
def test_the_reference_is_float64_of_numpy(gpu: tuple, problem: Gemm) -> None:
    from workers.cuda.bounds import FORMATS
    from workers.cuda.operands import Operands

    tools, stream = gpu
    operands = Operands(problem, 4711, tools, stream, l2_bytes=2**20)
    form = FORMATS[problem.dtype_c]
    for copy, reference in ((operands.copies[0], operands.reference), (operands.probe, operands.probe_reference)):
        if copy is None:
            continue
        with np.errstate(over="ignore"):  # of silu
            right = product(problem, copy, download)
        got = download(reference.values, right.size, "f64").reshape(right.shape)
        assert np.isfinite(right).all()
        assert np.allclose(got, np.clip(right, form.least, form.most), rtol=1e-11, atol=1e-11)
        bounds = download(reference.bounds, right.size, "f32")
        exact = problem.dtype_acc == "s32" and problem.dtype_c in ("s32", "int8") and problem.epilogue == "none"
        assert (bounds == 0).all() if exact else (bounds > 0).all()
    operands.free()


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_operands_are_fresh_and_fill_their_range(gpu: tuple, dtype: str) -> None:
    from workers.cuda.operands import Operands

    tools, stream = gpu
    problem = Gemm.of(256, 256, 256, dtype)
    drawn = []
    for seed in (1, 2):
        operands = Operands(problem, seed, tools, stream, l2_bytes=2**20)
        drawn.append(download(operands.copies[1].a, 256 * 256, problem.dtype_a))
        operands.free()
    assert (drawn[0] != drawn[1]).mean() > 0.9
    low, high = {"int8": (-128, 127), "uint8": (0, 255)}.get(dtype, (-7, 7))
    assert drawn[0].min() >= low
    assert drawn[0].max() <= high
    if dtype.endswith("int8"):
        assert set(drawn[0]) == set(range(low, high + 1))
    else:
        assert abs(drawn[0].mean()) < 0.02
        assert abs(drawn[0].std() - 1) < 0.02


@pytest.mark.parametrize("dtypes", ["bf16", "fp16", "tf32", "fp8_e4m3", "int8", "int8,int8,int8,s32"])
def test_a_kernel_that_leaves_out_repeats_or_oversteps_is_caught(gpu: tuple, dtypes: str) -> None:
    from cuda.bindings import driver as cu

    from workers.cuda.driver import check
    from workers.cuda.operands import Operands
    from workers.cuda.outputs import Outputs
    from workers.cuda.verification import Verifier

    tools, stream = gpu
    problem = Gemm.of(65, 33, 40, dtypes)
    operands = Operands(problem, 5, tools, stream, l2_bytes=2**20)
    outputs = Outputs(operands, tools, stream)
    verifier = Verifier(operands, outputs, tools, stream)
    size = DTYPE_BYTES[problem.dtype_c]
    end = problem.m * problem.n * size

    def write(at: int, value: int) -> None:
        check("cuMemsetD8Async", cu.cuMemsetD8Async(at, value, size, stream.handle))

    assert "elements are outside their bound" in verifier.verify(lambda copy: None).reason
    assert "outside C" in verifier.verify(lambda copy: write(copy.c + end, 0)).reason
    operands.refresh()
    assert "outside C" in verifier.verify(lambda copy: write(copy.a - size, 0)).reason
    turn = iter(range(100))
    assert "differ between two runs" in verifier.verify(lambda copy: write(copy.c, next(turn))).reason
    operands.refresh()
    assert "outside C" not in verifier.verify(lambda copy: None).reason
    verifier.free()
    outputs.free()
    operands.free()
