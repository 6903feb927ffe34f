"""Stream-K: all blocks take equal shares of the stages of the tiles that do not fill whole waves.

The first tiles of the grid are shared: those of the last, partial wave and of one whole wave before it, or all if there
is no whole wave. Block b multiplies the b-th share of their stages, one tile after another, then whole tiles.
"""

from __future__ import annotations

from space.columns import Columns, IntColumn
from space.families.common import counted


def resident_blocks(c: Columns) -> IntColumn:
    """Blocks that run at once: as many as the registers must allow."""
    column: IntColumn = c["blocks_per_sm"] * c.device.sm_count
    return column


def shared_tiles(c: Columns) -> IntColumn:
    """Tiles whose stages are shared; 0 if whole waves leave no tile over."""
    tiles, blocks = counted(c["tiles_m"], c["tiles_n"], c.problem.batch), resident_blocks(c)
    left = tiles % blocks
    column: IntColumn = (left > 0) * (left + blocks * (tiles >= blocks)) * c["stream_k"]
    return column


def sharing_blocks(c: Columns) -> IntColumn:
    """Blocks that share them: those that run at once, or one for each stage."""
    stages = c["shared_tiles"] * c["k_iterations"]
    column: IntColumn = (stages < resident_blocks(c)) * stages + (stages >= resident_blocks(c)) * resident_blocks(c)
    return column * c["stream_k"]
