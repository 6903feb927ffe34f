"""The mma_sync kernel's own text, run on the CPU: its C equals NumPy's in float64 within the derived bounds.

Copies arrive at the latest moment that PTX allows, then at the earliest: a wait or a barrier too few shows in one of
the two. The GPU runs the same text in `tests/gpu/test_mma_sync.py`. Needs a C++20 compiler.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from space.devices import profile_named
from space.layouts.banks import access
from tests.mma_sync_on_cpu import FAMILY, Case, Run, program, word_offsets
from tests.on_cpu import needs_compiler

pytestmark = [needs_compiler, pytest.mark.slow]

RTX_5090 = profile_named("RTX 5090")
THREE_SMS = profile_named("RTX 5090 (3 SMs)")
#: Blocks of one or two warps: a CPU runs them one thread after another.
SMALL = {"tile_m": 32, "tile_n": 32, "warps_m": 1, "warps_n": 1}
TMA = SMALL | {"copies": "tma"}
STREAMED = SMALL | {"warps_m": 2, "warps_n": 2, "stream_k": 1}
#: (shape, dtype, layout, batch, epilogue, knobs): every dtype, layout and width of copies, odd extents, batches, each
#: knob away from its default at least once.
CASES: list[tuple[str, str, str, int, str, dict[str, object]]] = [
    ("50x37x104", "bf16", "nt", 1, "none", SMALL | {"warps_n": 2, "stages": 4}),
    ("40x48x100", "bf16", "tn", 2, "alpha+beta+bias+gelu", SMALL | {"warps_m": 2, "tile_n": 48, "stages": 2}),
    ("30x70x198", "fp16", "nn", 1, "bias+silu", SMALL | {"tile_m": 16, "tile_n": 64, "warps_n": 8, "tile_k": 64}),
    ("33x35x77", "fp16", "tt", 2, "alpha+relu", SMALL | {"warps_m": 2, "warps_n": 2, "tile_k": 128, "stages": 2}),
    ("9x90x131", "bf16", "nn", 1, "beta", SMALL | {"swap_ab": 1, "tile_n": 16, "split_k": 3, "stages": 3}),
    ("70x20x500", "fp16", "tn", 1, "alpha+bias", SMALL | {"swap_ab": 1, "split_k": 6, "raster": "along_n"}),
    ("33x66x45", "tf32", "nn", 1, "none", SMALL | {"tile_k": 16, "raster_group": 1, "blocks_per_sm": 2}),
    # MN-major words: spans of 128, 64 and 32 bytes, several of them a warp, halves of 16 rows, copies of 4 to 16 bytes.
    ("70x77x70", "tf32", "tn", 2, "alpha+beta",
     SMALL | {"tile_m": 64, "tile_n": 64, "warps_m": 2, "warps_n": 2, "stages": 2}),
    ("66x70x45", "tf32", "tt", 1, "bias+relu", SMALL | {"tile_m": 128, "tile_n": 16, "warps_m": 2, "tile_k": 16}),
    ("36x100x72", "tf32", "nn", 1, "none", SMALL | {"tile_n": 48, "warps_n": 2, "persistent": 1}),
    ("4x202x131", "tf32", "nn", 2, "none",
     SMALL | {"swap_ab": 1, "tile_m": 96, "warps_m": 2, "tile_n": 8, "split_k": 2}),
    ("9x70x100", "tf32", "tt", 1, "alpha", SMALL | {"swap_ab": 1, "tile_n": 16, "swizzle": 0}),
    ("100x33x200", "tf32", "tn", 1, "none", STREAMED | {"tile_m": 96, "tile_n": 48}),
    ("65x34x96", "tf32", "nt", 2, "alpha+beta",
     SMALL | {"warps_m": 2, "tile_k": 64, "persistent": 1, "raster_group": 2}),
    ("20x50x200", "fp8_e4m3,fp8_e4m3,bf16,f32", "nt", 1, "alpha", SMALL | {"tile_k": 64, "swizzle": 0}),
    ("20x40x333", "fp8_e5m2,fp8_e4m3,fp8_e5m2,f32_promoted", "nn", 2, "none",
     SMALL | {"warps_m": 2, "tile_k": 64, "stages": 5}),
    ("35x33x129", "fp8_e4m3,fp8_e5m2,fp8_e4m3,f32", "nt", 1, "none",
     SMALL | {"warps_m": 2, "tile_n": 8, "tile_k": 128}),
    ("40x30x260", "int8", "nt", 2, "none", SMALL | {"warps_n": 2, "tile_k": 256, "stages": 2, "split_k": 2}),
    ("31x45x100", "int8,uint8,bf16,s32", "tt", 1, "alpha+bias+gelu", SMALL | {"tile_k": 64}),
    ("70x33x90", "uint8,int8,int8,s32", "nt", 1, "alpha",
     SMALL | {"warps_n": 2, "tile_k": 64, "persistent": 1, "split_k": 2}),
    ("40x44x300", "fp16_acc16", "tn", 1, "alpha+bias+relu", SMALL | {"tile_n": 16, "stages": 4}),
    ("37x50x200", "fp16,fp16,f32,fp16", "nt", 2, "none", SMALL | {"warps_n": 2, "split_k": 3, "tile_k": 64}),
    ("9x60x333", "fp8_e5m2,fp8_e4m3,fp16,fp16", "nt", 1, "beta",
     SMALL | {"swap_ab": 1, "warps_m": 2, "tile_k": 64, "tile_n": 16}),
    ("20x40x260", "fp8_e4m3,fp8_e4m3,fp8_e4m3,fp16", "nn", 1, "alpha", SMALL | {"tile_k": 64}),
    ("36x40x200", "fp8_e5m2,fp8_e4m3,bf16,f32_promoted", "nt", 1, "none", SMALL | {"tile_k": 64, "unit_scales": 1}),
    # Three multiprocessors: four tiles, shared by three blocks; five of eight by three; four by six; one by three.
    ("100x33x200", "bf16", "nt", 1, "bias+relu", STREAMED | {"tile_n": 64, "tile_k": 64, "stages": 2}),
    ("200x60x200", "bf16", "nn", 2, "none", STREAMED | {"tile_m": 64, "tile_n": 64}),
    ("40x60x200", "fp16_acc16", "nt", 1, "alpha", STREAMED | {"blocks_per_sm": 2}),
    ("9x30x131", "int8", "nt", 1, "none", STREAMED | {"swap_ab": 1, "tile_k": 64}),
    # By TMA: every width of elements, majors, batches, narrow spans, rings that run on to the next tile, K in slices.
    ("50x37x104", "bf16", "nt", 1, "none", TMA | {"stages": 4}),
    ("40x48x104", "bf16", "tn", 2, "alpha+bias+gelu", TMA | {"warps_m": 2, "tile_n": 48, "stages": 2}),
    ("30x72x200", "fp16", "nn", 1, "bias+silu", TMA | {"tile_m": 16, "tile_n": 64, "warps_n": 2, "tile_k": 64}),
    ("32x40x72", "fp16", "tt", 2, "alpha+relu", TMA | {"tile_k": 128, "stages": 2, "persistent": 1}),
    ("16x90x136", "bf16", "nt", 1, "beta", TMA | {"swap_ab": 1, "tile_n": 16, "split_k": 3, "swizzle": 0}),
    ("64x36x96", "tf32", "nt", 2, "alpha+beta", TMA | {"tile_k": 64, "persistent": 1, "raster": "along_n"}),
    ("33x66x48", "tf32", "nt", 1, "none", TMA | {"tile_k": 16, "blocks_per_sm": 2}),
    ("20x40x336", "fp8_e5m2,fp8_e4m3,fp8_e5m2,f32_promoted", "nn", 2, "none", TMA | {"tile_k": 64, "stages": 5}),
    ("40x32x250", "int8", "tn", 1, "none", TMA | {"tile_k": 128, "stages": 2, "split_k": 2}),
    ("130x140x136", "bf16", "nt", 1, "none",
     TMA | {"tile_m": 128, "tile_n": 64, "warps_m": 4, "warps_n": 2, "persistent": 1}),
    ("3x5x2", "bf16,bf16,f32,f32", "nn", 1, "none", SMALL | {"tile_m": 96, "tile_n": 8, "warps_m": 2}),
]  # fmt: skip


def case_of(case: tuple[str, str, str, int, str, dict[str, object]]) -> Case:
    return Case.of(THREE_SMS if "stream_k" in case[-1] else RTX_5090, *case)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [case_of(case) for case in CASES]


@pytest.fixture(scope="module")
def kernels(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return program(cases, tmp_path_factory.mktemp("mma_sync"))


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: "-".join(map(str, CASES[number][:5])))
def test_c_is_that_of_numpy(kernels: ctypes.CDLL, cases: list[Case], number: int) -> None:
    run = Run(cases[number], seed=number)
    late, early = (run.launch(kernels, number, early=early).copy() for early in (False, True))
    assert run.refused == run.wrong(late) == 0
    assert np.array_equal(late, early)
    assert run.wrote_only_c


def test_every_knob_that_the_kernel_reads_leaves_its_default_somewhere(cases: list[Case]) -> None:
    seen = {name: {case.config[name] for case in cases} for name in FAMILY.knob_named}
    # A CPU sees no difference between sizes of prefetches.
    assert {name for name, values in seen.items() if len(values) == 1} == {"prefetch_bytes"}
    assert {word for case in cases for word in (case.problem.dtype_a, case.problem.dtype_b)} == {
        "bf16", "fp16", "tf32", "fp8_e4m3", "fp8_e5m2", "int8", "uint8",
    }  # fmt: skip
    widths = {FAMILY.compile_constants(case.problem, case.config)["copy_bytes_a"] for case in cases}
    assert widths == {1, 2, 4, 8, 16}


#: Cases that show faults: two tiles each way, K in several slices or stages, both majors, edges on every side.
FAULT_CASES: list[tuple[str, str, str, int, str, dict[str, object]]] = [
    ("40x40x136", "bf16", "nt", 1, "none", SMALL | {"warps_n": 2, "tile_k": 64}),
    ("40x40x136", "bf16", "tn", 1, "none", SMALL | {"warps_m": 2, "persistent": 1}),
    ("40x40x300", "bf16", "nt", 1, "none", SMALL | {"split_k": 3}),
    ("20x20x96", "fp8_e4m3", "nt", 1, "none", SMALL | {"tile_k": 64, "unit_scales": 1}),
    ("100x33x200", "bf16", "nt", 1, "none", STREAMED | {"tile_n": 64}),
    ("40x72x328", "bf16", "nt", 1, "none", TMA | {"warps_n": 2, "persistent": 1}),
    ("72x72x136", "bf16", "tn", 1, "none", TMA | {"tile_m": 96, "tile_n": 48}),
    ("40x72x72", "tf32", "nn", 1, "none", SMALL | {"tile_n": 48, "warps_n": 2}),
    ("72x40x72", "tf32", "tt", 1, "none", SMALL | {"tile_m": 64}),
    ("40x40x137", "bf16", "nn", 1, "none", SMALL | {"warps_n": 2, "tile_k": 64}),
    ("40x40x137", "bf16", "nt", 1, "none", SMALL | {"warps_n": 2, "tile_k": 64}),
]
UNFENCED = "a stage released without a fence"
_WAIT = "cp_async_wait_group<Config::kStages - 2>();"
#: (what is wrong, the text, what the fault makes of it, the case that shows it).
FAULTS = [
    ("no wait for a group", _WAIT, "", 0),
    ("a wait for one group too few", _WAIT, _WAIT.replace("2", "1"), 0),
    ("no barrier after the wait", f"{_WAIT}\n        __syncthreads();", _WAIT, 0),
    ("no wait for the first stage", "wait_for_next_stage();\n        Fragments", "Fragments", 0),
    ("no commit past the last stage", "  cp_async_commit_group();\n", "  if (left > 0) cp_async_commit_group();\n", 0),
    ("copies are swizzled, reads are not", "rows[0] = Op::place(first + 8 * half_row + lane % 8, half_k);",
     "rows[0] = (first + 8 * half_row + lane % 8) * Op::kSpanBytes + half_k * kGroupBytes;", 0),
    ("neighbouring k exchanged", "rows[block] = Op::place(line,", "rows[block] = Op::place(line ^ kRowsFirst,", 1),
    ("rows of a fragment swapped", "half_row = kRowsFirst ? matrix % 2 : matrix / 2", "half_row = matrix / 2", 0),
    ("halves of K swapped in B", "half_k = kRowsFirst ? matrix / 2 : matrix % 2", "half_k = matrix / 2", 0),
    ("fragments not transposed", "ldmatrix_x4<Op::kMnMajor>", "ldmatrix_x4<false>", 1),
    ("words copied swizzled, read plain", "rows[eight] = Op::place(line, group % Op::kGroups) +",
     "rows[eight] = line * Op::kSpanBytes + group % Op::kGroups * kGroupBytes +", 8),
    ("neighbouring k of words exchanged", "Op::kLines + lane % 4;", "Op::kLines + (lane % 4 ^ 1);", 7),
    ("every word the first of its group", " + row % 4 * Op::kElementBytes;", ";", 7),
    ("halves of K of words swapped", "half_k * kStepLines / 2", "(1 - half_k) * kStepLines / 2", 7),
    ("words of A along K first", "(kRowsFirst ? m2 : m1)", "m1", 8),
    ("every span of words the first", "eight / kOffsets * Op::kLines + step", "step", 8),
    ("half of a half block", "m1 = word(tile, 2 * block, 1, step);\n    }\n\nprivate",
     "m1 = word(tile, 2 * block, 0, step);\n    }\n\nprivate", 7),
    ("stale register buffer", "products(held[kStep % 2], d);", "products(held[0], d);", 0),
    ("first step of the next stage read from this one", "kStep == kLast ? next : stage", "stage", 0),
    ("edge of K not masked", "line_inside && left > 0", "line_inside", 0),
    ("edge of lines not masked", "line_inside && left > 0", "left > 0", 1),
    ("part of a stage not copied", "Held<kStep, kLast> part;", "Held<kStep, kLast + 1> part;", 0),
    ("loaded into registers, not stored", "copies.store(part);\n            if", "if", 9),
    ("halves of a word exchanged", "<< 8 * load * kCopyBytes", "<< 8 * (kLoads - 1 - load) * kCopyBytes", 9),
    ("every piece the first of its group", " + byte % kGroupBytes;", ";", 9),
    ("edge of K loaded", "inside && byte < left ?", "inside ?", 10),
    ("K not advanced", "from += Op::kDepth * kElementBytes;", "", 0),
    ("lines not advanced", "lines -= Op::kDepth;", "", 1),
    ("a slice of K that ends a stage early", "tile.k_end = tile.k + each + (tile.split < longer ? 1 : 0);",
     "tile.k_end = tile.k + each;", 2),
    ("slices of K that overlap", "tile.split * each + min(tile.split, longer)", "tile.split * each", 2),
    ("a share that ends a stage early", "end = args.shares.begin(blockIdx.x + 1);",
     "end = args.shares.begin(blockIdx.x + 1) - 1;", 4),
    ("a slice of a tile left out", "walk.last_block(tile) - first + 1", "walk.last_block(tile) - first", 4),
    ("a semaphore that stays raised", "if (smem.flags.shares) semaphore.arrived = 0;", "", 4),
    ("scales that are not 1", "kOnes = 0x7F7F7F7F", "kOnes = 0x7F7F7F7E", 3),
    ("no wait for a stage's bytes", "if constexpr (kNext) wait(ring);", "", 5),
    ("no wait for the first stage's bytes", "        wait(ring);\n        fragments", "        fragments", 5),
    ("no wait for the warps that read a stage",
     "mbarrier_wait(&smem.flags.empty[ring.stage], ring.parity ^ 1);", "", 5),
    ("a stage filled before it is read", "ring.parity ^ 1)", "ring.parity)", 5),
    ("one phase for all rounds", "parity ^= 1;", "", 5),
    ("a stage released by every lane", "if (threadIdx.x % kWarpSize == 0) mbarrier_arrive", "mbarrier_arrive", 5),
    (UNFENCED, "        fence_proxy_async();\n        __syncwarp", "        __syncwarp", 5),
    ("a stage never released", "            release(ring);\n", "", 5),
    ("bytes expected that never come", "arrive_expect_tx(full, S::kStageBytes)",
     "arrive_expect_tx(full, S::kStageBytes + 128)", 5),
    ("the ring not continued from tile to tile", "multiply(fragments, tile, ring, d);\n            this",
     "ring = {};\n            multiply(fragments, tile, ring, d);\n            this", 5),
    ("a box of the next row", "Op::kMnMajor ? depth : first,", "Op::kMnMajor ? depth : first + 1,", 5),
    ("spans loaded on top of one another", "to + span * Op::kLines * Op::kSpanBytes, map", "to, map", 6),
    ("every span the first", "const int along = span * (", "const int along = 0 * (", 6),
    ("sums not cleared", "        sums.clear();\n        Sums<Config> recent;", "        Sums<Config> recent;", 1),
]


@pytest.mark.parametrize(("rows", "span"), [(32, 128), (96, 128), (48, 64), (16, 64), (8, 32)])
def test_lanes_load_words_without_bank_conflicts(rows: int, span: int, tmp_path: Path) -> None:
    offsets = word_offsets(rows, tmp_path)
    assert (np.unique(offsets // span, return_counts=True)[1] == [8] * 4).all()
    assert access(offsets, 4).degree == 1


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """One program with every fault, each kernel in a namespace of its own; the last has none."""
    found = [case_of(case) for case in FAULT_CASES]
    changes = [(old, new, found[number]) for _, old, new, number in FAULTS] + [("", "", case) for case in found]
    return program([case for *_, case in changes], tmp_path_factory.mktemp("faults"), [pair[:2] for pair in changes])


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=lambda number: FAULTS[number][0])
def test_a_planted_fault_is_caught(faulty: ctypes.CDLL, number: int) -> None:
    run = Run(case_of(FAULT_CASES[FAULTS[number][3]]), seed=3)
    wrong = [run.wrong(run.launch(faulty, number, early=early)) for early in (False, True)]
    # On a CPU a read is over before its thread goes on: the replaced arrival refuses what a GPU may reorder.
    assert run.refused if FAULTS[number][0] == UNFENCED else any(wrong)


@pytest.mark.parametrize("number", range(len(FAULT_CASES)))
def test_without_a_fault_they_are_right(faulty: ctypes.CDLL, number: int) -> None:
    run = Run(case_of(FAULT_CASES[number]), seed=3)
    assert not any(run.wrong(run.launch(faulty, len(FAULTS) + number, early=early)) for early in (False, True))
