"""Rules that the compiler checks too: what breaks only such a rule does not compile."""

from __future__ import annotations

import pytest

from space.kinds.gemm import Gemm
from space.registry import family_named
from tests.broken_configs import BREAKS
from workers.build import BuildFailure, compile_source
from workers.kernels.source import source_of_family

FAMILY = family_named("sm90_wgmma")
#: What the kernel's static assertions, ptxas or its spill report hold; the rest is the driver's or TMA's.
COMPILED = {
    "wgmma.m", "wgmma.n", "wgmma.n_span", "wgmma.a_registers", "schedule.pingpong", "registers.held", "swizzle.a",
    "swizzle.b", "multicast.slice_b", "epilogue.bytes", "epilogue.swapped", "split.registers",
}  # fmt: skip


@pytest.mark.parametrize(("shape", "dtype", "layout", "knobs", "rule"), [one for one in BREAKS if one[-1] in COMPILED])
def test_the_compiler_refuses_it_too(shape: str, dtype: str, layout: str, knobs: dict[str, object], rule: str) -> None:
    problem = Gemm.parse(shape, dtype, layout)
    source = source_of_family(FAMILY).render(FAMILY.compile_constants(problem, FAMILY.config(knobs)))
    made = compile_source(source, min(FAMILY.targets), None)
    assert isinstance(made, BuildFailure), f"{rule} is stricter than the compiler"
