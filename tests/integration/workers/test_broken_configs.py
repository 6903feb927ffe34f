"""Rules that the compiler checks too: a config that breaks only such a rule does not compile."""

from __future__ import annotations

import pytest

from space.family import family_named
from space.kinds.gemm import Gemm
from tests.broken_configs import BREAKS
from workers.build import BuildFailure, compile_source
from workers.kernels.source import source_of_family

FAMILY = family_named("sm90_wgmma")
#: What the kernel's static assertions, ptxas or its spill report say; the other rules are the driver's or TMA's.
COMPILED = {
    "wgmma.m": "each consumer owns whole m64 blocks",
    "wgmma.n": "Illegal matrix shape '.m64n40k32'",
    "wgmma.n_span": "an instruction starts at a span of MN-major B",
    "wgmma.a_registers": "ldmatrix reads K-major swizzled rows",
    "schedule.pingpong": "ping-pong takes two consumers",
    "registers.held": "insufficient register resources",
    "swizzle.a": "whole swizzle spans in a stage",
    "swizzle.b": "whole swizzle spans in a stage",
    "multicast.slice_b": "a multicast slice is whole 8-line swizzle patterns",
    "epilogue.bytes": "8-bit C leaves by direct stores",
    "epilogue.swapped": "a swapped tile is staged by stmatrix",
    "split.registers": "registers spilled to local memory",
}


@pytest.mark.parametrize(("shape", "dtype", "layout", "knobs", "rule"), [one for one in BREAKS if one[-1] in COMPILED])
def test_the_compiler_refuses_it_too(shape: str, dtype: str, layout: str, knobs: dict[str, object], rule: str) -> None:
    problem = Gemm.parse(shape, dtype, layout)
    source = source_of_family(FAMILY).render(FAMILY.compile_constants(problem, FAMILY.config(knobs)))
    made = compile_source(source, FAMILY.reference.arch.name, None)
    assert isinstance(made, BuildFailure), f"{rule} is stricter than the compiler"
    assert COMPILED[rule] in made.reason
