"""The direct epilogue's own text, run on the CPU: each lane's elements reach their places in C and no others.

The GPU runs the same text under every candidate that is verified. Needs a C++20 compiler.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass

import numpy as np
import pytest

from space.config import Config
from space.explain import explain
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.elements import decoded, encoded, size_bytes
from tests.on_cpu import HEADERS, compiled, config_struct, needs_compiler
from workers.cuda.families import sm90_wgmma
from workers.kernels.flatten import flatten
from workers.kernels.source import source_of_family

pytestmark = needs_compiler

FAMILY = family_named("sm90_wgmma")
DIRECT = {"epilogue": "direct", "stages": 2, "consumer_warpgroups": 1, "producer_registers": 0, "tile_m": 64}
#: (shape, dtypes, knobs): rows of C at every place between multiples of 16 bytes, at such multiples, shorter than a
#: tile; C of 1, 2 and 4 bytes, as it is and transposed.
CASES: list[tuple[str, str, dict[str, object]]] = [
    ("70x101x64", "bf16", {"tile_n": 64}),
    ("70x101x64", "fp16", {"tile_n": 72}),
    ("64x46x64", "bf16", {"tile_n": 40}),
    ("33x5x64", "bf16", {"tile_n": 32}),
    ("70x136x64", "bf16", {"tile_n": 96}),
    ("9x24x64", "bf16", {"tile_n": 56}),
    ("70x101x64", "bf16", {"tile_n": 72, "swap_ab": 1}),
    ("70x104x64", "bf16", {"tile_n": 40, "swap_ab": 1}),
    ("70x101x64", "bf16,bf16,f32,f32", {"tile_n": 64}),
    ("70x101x128", "fp8_e4m3,fp8_e4m3,fp8_e5m2,f32", {"tile_n": 64, "tile_k": 128}),
    ("70x104x64", "bf16", {"tile_n": 80}),
    ("70x104x64", "bf16", {"tile_n": 72}),
    ("70x104x64", "bf16,bf16,f32,f32", {"tile_n": 72}),
    ("70x112x128", "fp8_e4m3,fp8_e4m3,fp8_e5m2,f32", {"tile_n": 64, "tile_k": 128}),
]
#: The same with epilogues that read scales, as they are and transposed.
SCALED: list[tuple[str, str, dict[str, object], str]] = [
    ("70x101x128", "fp8_e4m3", {"tile_n": 64, "tile_k": 128}, "scaled"),
    ("70x104x128", "fp8_e5m2", {"tile_n": 40, "tile_k": 128, "swap_ab": 1}, "scaled+bias"),
    ("70x101x128", "fp8_e4m3", {"tile_n": 64, "tile_k": 128}, "scaled_rowwise"),
    ("70x104x128", "fp8_e4m3", {"tile_n": 40, "tile_k": 128, "swap_ab": 1}, "scaled_rowwise+bias+relu"),
    ("70x46x128", "fp8_e4m3,fp8_e4m3,f32,f32", {"tile_n": 56, "tile_k": 128}, "scaled_rowwise+bias"),
]
#: The one PTX instruction that direct stores use: the transposition.
PTX = """
inline u32 movmatrix_transposed(u32 pair) {
    const unsigned row = threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
    const u32 low = on_cpu::exchanged(pair, column * 4 + row / 2) >> 16 * (row % 2);
    const u32 high = on_cpu::exchanged(pair, (column + 1) * 4 + row / 2) >> 16 * (row % 2);
    return (low & 0xFFFF) | high << 16;
}
"""
INCLUDES = (
    '#include "common/direct_store.cuh"\n#include "sm90_wgmma/shape.cuh"\n#include "sm90_wgmma/arguments.cuh"\n'
)
ENTRY = """
extern "C" void run{number}(const GemmArguments* args, const float* sums, int row, int column) {{
    run_grid(1, [=] {{
        typename Fragment<{config}>::Block d;
        const int lane = threadIdx.x % 32, first = 16 * (threadIdx.x / 32) + lane / 4;
        for (int i = 0; i < Shape<{config}>::kAccumulators; ++i) {{
            const int down = first + 8 * (i / 2 % 2), across = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            d[i] = sums[down * {config}::kTileN + across];
        }}
        const Finish<{config}> finish{{*args, 0}};
        DirectStore<{config}> store(finish);
        store.block(row, column, d);
    }}, 128);
}}
"""


@dataclass(frozen=True)
class Case:
    problem: Gemm
    config: Config


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    found = []
    for shape, dtype, knobs, epilogue in [*((*case, "none") for case in CASES), *SCALED]:
        case = Case(Gemm.parse(shape, dtype, epilogue=epilogue), FAMILY.config(DIRECT | knobs))
        assert explain(FAMILY, case.problem, case.config).broken == ()
        found.append(case)
    return found


@pytest.fixture(scope="module")
def stores(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """One program: the epilogue once, and each case's Config with an entry that stores one m64 block."""
    convert = (HEADERS / "ptx_on_cpu.h").read_text()
    parts = [flatten("includes", {"includes": INCLUDES, "ptx/matrix.cuh": PTX, "ptx/convert.cuh": convert})]
    for number, case in enumerate(cases):
        source = source_of_family(FAMILY).render(FAMILY.compile_constants(case.problem, case.config))
        config = config_struct(source)
        if case.problem.scales:
            # What the entry has before the kernel itself.
            config += source[source.index("struct ScaledArguments") : source.index('extern "C" __global__')]
        parts.append(re.sub(r"\b(Config|ScaledArguments|Unscaled)\b", rf"\g<1>{number}", config))
        parts.append(ENTRY.format(number=number, config=f"Config{number}"))
    return compiled("\n".join(parts), tmp_path_factory.mktemp("direct_store"))


