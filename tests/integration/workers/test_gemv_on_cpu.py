"""The gemv kernel's own text, run on the CPU: its C equals NumPy's in float64 within the derived bounds.

The GPU runs the same text in `tests/gpu/test_gemv.py`. Needs a C++20 compiler.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from space.config import Config
from space.explain import explain
from space.family import family_named
from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from tests.elements import encoded, numbers, product
from tests.on_cpu import HEADERS, compiled, needs_compiler
from workers.cuda import bounds, operands
from workers.cuda.families import gemv as launcher
from workers.cuda.kinds import runtime_of
from workers.kernels.flatten import flatten
from workers.kernels.source import source_of_family

pytestmark = needs_compiler

FAMILY = family_named("gemv")
#: (shape, dtype, layout, batch, epilogue, knobs): every dtype, 1 to 4 rows, odd extents, each knob away from its
#: default at least once. Blocks are small: a CPU runs them one thread after another.
CASES: list[tuple[str, str, str, int, str, dict[str, object]]] = [
    ("1x37x256", "bf16", "nt", 1, "none", {"warps": 2}),
    ("2x19x264", "bf16", "tt", 3, "alpha+beta+bias+gelu", {"warps": 2, "lanes": 8, "columns": 4, "unroll": 2}),
    ("3x21x331", "fp16", "tt", 2, "bias+silu", {"load_bytes": 2, "warps": 2, "split_warps": 2, "columns": 1}),
    ("4x18x1000", "fp16", "nt", 1, "alpha+bias+relu", {"warps": 4, "split_warps": 4, "a_path": "cache", "buffers": 2}),
    ("1x9x1003", "tf32", "nt", 2, "none", {"load_bytes": 4, "warps": 1, "unroll": 2, "buffers": 2, "split_k": 4}),
    ("3x13x96", "tf32", "nt", 1, "beta", {"warps": 1, "lanes": 4, "unroll": 1, "persistent": 1}),
    ("2x17x1040", "fp8_e4m3,fp8_e4m3,bf16,f32", "nt", 1, "alpha", {"warps": 2, "lanes": 16, "a_path": "cache"}),
    ("4x11x530", "fp8_e5m2,fp8_e4m3,fp8_e5m2,f32_promoted", "nt", 2, "none",
     {"load_bytes": 2, "warps": 2, "split_warps": 2, "split_k": 2}),
    ("1x23x333", "fp8_e4m3,fp8_e5m2,fp8_e4m3,f32", "nt", 1, "none", {"load_bytes": 1, "warps": 2, "columns": 1}),
    ("4x15x2048", "int8", "nt", 2, "none", {"warps": 4, "split_warps": 2, "split_k": 8, "columns": 1, "persistent": 1}),
    ("3x14x131", "int8,uint8,bf16,s32", "tt", 1, "alpha+bias+gelu", {"load_bytes": 1, "warps": 1, "lanes": 8}),
    ("2x33x248", "uint8,int8,int8,s32", "nt", 1, "alpha", {"load_bytes": 8, "warps": 2, "lanes": 4, "unroll": 1}),
    ("1x5x3", "bf16,bf16,f32,f32", "tt", 1, "none", {"load_bytes": 2, "warps": 1, "prefetch_steps": 4}),
]  # fmt: skip
#: Fewer multiprocessors than tiles, so that persistent blocks walk.
SM_COUNT = 1


@dataclass(frozen=True)
class Case:
    problem: Gemm
    config: Config

    @classmethod
    def of(cls, shape: str, dtype: str, layout: str, batch: int, epilogue: str, knobs: dict[str, object]) -> Case:
        problem = Gemm.parse(shape, dtype, layout, batch, epilogue)
        config = FAMILY.config({"rows": problem.m, "blocks_per_sm": 1} | knobs)
        assert explain(FAMILY, problem, config).broken == ()
        return cls(problem, config)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [Case.of(*case) for case in CASES]


@pytest.fixture(scope="module")
def kernels(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """One program: the kernel once, and each case's Config with the entry that names it."""
    plain = dict.fromkeys(("ptx/dot.cuh", "ptx/stream.cuh", "ptx/griddepcontrol.cuh", "ptx/wgmma_mma_async.cuh"), "//")
    flat = flatten("gemv/entry.cuh", plain | {"ptx/convert.cuh": (HEADERS / "ptx_on_cpu.h").read_text()})
    parts = [flat[: flat.rindex("#line")]]
    for number, case in enumerate(cases):
        source = source_of_family(FAMILY).render(FAMILY.compile_constants(case.problem, case.config))
        own = source[source.index('#line 1 "Config"') :].replace("extern __shared__ __align__(16) unsigned char "
                                                                 "dynamic_smem[];", "")  # fmt: skip
        own = own.replace("dynamic_smem", "dynamic_shared()").replace(" gemv(const", f" gemv{number}(const")
        parts.append(re.sub(r"\bConfig\b", f"Config{number}", own))
        parts.append(f"""extern "C" void run{number}(const GemvArguments* args, unsigned blocks, unsigned smem) {{
            run_grid(blocks, [=] {{ gemv{number}(*args); }}, Config{number}::kWarps * 32, smem);
        }}""")
    return compiled("\n".join(parts), tmp_path_factory.mktemp("gemv"))


