"""Shared-memory bank conflicts: how many wavefronts one access of a warp takes.

Shared memory has 32 banks of 4 bytes. One wavefront reads one word of each bank, for all lanes that access the word. A
warp accesses it in phases of 32 lanes (up to 4 bytes per lane), 16 lanes (8 bytes) or 8 lanes (16 bytes); lanes of
different phases never conflict. ldmatrix and stmatrix move one 8 x 8 matrix per phase. wgmma and tcgen05 read core
matrices of 8 rows x 16 bytes; the model counts each as one phase.

Sources: CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x and later; phases of wide
accesses: NVIDIA developer forum 77228; core matrices: PTX ISA 9.0 §9.7.15.5.1.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from space.arch import WARP_THREADS, WORD_BYTES
from space.errors import LayoutError
from space.layouts.boxes import BoxPlan
from space.layouts.swizzle import IntArray

BANKS: Final = 32
#: Bytes that shared memory or L1 delivers to an SM per clock: one wavefront.
BYTES_PER_CLOCK: Final = BANKS * WORD_BYTES
#: Lanes of one phase, by bytes per lane.
PHASE_LANES: Final = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}


@dataclass(frozen=True, slots=True)
class Phase:
    """Lanes that access shared memory together.

    Attributes:
        lanes: lane numbers.
        words: distinct 4-byte words that the lanes access, by bank.
    """

    lanes: tuple[int, ...]
    words: tuple[tuple[int, ...], ...]

    @property
    def wavefronts(self) -> int:
        """Wavefronts of the phase: words in the busiest bank."""
        return max((len(words) for words in self.words), default=0)

    @property
    def ideal_wavefronts(self) -> int:
        """Wavefronts of as many words without conflicts."""
        return -(-sum(len(words) for words in self.words) // BANKS)


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a warp: a byte address per lane, `width_bytes` per lane, and its phases."""

    addresses: tuple[int, ...]
    width_bytes: int
    phases: tuple[Phase, ...]

    @property
    def wavefronts(self) -> int:
        """Wavefronts of the access."""
        return sum(phase.wavefronts for phase in self.phases)

    @property
    def ideal_wavefronts(self) -> int:
        """Wavefronts of the access without conflicts."""
        return sum(phase.ideal_wavefronts for phase in self.phases)

    @property
    def degree(self) -> int:
        """The n of an n-way conflict; 1 is conflict-free."""
        return max((-(-phase.wavefronts // max(phase.ideal_wavefronts, 1)) for phase in self.phases), default=1)


def access(addresses: Sequence[int] | IntArray, width_bytes: int) -> Access:
    """One access of a warp, with its phases.

    Args:
        addresses: byte address of each lane that takes part, at most 32.
        width_bytes: bytes per lane: 1, 2, 4, 8 or 16.

    Raises:
        LayoutError: no instruction has the width, there are too many lanes, or an address is not aligned.
    """
    if width_bytes not in PHASE_LANES:
        raise LayoutError(f"width = {width_bytes} B per lane: use one of {', '.join(map(str, PHASE_LANES))}")
    places = tuple(int(address) for address in addresses)
    if not 1 <= len(places) <= WARP_THREADS:
        raise LayoutError(f"{len(places)} addresses: a warp has {WARP_THREADS} lanes; give 1 to {WARP_THREADS}")
    if wrong := next((place for place in places if place < 0 or place % width_bytes), None):
        raise LayoutError(
            f"address {wrong} is not where a lane accesses {width_bytes} B: use 0 or a higher multiple of {width_bytes}"
        )
    together = PHASE_LANES[width_bytes]
    starts = range(0, len(places), together)
    phases = tuple(_phase(places, width_bytes, range(start, min(start + together, len(places)))) for start in starts)
    return Access(places, width_bytes, phases)


def _phase(places: tuple[int, ...], width_bytes: int, lanes: range) -> Phase:
    words: list[set[int]] = [set() for _ in range(BANKS)]
    for lane in lanes:
        first, last = places[lane] // WORD_BYTES, (places[lane] + width_bytes - 1) // WORD_BYTES
        for word in range(first, last + 1):
            words[word % BANKS].add(word)
    return Phase(tuple(lanes), tuple(tuple(sorted(bank)) for bank in words))


#: Access patterns of `tile_access`, and what they mean.
PATTERNS: Final[dict[str, str]] = {
    "ldmatrix.x1": "one 8 x 8 matrix of 16-bit elements",
    "ldmatrix.x2": "two such matrices, one below the other",
    "ldmatrix.x4": "four such matrices, as a 16 x 16 operand fragment",
    "stmatrix.x1": "as ldmatrix.x1",
    "stmatrix.x2": "as ldmatrix.x2",
    "stmatrix.x4": "as ldmatrix.x4",
    "wgmma": "the core matrices of 64 rows x 32 bytes",
    "fragment": "a pair of accumulators per lane: row lane/4, 4 bytes at 4·(lane mod 4)",
    "rows": "consecutive lanes access consecutive 16 bytes of a row, then the next row",
    "column": "consecutive lanes access 4 bytes of consecutive rows",
}


def tile_access(plan: BoxPlan, pattern: str, row: int = 0, column: int = 0) -> list[Access]:
    """The accesses of a pattern to a tile, from the element at (`row`, `column`) on.

    Every pattern is one access, except `wgmma`, which reads 64 rows x 32 bytes in four accesses of 32 lanes.

    Raises:
        LayoutError: the pattern is unknown, or reaches outside the tile.
    """
    if pattern not in PATTERNS:
        raise LayoutError(f"pattern {pattern!r} is unknown: use one of {', '.join(PATTERNS)}")
    rows, byte, width = _lanes(plan, pattern)
    columns = byte // plan.element_bytes
    if (column * plan.element_bytes) % width:
        raise LayoutError(
            f"column {column} is at byte {column * plan.element_bytes}, not a multiple of the {width} B of {pattern}: "
            f"use a multiple of {width // plan.element_bytes}"
        )
    last_row = row + int(rows.max())
    last_column = column + int(columns.max()) + -(-width // plan.element_bytes) - 1
    if row < 0 or column < 0 or last_row >= plan.rows or last_column >= plan.columns:
        raise LayoutError(
            f"{pattern} from row {row}, column {column} reaches row {last_row}, column {last_column} of a tile of "
            f"{plan.rows} x {plan.columns}: start earlier, or use a larger tile"
        )
    # An access may start within a wide element, whose bytes a swizzle keeps together.
    addresses = plan.offset(rows + row, columns + column) + byte % plan.element_bytes
    return [access(addresses[start : start + WARP_THREADS], width) for start in range(0, len(addresses), WARP_THREADS)]


def _lanes(plan: BoxPlan, pattern: str) -> tuple[IntArray, IntArray, int]:
    """Row of each lane, byte within the row, and bytes per lane."""
    lane = np.arange(WARP_THREADS, dtype=np.int64)
    if pattern == "wgmma":
        item = np.arange(4 * WARP_THREADS, dtype=np.int64)
        return item // 16 * 8 + item % 8, item // 8 % 2 * 16, 16
    if pattern == "fragment":
        return lane // 4, lane % 4 * 4, 4
    if pattern == "column":
        return lane, np.zeros_like(lane), 4
    if pattern == "rows":
        chunks = plan.columns * plan.element_bytes // 16
        return lane // chunks, lane % chunks * 16, 16
    count = int(pattern[-1])
    lane = lane[: 8 * count]
    return lane % 16, lane // 16 * 16, 16