@pytest.mark.parametrize(
    "number", range(len(CASES) + len(SCALED)), ids=lambda number: "-".join(map(str, [*CASES, *SCALED][number]))
)
def test_every_element_of_c_is_stored_once_and_nothing_beside_it(
    stores: ctypes.CDLL, cases: list[Case], number: int
) -> None:
    problem, tile_n = cases[number].problem, cases[number].config.number("tile_n")
    swapped = cases[number].config["swap_ab"] == 1
    m, n = (problem.n, problem.m) if swapped else (problem.m, problem.n)
    rng = np.random.default_rng(number)
    whole = rng.standard_normal((-(-m // 64) * 64, -(-n // tile_n) * tile_n)).astype(np.float32)
    held = np.full(size_bytes(problem.m * problem.n, problem.dtype_c) + 512, 0xA5, np.uint8)
    start = 256 - held.ctypes.data % 256
    args = sm90_wgmma.ScaledArguments(c=held.ctypes.data + start, ldc=problem.n, m=m, n=n, alpha=1.0)
    rows, columns = (problem.m, problem.n) if problem.scales == "scaled_rowwise" else (1, 1)
    scale_a, scale_b = (rng.standard_normal(count).astype(np.float32) for count in (rows, columns))
    bias = rng.standard_normal(problem.n).astype(np.float32)
    raw_bias = encoded(bias, problem.dtype_bias)
    args.scale_a, args.scale_b, args.bias = (each.ctypes.data for each in (scale_a, scale_b, raw_bias))
    for row in range(0, m, 64):
        for column in range(0, n, tile_n):
            block = np.ascontiguousarray(whole[row : row + 64, column : column + tile_n])
            getattr(stores, f"run{number}")(ctypes.byref(args), ctypes.c_void_p(block.ctypes.data), row, column)
    right = whole[:m, :n].T if swapped else whole[:m, :n]
    right = finished(problem, right, scale_a, scale_b, decoded(raw_bias, problem.dtype_bias))
    expected = encoded(np.ascontiguousarray(right).astype(np.float64).ravel(), problem.dtype_c)
    end = start + len(expected)
    assert np.array_equal(decoded(held[start:end], problem.dtype_c), decoded(expected, problem.dtype_c))
    assert (held[:start] == 0xA5).all()
    assert (held[end:] == 0xA5).all()


def finished(
    problem: Gemm, sums: np.ndarray, scale_a: np.ndarray, scale_b: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """C in f32, in the order of the kernel's roundings."""
    if not problem.scales:
        return sums
    c = sums * (scale_a[:, None] * scale_b)
    if "bias" in problem.epilogue_parts:
        c = c + bias.astype(np.float32)
    return np.maximum(c, 0) if "relu" in problem.epilogue_parts else c
