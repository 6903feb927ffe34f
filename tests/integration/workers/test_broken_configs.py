"""Rules that the compiler checks too: a config that breaks only such a rule does not compile."""

from __future__ import annotations

import pytest

from space.devices import reference_profile
from space.explain import explain
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.broken_configs import BREAKS
from workers.build import Build, BuildFailure, compile_source
from workers.builder import source_of
from workers.kernels.source import source_of_family

FAMILY = family_named("sm90_wgmma")
MMA = family_named("mma_sync")
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


@pytest.mark.parametrize(("arch", "epilogue", "spills", "fits"), [
    ("sm_89", "beta+bias+gelu", {"tile_n": 96}, {"tile_m": 96}),
    ("sm_89", "beta+gelu", {"tile_m": 192, "tile_n": 8, "warps_m": 1, "warps_n": 1}, {"tile_n": 96}),
    ("sm_120a", "beta+bias+gelu", {"tile_m": 64, "tile_n": 192}, {"tile_m": 96}),
])  # fmt: skip
def test_a_warp_that_finishes_too_much_spills_and_the_largest_below_does_not(
    arch: str, epilogue: str, spills: dict[str, object], fits: dict[str, object]
) -> None:
    problem = Gemm.of(4096, 4096, 4096, epilogue=epilogue)
    for knobs, legal in ((spills, False), (fits, True)):
        config = MMA.config(knobs)
        assert explain(MMA, problem, config, reference_profile(arch)).legal == legal
        made = compile_source(source_of(problem, config, arch), arch, None)
        assert isinstance(made, Build) == legal, knobs
        assert isinstance(made, Build) or "spilled" in made.reason
