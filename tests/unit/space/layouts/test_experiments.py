"""The experiments that are run on a GPU, on a simulated one: they agree with it, and notice one wrong place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from space.elements import element_bytes
from space.instructions.wgmma import Wgmma, wgmma_for
from space.layouts.descriptor import WgmmaDescriptor
from space.layouts.fragments.fragment import Fragment
from space.layouts.fragments.mma_sync import Shape, mma_fragment
from space.layouts.fragments.wgmma import wgmma_fragment
from space.layouts.operand import OperandTile
from space.layouts.swizzle import SWIZZLES, IntArray
from tests.descriptor_reads import read_address
from tests.gpu.layout_experiments import MmaSync, RunMma, RunWgmma, Seen, WgmmaExperiment
from tests.gpu.layout_words import element_words, gather, register_words, spread

Change = Callable[[str, Fragment], Fragment]


def same(_: str, fragment: Fragment) -> Fragment:
    return fragment


def swapped(operand: str) -> Change:
    """Two elements of one thread change places in that operand."""

    def change(name: str, fragment: Fragment) -> Fragment:
        if name != operand:
            return fragment
        row, column = fragment.row.copy(), fragment.column.copy()
        row[5, [0, -1]], column[5, [0, -1]] = row[5, [-1, 0]], column[5, [-1, 0]]
        return replace(fragment, row=row, column=column)

    return change


def values_of(bits: IntArray, dtype: str) -> IntArray:
    """The small whole numbers behind bit patterns."""
    table = {int(element_words(np.array([value]), dtype)[0]): value for value in range(8)}
    return np.vectorize(table.__getitem__, otypes=[np.int64])(bits)


def unpacked(fragment: Fragment, words: np.ndarray, dtype: str) -> IntArray:
    registers = np.ascontiguousarray(words).view(f"u{fragment.register_bits // 8}").astype(np.uint64)
    places = (np.arange(fragment.elements_per_register) * fragment.element_bits).astype(np.uint64)
    mask = np.uint64(2**fragment.element_bits - 1)
    bits = (registers[..., None] >> places) & mask
    return values_of(bits.astype(np.int64).reshape(fragment.threads, -1), dtype)


def simulated_mma(shape: Shape, dtype: str, accumulator: str, change: Change = same) -> RunMma:
    a, b = (change(operand, mma_fragment(shape, operand, dtype)) for operand in "AB")
    d = change("D", mma_fragment(shape, "D", accumulator))

    def one(words_a: np.ndarray, words_b: np.ndarray) -> np.ndarray:
        product = gather(a, unpacked(a, words_a, dtype)) @ gather(b, unpacked(b, words_b, dtype))
        return register_words(d, spread(d, product), accumulator)

    return lambda words_a, words_b: np.stack([one(*pair) for pair in zip(words_a, words_b, strict=True)])


def simulated_wgmma(row: Wgmma, n: int, change: Change = same, skew: int = 0) -> RunWgmma:
    """`skew` bytes are added to where B's second row of core matrices begins."""
    d = change("D", wgmma_fragment(n, row.k, "D", row.dtype_acc))
    registers = change("A", wgmma_fragment(n, row.k, "A", row.dtype_a))

    def read(image: np.ndarray, word: int, dtype: str, mn: int, skew: int) -> IntArray:
        rows, ks = np.indices((mn, row.k), dtype=np.int64)
        descriptor = WgmmaDescriptor.decode(word)
        moved = replace(descriptor, stride_byte_offset=descriptor.stride_byte_offset + skew)
        size = element_bytes(dtype)
        place = read_address(moved, "k", dtype, rows, ks) // size
        elements = np.ascontiguousarray(image).view(f"u{size}")
        return values_of(elements[place].astype(np.int64), dtype)

    def one(image: np.ndarray, of_a: int, of_b: int, words: np.ndarray | None) -> np.ndarray:
        b = read(image, of_b, row.dtype_b, n, skew)
        a = read(image, of_a, row.dtype_a, 64, 0) if words is None else gather(
            registers, unpacked(registers, words, row.dtype_a))[0]  # fmt: skip
        return register_words(d, spread(d, a @ b.T), row.dtype_acc)

    def run(images: np.ndarray, of_a: int, of_b: int, words: np.ndarray | None) -> np.ndarray:
        return np.stack([one(image, of_a, of_b, None if words is None else words[place])
                         for place, image in enumerate(images)])  # fmt: skip

    return run


def agrees(seen: Seen) -> bool:
    return bool((seen[0] == seen[1]).all())


CASES: list[tuple[Shape, str, str]] = [
    ((16, 8, 16), "bf16", "f32"), ((16, 8, 8), "f64", "f64"), ((16, 8, 32), "fp8_e5m2", "fp16"),
    ((16, 8, 64), "int4", "s32"), ((16, 8, 128), "b1", "s32"), ((8, 8, 4), "fp16", "f32"), ((16, 8, 4), "tf32", "f32"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "dtype", "accumulator"), CASES)
def test_experiments_with_mma_sync_read_maps_off(shape: Shape, dtype: str, accumulator: str) -> None:
    run = simulated_mma(shape, dtype, accumulator)
    experiment = MmaSync(run, shape, dtype, accumulator, False, True)
    assert agrees(experiment.accumulator())
    assert agrees(experiment.operand_a())
    assert agrees(experiment.operand_b())


@pytest.mark.parametrize("operand", ["A", "B", "D"])
def test_one_swapped_pair_in_mma_sync_is_noticed(operand: str) -> None:
    run = simulated_mma((16, 8, 16), "bf16", "f32", swapped(operand))
    experiment = MmaSync(run, (16, 8, 16), "bf16", "f32", False, True)
    checks = {"A": experiment.operand_a, "B": experiment.operand_b, "D": experiment.accumulator}
    assert not agrees(checks[operand]())


def rows() -> list[Wgmma]:
    found = [wgmma_for(*types) for types in (("bf16", "bf16", "f32"), ("fp8_e4m3", "fp8_e5m2", "fp16"),
                                             ("tf32", "tf32", "f32"), ("int8", "uint8", "s32"))]  # fmt: skip
    return [row for row in found if row]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.dtype_a)
@pytest.mark.parametrize("mode", ["128B", "none"])
def test_experiments_with_wgmma_read_maps_and_addresses_off(row: Wgmma, mode: str) -> None:
    experiment = WgmmaExperiment(simulated_wgmma(row, 32), row, 32)
    span = SWIZZLES[mode].span_bytes // element_bytes(row.dtype_b)
    tile = OperandTile(64, max(span, row.k), row.dtype_b, "k", SWIZZLES[mode])
    assert agrees(experiment.accumulator())
    assert agrees(experiment.operand_a())
    assert agrees(experiment.places_of_b(tile, 32, 0))
    assert agrees(experiment.places_of_a(replace(tile, dtype=row.dtype_a), 0, 0))


def test_a_wrong_register_or_address_of_wgmma_is_noticed() -> None:
    row = rows()[0]
    for operand in ("A", "D"):
        experiment = WgmmaExperiment(simulated_wgmma(row, 32, swapped(operand)), row, 32)
        checks = {"A": experiment.operand_a, "D": experiment.accumulator}
        assert not agrees(checks[operand]())
    tile = OperandTile(64, 64, "bf16", "k", SWIZZLES["128B"])
    assert not agrees(WgmmaExperiment(simulated_wgmma(row, 32, skew=1024), row, 32).places_of_b(tile, 0, 0))
