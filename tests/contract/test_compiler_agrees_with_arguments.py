"""Arguments lie where the kernels read them: the compiler holds each field of a launch against its mirror."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from space.families.common import SEMAPHORE_BYTES
from space.family import family_named
from space.kinds.gemm import Gemm
from workers.build import Build, compile_source
from workers.cuda.families import arguments, gemv, mma_sync, packing, sm90_wgmma
from workers.kernels.source import source_of_family

#: Its operands are packed, which takes a structure of its own.
PACKED = Gemm.parse("256x256x255")
SCALED = Gemm.of(256, 256, 256, "fp8_e4m3", epilogue="scaled")
SHARED = (arguments.Divider, arguments.TileGrid, arguments.GemmArguments)


@pytest.mark.parametrize(
    ("family", "problem", "knobs", "mirrors"),
    [
        ("sm90_wgmma", PACKED, {},
         (*SHARED, packing.PackJob, sm90_wgmma.SharedTiles, sm90_wgmma.WgmmaArguments)),
        ("sm90_wgmma", SCALED, {"tile_k": 128}, (sm90_wgmma.ScaledArguments,)),
        ("mma_sync", PACKED, {}, (mma_sync.StageShares, mma_sync.MmaSyncArguments)),
        ("gemv", PACKED, {}, (gemv.GemvArguments,)),
    ],
    ids=["wgmma", "scaled", "mma_sync", "gemv"],
)  # fmt: skip
def test_every_field_is_where_the_host_puts_it(
    family: str, problem: Gemm, knobs: dict[str, object], mirrors: tuple[type[ctypes.Structure], ...]
) -> None:
    owner = family_named(family)
    source = source_of_family(owner).render(owner.compile_constants(problem, owner.config(knobs)))
    said = [f"sizeof(Semaphore) == {SEMAPHORE_BYTES}", *(claim for mirror in mirrors for claim in claims(mirror))]
    if packing.PackJob in mirrors:
        said.append(f"kPackThreads == {packing.THREADS}")
    asserted = "".join(f'static_assert({claim}, "{claim}");\n' for claim in said)
    made = compile_source(source + asserted, owner.reference.arch.name, None)
    assert isinstance(made, Build), made.log


def claims(mirror: type[ctypes.Structure]) -> Iterator[str]:
    """What the compiler must find: size of the structure, and place and size of the fields that it adds to its base."""
    name = mirror.__name__
    yield f"sizeof({name}) == {ctypes.sizeof(mirror)}"
    for field, kind, *_ in mirror._fields_:
        own = field.rstrip("_")
        yield f"__builtin_offsetof({name}, {own}) == {getattr(mirror, field).offset}"
        yield f"sizeof({name}::{own}) == {ctypes.sizeof(kind)}"
