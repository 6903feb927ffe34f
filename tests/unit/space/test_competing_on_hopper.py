"""For which products `mma_sync` competes with `sm90_wgmma`, which is faster for all others."""

from __future__ import annotations

import pytest

from space.family import families_for, family_for, family_named
from space.kinds.gemm import Gemm

FAMILY = family_named("mma_sync")


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "competes"),
    [
        ("16x4480x5184", "bf16", "nt", False),
        ("16x4480x5186", "bf16", "nt", True),  # lines of 10,372 bytes
        ("64x1086x128", "fp16", "nn", True),
        ("1024x1023x1024", "bf16", "nn", True),
        ("2048x1023x1024", "bf16", "nn", False),  # 2^31 products, and rows enough to reuse what is packed
        ("257x8191x8191", "bf16", "nt", False),
        ("8191x256x8191", "bf16", "nt", True),
        ("16x4480x5180", "fp8_e4m3", "nt", False),  # mma.sync converts fp8 to fp16 on Hopper
        ("16x4480x5180", "int8", "nt", True),
        ("16x4480x5184", "int8", "nn", False),  # packed by both
    ],
)
def test_on_hopper_it_competes_where_wgmma_packs_what_it_reads_as_it_lies(
    shape: str, dtype: str, layout: str, competes: bool
) -> None:
    problem = Gemm.parse(shape, dtype, layout)
    families = families_for("sm_90a", problem)
    assert (FAMILY in families) == competes
    assert families[0] is family_for("sm_90a", problem) is family_named("sm90_wgmma")
    assert FAMILY in families_for("sm_90a")


@pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
def test_tf32_that_does_not_lie_along_k_is_read_as_it_lies(layout: str) -> None:
    assert FAMILY in families_for("sm_90a", Gemm.parse("64x1024x1024", "tf32", layout))
    assert FAMILY not in families_for("sm_90a", Gemm.parse("64x1024x1024", "bf16", layout))
    assert FAMILY not in families_for("sm_90a", Gemm.parse("4096x4096x4096", "tf32", layout))


def test_aligned_lines_along_k_are_wgmmas() -> None:
    assert FAMILY not in families_for("sm_90a", Gemm.parse("64x1024x1024", "tf32", "nt"))
