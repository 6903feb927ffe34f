"""The compiler confirms in the kernel's text what `space` states in Python."""

from __future__ import annotations

import pytest

from space.config import Config
from space.families.common import input_bytes, stores_chunks
from space.families.sm90_wgmma.estimate import split_trips
from space.family import family_named
from space.kinds.gemm import Gemm
from workers.build import Build, compile_source
from workers.kernels.source import source_of_family

FAMILY = family_named("sm90_wgmma")
PROBLEM = Gemm.parse("4096x4096x4096")


# Units of one, two and four column groups; a transposed tile, whose units have one; two blocks per warpgroup.
@pytest.mark.parametrize(
    "knobs",
    [
        {"tile_n": 24},
        {"tile_n": 48},
        {"tile_n": 128},
        {"tile_n": 96, "tile_m": 256},
        {"tile_n": 64, "swap_ab": 1},
        {"tile_n": 128, "schedule": "pingpong"},
    ],
    ids=str,
)
def test_a_split_products_trips_to_l2_are_those_of_the_estimate(knobs: dict[str, object]) -> None:
    config = FAMILY.config(knobs)
    splits = FAMILY.knob_named["split_k"].domain
    trips = split_trips(FAMILY.columns(PROBLEM, [FAMILY.config(knobs | {"split_k": split}) for split in splits]))
    slice_ = "Partials<Config>"
    compiles(PROBLEM, config, [
        f"ceil_div({slice_}::kUnits, {split}) * ceil_div({split}, {slice_}::kSlicesAhead) == {count}"
        for split, count in zip(splits, trips.tolist(), strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize("swap_ab", [0, 1])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ("256x256x256", "bf16"),
        ("256x257x256", "fp16"),
        ("256x256x256", "tf32"),
        ("256x256x256", "fp8_e4m3"),
        ("256x256x256", "fp8_e4m3,fp8_e4m3,fp8_e4m3,f32"),
    ],
)
def test_c_is_aligned_where_the_kernel_stores_it_by_chunks(shape: str, dtype: str, swap_ab: int) -> None:
    problem = Gemm.parse(shape, dtype)
    tile_k = FAMILY.config({}).number("swizzle_a") // input_bytes(problem)
    config = FAMILY.config({"epilogue": "direct", "swap_ab": swap_ab, "tile_k": tile_k})
    said = str(stores_chunks(problem, config)).lower()
    compiles(problem, config, [f"DirectStore<Config>::kChunks == {said}"])


def compiles(problem: Gemm, config: Config, claims: list[str]) -> None:
    """The kernel's templates followed by these claims, without its entry, so that no code is generated."""
    source = source_of_family(FAMILY).render(FAMILY.compile_constants(problem, config))
    templates = source[: source.index('extern "C" __global__')]
    asserted = "".join(f'static_assert({claim}, "{claim}");\n' for claim in claims)
    made = compile_source(templates + asserted, FAMILY.reference.arch.name, None)
    assert isinstance(made, Build), made.log
