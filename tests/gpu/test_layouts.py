"""Fragment and swizzle maps against the hardware, element for element."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from space.elements import element_bytes
from space.instructions.operand import Major
from space.instructions.wgmma import WGMMA, Wgmma, wgmma_for
from space.layouts.boxes import plan_boxes
from space.layouts.fragments.matrix_moves import COUNTS, matrix_fragment
from space.layouts.fragments.mma_sync import ACCUMULATORS, SHAPES, Shape, mma_fragment
from space.layouts.operand import OperandTile
from space.layouts.swizzle import SWIZZLES
from tests.gpu.layout_experiments import MmaSync, Seen, WgmmaExperiment
from tests.gpu.layout_gpu import Gpu
from tests.gpu.layout_words import codes_of, register_words
from tests.layout_dump.sources import matrix_moves_source, mma_sync_source, tma_source, wgmma_source
from tuner.studying.open_worker import driver_present

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]

#: Of Hopper: fp6 and fp4 came later.
MMA = [(shape, dtype, accumulator, a_col, b_col)
       for dtype, shapes in SHAPES.items() if not dtype.startswith(("fp6", "fp4"))
       for shape in shapes for accumulator in ACCUMULATORS[dtype]
       for a_col in (False, True) for b_col in (False, True)
       if (a_col, b_col) == (False, True) or (shape == (8, 8, 4) and dtype == "fp16")]  # fmt: skip
MODES = ("128B", "64B", "32B", "none")
BF16 = wgmma_for("bf16", "bf16", "f32")
#: One row of the instruction table for each width of an element.
ROWS = [row for row in (BF16, wgmma_for("tf32", "tf32", "f32"), wgmma_for("fp8_e4m3", "fp8_e5m2", "f32"),
                        wgmma_for("int8", "uint8", "s32")) if row]  # fmt: skip
#: (row, major, swizzle): every canonical layout of every width.
OPERANDS = [(row, major, mode) for row in ROWS for major in row.majors_b for mode in MODES]


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Gpu:
    return Gpu(tmp_path_factory.mktemp("cache"))


def name(row: Wgmma) -> str:
    return f"{row.dtype_a}-{row.dtype_b}-{row.dtype_acc}"


def agree(seen: Seen) -> None:
    said, happened = seen
    assert said.shape == happened.shape
    wrong = [tuple(place) for place in np.argwhere(said != happened)]
    assert not wrong, f"{len(wrong)} of {said.size} differ; at {wrong[0]}: {said[wrong[0]]}, not {happened[wrong[0]]}"


def names(value: object) -> str:
    return name(value) if isinstance(value, Wgmma) else str(value)


@pytest.mark.parametrize(("shape", "dtype", "accumulator", "a_col", "b_col"), MMA)
def test_mma_sync(gpu: Gpu, shape: Shape, dtype: str, accumulator: str, a_col: bool, b_col: bool) -> None:
    source = mma_sync_source(shape, dtype, accumulator, a_col=a_col, b_col=b_col)
    d = mma_fragment(shape, "D", accumulator)
    words = d.registers * d.register_bits // 32
    experiment = MmaSync(partial(gpu.mma_sync, source, words_d=words), shape, dtype, accumulator, a_col, b_col)
    agree(experiment.accumulator())
    agree(experiment.operand_a())
    agree(experiment.operand_b())


def wgmma(gpu: Gpu, row: Wgmma, n: int, source: str) -> WgmmaExperiment:
    return WgmmaExperiment(partial(gpu.wgmma, source, words_d=row.accumulator_registers(n)), row, n)


@pytest.mark.parametrize("row", WGMMA, ids=name)
def test_accumulators_of_wgmma_of_every_n(gpu: Gpu, row: Wgmma) -> None:
    sources = {n: wgmma_source(row, n) for n in row.n}
    gpu.build(list(sources.values()))
    for n, source in sources.items():
        agree(wgmma(gpu, row, n, source).accumulator())


@pytest.mark.parametrize("row", WGMMA, ids=name)
def test_a_of_wgmma_in_registers(gpu: Gpu, row: Wgmma) -> None:
    for n in (row.k, 64, 256):
        agree(wgmma(gpu, row, n, wgmma_source(row, n, a_in_registers=True)).operand_a())


@pytest.mark.parametrize(("row", "major", "mode"), OPERANDS, ids=names)
def test_b_of_wgmma_is_read_where_the_descriptor_says(gpu: Gpu, row: Wgmma, major: Major, mode: str) -> None:
    swizzle, n = SWIZZLES[mode], 64
    span = swizzle.span_bytes // element_bytes(row.dtype_b)
    tile = OperandTile(128, 2 * max(span, row.k) if major == "k" else 64, row.dtype_b, major, swizzle)
    source = wgmma_source(row, n, a_in_registers=True, trans_b=int(major == "mn"))
    for mn in (0, 64):
        for k in (0, row.k, tile.k - row.k):
            agree(wgmma(gpu, row, n, source).places_of_b(tile, mn, k))


@pytest.mark.parametrize(("row", "major", "mode"), OPERANDS, ids=names)
def test_a_of_wgmma_is_read_where_the_descriptor_says(gpu: Gpu, row: Wgmma, major: Major, mode: str) -> None:
    swizzle = SWIZZLES[mode]
    span = swizzle.span_bytes // element_bytes(row.dtype_a)
    tile = OperandTile(192, 2 * max(span, row.k) if major == "k" else 64, row.dtype_a, major, swizzle)
    experiment = wgmma(gpu, row, 32, wgmma_source(row, 32, trans_a=int(major == "mn")))
    for mn in (0, 64, 128):
        for k in (0, row.k, tile.k - row.k):
            agree(experiment.places_of_a(tile, mn, k))


def test_a_wide_n_major_b_crosses_spans(gpu: Gpu) -> None:
    assert BF16 is not None
    for mode in MODES:
        tile = OperandTile(256, 64, "bf16", "mn", SWIZZLES[mode])
        agree(wgmma(gpu, BF16, 256, wgmma_source(BF16, 256, a_in_registers=True, trans_b=1)).places_of_b(tile, 0, 48))


def rows_of_a_tile(mode: str, count: int) -> tuple[np.ndarray, int]:
    """Byte offsets that 8·count lanes point at, in a swizzled tile of 64 rows, and its size in bytes."""
    plan = plan_boxes(64, 64, "bf16", SWIZZLES[mode])
    order = np.random.default_rng(count).permutation(64 * 8)[: 8 * count]
    offsets = np.zeros(32, np.int64)
    offsets[: 8 * count] = plan.offset(order // 8, order % 8 * 8)
    return offsets, plan.smem_bytes


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_ldmatrix(gpu: Gpu, count: int, trans: bool, mode: str) -> None:
    fragment = matrix_fragment("ldmatrix", count, trans)
    offsets, size = rows_of_a_tile(mode, count)
    image = np.arange(size // 2, dtype=np.uint16)
    entry = f"ldmatrix_x{count}{'_trans' if trans else ''}"
    words = gpu.ldmatrix(matrix_moves_source(), entry, image.view(np.uint32), offsets, count)
    said = offsets[8 * fragment.matrix + fragment.row] // 2 + fragment.column
    agree((said, words.view(np.uint16).astype(np.int64)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_stmatrix(gpu: Gpu, count: int, trans: bool, mode: str) -> None:
    fragment = matrix_fragment("stmatrix", count, trans)
    offsets, size = rows_of_a_tile(mode, count)
    untouched = np.full(size // 2, 0xFFFF, np.uint16)
    registers = register_words(fragment, codes_of(fragment), "uint16")
    entry = f"stmatrix_x{count}{'_trans' if trans else ''}"
    image = gpu.stmatrix(matrix_moves_source(), entry, untouched.view(np.uint32), offsets, registers)
    said = untouched.astype(np.int64)
    said[offsets[8 * fragment.matrix + fragment.row] // 2 + fragment.column] = codes_of(fragment)
    agree((said, image.view(np.uint16).astype(np.int64)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["uint8", "bf16", "tf32"])
@pytest.mark.parametrize(("rows", "spans"), [(8, 1), (64, 3), (60, 2), (256, 1), (512, 2)])
def test_tma_puts_every_element_where_the_plan_says(gpu: Gpu, rows: int, spans: int, dtype: str, mode: str) -> None:
    swizzle, size = SWIZZLES[mode], element_bytes(dtype)
    plan = plan_boxes(rows, spans * swizzle.span_bytes // size, dtype, swizzle)
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]
    # The tile is taken out of the middle of a larger matrix.
    row, column = 3, 16
    matrix = np.random.default_rng(rows).integers(0, np.iinfo(kind).max, (rows + 8, plan.columns + 32), kind)
    untouched = np.full(plan.smem_bytes // 4, 0xA5A5A5A5, np.uint32)
    image = gpu.tma(tma_source(), matrix, plan, row, column, untouched)
    said = untouched.view(kind).astype(np.int64)
    r, c = np.indices((plan.rows, plan.columns), dtype=np.int64)
    said[plan.offset(r, c) // size] = matrix[row : row + plan.rows, column : column + plan.columns]
    agree((said, image.view(kind).astype(np.int64)))