class Memory:
    """Arrays of one copy, each at a multiple of 256 bytes with NaN or extremes around it."""

    def __init__(self, problem: Gemm, rng: np.random.Generator) -> None:
        self.held: dict[str, np.ndarray] = {}
        self.address: dict[str, int] = {}
        for part in operands.parts_of(problem):
            values = rng.standard_normal(part.elements) * (40 if part.dtype in ("int8", "uint8", "s32") else 1)
            raw = np.full(part.size_bytes + 1024, 0xFF, np.uint8)
            start = 512 - (raw.ctypes.data + 512) % 256 + 256 * ((raw.ctypes.data + 512) % 256 > 0)
            if part.name != "c":
                raw[start : start + part.size_bytes] = encoded(values, part.dtype)
            self.held[part.name], self.address[part.name] = raw, raw.ctypes.data + start

    def copy(self, problem: Gemm) -> Any:  # noqa: ANN401
        return runtime_of(problem).copy(problem, self.address, 4711)


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: "-".join(map(str, CASES[number][:5])))
def test_c_is_that_of_numpy(kernels: ctypes.CDLL, cases: list[Case], number: int) -> None:
    problem, config = cases[number].problem, cases[number].config
    derived = FAMILY.derive(problem, config)
    memory = Memory(problem, np.random.default_rng(number))
    copy = memory.copy(problem)
    partials = np.full(derived["workspace_bytes"] // 4 + 4, np.nan, np.float32)
    semaphores = np.zeros(2 * derived["tiles_n"] * problem.batch, np.uint64)
    tiles = launcher.tiles_of(problem, config, derived)
    blocks = min(tiles, SM_COUNT * config.number("blocks_per_sm")) if config["persistent"] else tiles
    args = launcher.arguments_of(problem, config, derived, copy, partials.ctypes.data, semaphores.ctypes.data)
    run = getattr(kernels, f"run{number}")
    got = []
    for _ in range(2):
        run(ctypes.byref(args), ctypes.c_uint(blocks), ctypes.c_uint(derived["shared_memory_bytes"]))
        got.append(memory.held["c"].copy())
    right = product(problem, copy)
    form, share = bounds.FORMATS[problem.dtype_c], bounds.bounds_of(problem)
    norms = product_of_norms(problem, copy)
    error = 1.13 * abs(copy.alpha) * share.accumulation * norms + 1e-5 * (np.abs(right) + 1)
    allowed = form.rounding * (np.abs(right) + error) + error + form.smallest
    mine = numbers(copy.c, right.size, problem.dtype_c).reshape(right.shape)
    assert (np.abs(mine - np.clip(right, form.least, form.most)) <= allowed).all()
    # The same again, zeroed counters included; and nothing beyond C.
    assert (got[0] == got[1]).all()
    assert not semaphores.any()
    size = right.size * DTYPE_BYTES[problem.dtype_c]
    start = copy.c - memory.held["c"].ctypes.data
    assert (np.delete(memory.held["c"], np.s_[start : start + size]) == 0xFF).all()


def product_of_norms(problem: Gemm, copy: Any) -> np.ndarray:  # noqa: ANN401
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
    a = numbers(copy.a, m * k * batch, problem.dtype_a)
    a = a.reshape(batch, k, m).swapaxes(1, 2) if problem.layout[0] == "t" else a.reshape(batch, m, k)
    b = numbers(copy.b, n * k * batch, problem.dtype_b).reshape(batch, n, k)
    return np.linalg.norm(a, axis=2)[:, :, None] * np.linalg.norm(b, axis=2)[:, None, :]


def test_every_knob_that_the_kernel_reads_leaves_its_default_somewhere(cases: list[Case]) -> None:
    seen = {name: {case.config[name] for case in cases} for name in FAMILY.knob_named}
    # Hints and sizes of prefetches change nothing that a CPU could see.
    unseen = {"prefetch_bytes", "cache_hint", "pdl", "blocks_per_sm"}
    assert {name for name, values in seen.items() if len(values) == 1} == unseen
    assert {word for case in cases for word in (case.problem.dtype_a, case.problem.dtype_b)} == {
        "bf16", "fp16", "tf32", "fp8_e4m3", "fp8_e5m2", "int8", "uint8",
    }  # fmt: skip
