"""The library's kernels beyond its heuristic's list, in the order that the estimate of ours expects."""

from __future__ import annotations

from itertools import islice, product

import pytest

from space.devices import find_profile
from space.families.unlisted import COOPERATIVE, OTHER_RASTER, TRANSPOSED, expected_order
from space.kinds.gemm import Gemm

H200 = find_profile("NVIDIA H200")
#: Of two sides one is a multiple of 64, as in the library. Its rows are our columns.
SIDES = (*range(8, 257, 8), 320, 384)
TILES = {
    number: shape
    for number, shape in enumerate((each for each in product(SIDES, SIDES) if 0 in (each[0] % 64, each[1] % 64)), 1)
}
CLUSTERS = {2: (1, 1), 3: (2, 1), 4: (4, 1), 5: (1, 2), 6: (2, 2), 8: (1, 4), 9: (2, 4), 17: (3, 1)}


def first(problem: Gemm, count: int) -> list[dict[str, int]]:
    assert H200
    return list(islice(expected_order(problem, H200, TILES, CLUSTERS), count))


def shapes(found: list[dict[str, int]]) -> list[tuple[tuple[int, int], int, tuple[int, int], int]]:
    return [(TILES[one["tile"]], one["custom"], CLUSTERS[one["cluster"]], one["split_k"]) for one in found]


@pytest.mark.parametrize(
    ("problem", "fastest", "among"),
    [
        # On an H200 the fastest, or within 2 % of it, of 165 that cuBLASLt 13.1 has.
        (Gemm.of(256, 3072, 4096), ((104, 64), OTHER_RASTER, (1, 4), 1), 8),
        (Gemm.of(128, 4096, 14336), ((72, 64), 0, (4, 1), 1), 8),
        (Gemm.of(1024, 28672, 4096), ((176, 256), COOPERATIVE, (2, 1), 1), 16),
    ],
)
def test_a_kernel_that_was_fast_comes_early(problem: Gemm, fastest: object, among: int) -> None:
    assert fastest in shapes(first(problem, among))


def test_each_comes_once_with_the_raster_along_its_cluster() -> None:
    found = first(Gemm.of(512, 4096, 4096), 10_000)
    assert len({tuple(one.values()) for one in found}) == len(found)
    along = {cluster: bool(custom & OTHER_RASTER) for _, custom, cluster, _ in shapes(found)}
    assert along == {(1, 1): False, (2, 1): False, (4, 1): False, (1, 2): True, (2, 2): False, (1, 4): True,
                     (2, 4): True}  # fmt: skip


def test_tiles_and_clusters_that_none_of_ours_has_are_left_out() -> None:
    for (rows, columns), custom, cluster, _ in shapes(first(Gemm.of(512, 4096, 4096), 10_000)):
        tile_m, tile_n = (rows, columns) if custom & TRANSPOSED else (columns, rows)
        assert tile_m in (64, 128, 192, 256)
        assert tile_n <= 256
        assert custom & COOPERATIVE or tile_m <= 128
        assert cluster != (3, 1)


def test_the_librarys_rows_are_our_columns() -> None:
    # 64 rows of C: a tile that is 64 along them wastes nothing, a wider one does.
    assert all(columns == 64 for (_, columns), *_ in shapes(first(Gemm.of(64, 8192, 4096), 6)))
    assert all(rows == 64 for (rows, _), *_ in shapes(first(Gemm.of(8192, 64, 4096), 6)))


def test_k_is_cut_where_tiles_leave_the_gpu_idle_and_slices_are_long_enough() -> None:
    assert {one["split_k"] for one in first(Gemm.of(4096, 4096, 4096), 10_000)} == {1}
    deep = first(Gemm.of(128, 128, 65536), 100)
    assert all(one["split_k"] > 1 and one["reduction"] == 2 for one in deep)
    assert max(one["split_k"] for one in first(Gemm.of(128, 128, 1024), 10_000)) == 4
    assert all(one["reduction"] == 0 for one in first(Gemm.of(4096, 4096, 4096), 100))
