"""Fragments by the name of their instruction."""

from __future__ import annotations

import re
from typing import Final

from space.errors import LayoutError
from space.layouts.fragments.fragment import Fragment
from space.layouts.fragments.matrix_moves import matrix_fragment
from space.layouts.fragments.mma_sync import mma_fragment
from space.layouts.fragments.tcgen05 import tmem_fragment
from space.layouts.fragments.wgmma import wgmma_fragment

EXAMPLES: Final = (
    "wgmma.m64n64k16", "mma.m16n8k16", "ldmatrix.x4", "ldmatrix.x4.trans", "stmatrix.x2", "tcgen05.ld.32x32b.x8",
)  # fmt: skip

#: Neither digits of other scripts nor numbers without end are extents.
_NUMBER: Final = "([0-9]{1,9})"
_SHAPE: Final = f"m{_NUMBER}n{_NUMBER}k{_NUMBER}"
_MMA: Final = re.compile(rf"(?:mma|mma\.sync)\.{_SHAPE}(\.row|\.col)?")
_WGMMA: Final = re.compile(rf"wgmma(?:\.mma_async)?\.{_SHAPE}")
_MATRIX: Final = re.compile(rf"(ldmatrix|stmatrix)(?:\.m8n8)?\.x{_NUMBER}(\.trans)?(?:\.b16)?")
_TMEM: Final = re.compile(rf"tcgen05\.(ld|st)\.(\w+)\.x{_NUMBER}(\.pack::16b|\.unpack::16b)?(?:\.b32)?")
_PACKING: Final = {"ld": ".pack::16b", "st": ".unpack::16b"}


def fragment_named(name: str, operand: str = "D", dtype: str = "") -> Fragment:
    """The fragment of one operand of an instruction.

    Args:
        name: as in `EXAMPLES`, with or without PTX's `.sync.aligned`.
        operand: `A`, `B`, `C` or `D`; ignored for `ldmatrix`, `stmatrix` and `tcgen05.ld`.
        dtype: dtype of the operand; the default is bf16 for inputs and f32 for accumulators.

    Raises:
        LayoutError: there is no such instruction, operand or dtype.
    """
    words = name.strip().replace(".sync.aligned", "").replace(".shared::cta", "").replace(".shared", "")
    dtype = dtype or ("f32" if operand in ("C", "D") else "bf16")
    if match := _WGMMA.fullmatch(words):
        m, n, k = (int(part) for part in match.groups())
        if m != 64:
            raise LayoutError(f"wgmma has no m = {m}: it is always 64, four warps of 16 rows")
        return wgmma_fragment(n, k, operand, dtype)
    if match := _MMA.fullmatch(words):
        m, n, k = (int(part) for part in match.groups()[:3])
        return mma_fragment((m, n, k), operand, dtype, {None: None, ".row": False, ".col": True}[match[4]])
    if match := _MATRIX.fullmatch(words):
        return matrix_fragment(match[1], int(match[2]), bool(match[3]))
    if (match := _TMEM.fullmatch(words)) and match[4] in (None, _PACKING[match[1]]):
        return tmem_fragment(match[2], int(match[3]), pack16=bool(match[4]), store=match[1] == "st")
    raise LayoutError(
        f"instruction {name[:80]!r} has no fragment here: write a name like {', '.join(EXAMPLES)}"
        + ("; the 8-bit matrix shapes of Blackwell are not described" if "matrix" in words else "")
    )
