"""The toy family's own kernel text, run on the CPU: its C is NumPy's within what 16-bit outputs round to."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from space.config import Config
from space.devices import profile_named
from space.kinds.gemm import Gemm
from tests.elements import encoded, numbers, product
from tests.on_cpu import HEADERS, compiled, needs_compiler
from tests.toy_family import TOY
from tests.toy_family.kernel import SOURCE
from tests.toy_family.launcher import arguments_of
from workers.cuda.kinds import runtime_of
from workers.cuda.operands import parts_of
from workers.kernels.flatten import flatten

pytestmark = needs_compiler

H200 = profile_named("NVIDIA H200")
#: Odd extents, a batch, both dtypes, a full epilogue, more than one tile each way and more than one stage of K.
CASES: list[tuple[str, str, int, str, dict[str, object]]] = [
    ("50x37x29", "bf16", 1, "none", {"tile_m": 32, "tile_n": 32, "tile_k": 8}),
    ("19x65x33", "fp16", 3, "alpha+beta+bias+gelu", {"tile_m": 16, "tile_n": 64, "tile_k": 16}),
]


def program(problem: Gemm, config: Config, folder: Path) -> ctypes.CDLL:
    """The kernel with an entry in C."""
    flat = flatten(SOURCE.entry, {"ptx/convert.cuh": (HEADERS / "ptx_on_cpu.h").read_text()}, SOURCE.root)
    rendered = SOURCE.render(TOY.compile_constants(problem, config, H200))
    own = rendered[rendered.index('#line 1 "Config"') :]
    own = own.replace("extern __shared__ float dynamic_smem[];", "").replace(
        "{dynamic_smem,", "{reinterpret_cast<float*>(dynamic_shared()),"
    )
    entry = """extern "C" void run(const ToyArguments* args, unsigned blocks, unsigned smem) {
        run_grid(blocks, [=] { toy_simt(*args); }, Config::kThreads, smem);
    }"""
    return compiled("\n".join([flat[: flat.rindex("#line")], own, entry]), folder)


@pytest.mark.parametrize(("shape", "dtype", "batch", "epilogue", "knobs"), CASES)
def test_c_is_that_of_numpy(
    tmp_path: Path, shape: str, dtype: str, batch: int, epilogue: str, knobs: dict[str, object]
) -> None:
    problem, config = Gemm.parse(shape, dtype, "nt", batch, epilogue), TOY.config(knobs)
    rng = np.random.default_rng(5)
    held = {part.name: np.asarray(encoded(rng.standard_normal(part.elements), part.dtype)) for part in
            parts_of(problem)}  # fmt: skip
    held["c"][:] = 0xFF
    copy = runtime_of(problem).copy(problem, {name: array.ctypes.data for name, array in held.items()}, 4711)
    derived = TOY.derive(problem, config, H200)
    program(problem, config, tmp_path).run(
        ctypes.byref(arguments_of(problem, copy)), ctypes.c_uint(derived["tiles"]),
        ctypes.c_uint(derived["shared_memory_bytes"]),
    )  # fmt: skip
    right = product(problem, copy)
    mine = numbers(copy.c, right.size, problem.dtype_c).reshape(right.shape)
    np.testing.assert_allclose(mine, right, rtol=2**-7, atol=2**-7)
