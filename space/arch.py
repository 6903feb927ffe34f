"""Archs: compile targets, their limits, and the instructions that assemble for each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from space.errors import ArchError

WARP_THREADS: Final = 32
#: Size of a register, of an f32 or s32 sum, and of a word of a shared-memory bank.
WORD_BYTES: Final = 4
#: Widest load or store of one thread on every arch (PTX ISA 9.0, ld and st: `.v4.b32`).
VECTOR_BYTES: Final = 16
#: L2 looks up lines and moves sectors (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory").
LINE_BYTES, SECTOR_BYTES = 128, 32
#: Registers of a thread are allocated in steps of this (CUDA Occupancy Calculator: 256 a warp).
REGISTER_STEP: Final = 8
#: Document of the limits that every device of an arch has.
DOCUMENT: Final = "CUDA C++ Programming Guide, compute capabilities"
#: Largest x extent of a grid (CUDA C++ Programming Guide, compute capabilities).
MAX_GRID_BLOCKS: Final = 2**31 - 1

#: Instructions and units that only some archs have.
Feature = Literal[
    "cp_async", "mma_fp8", "mma_fp4", "clusters", "tma", "stmatrix", "setmaxnreg", "wgmma", "matrix_b8", "tcgen05"
]


_AMPERE: Final = frozenset[Feature]({"cp_async"})
_ADA: Final = _AMPERE | frozenset[Feature]({"mma_fp8"})
_HOPPER: Final = _ADA | frozenset[Feature]({"clusters", "tma", "stmatrix", "setmaxnreg"})
_BLACKWELL: Final = _HOPPER | frozenset[Feature]({"matrix_b8"})
_WGMMA: Final = frozenset[Feature]({"wgmma"})
_TCGEN05: Final = frozenset[Feature]({"tcgen05"})
_FP4: Final = frozenset[Feature]({"mma_fp4"})


@dataclass(frozen=True, slots=True)
class Arch:
    """Facts about one compile target.

    Attributes:
        name: with its suffix; `sm_90` and `sm_90a` are different targets.
        smem_per_block_bytes: opt-in dynamic shared memory of one block.
        threads_per_sm, blocks_per_sm: most that are resident on an SM at once.
        features: instructions that assemble: `cp_async`; `mma.sync` with fp8 operands (`mma_fp8`), and with fp6, fp4
            and block scales (`mma_fp4`); `clusters` and `tma`; `stmatrix`; `setmaxnreg`; `wgmma`; `ldmatrix` and
            `stmatrix` of 8-bit elements (`matrix_b8`); `tcgen05`.
        cluster_portable: largest cluster that every device of this arch can launch; 1 without clusters.
        cluster_largest: largest cluster with `cudaFuncAttributeNonPortableClusterSizeAllowed`, as far as documented.
        tmem_columns: columns of tensor memory, 128 lanes of 32 bits each; 0 without tensor memory.
        smem_static_bytes: shared memory that a block may use without opting in.
        smem_reserved_bytes: shared memory of the SM that the driver takes for each block.
        registers_per_block: 32-bit registers of one block, which are all those of the SM.
        registers_per_thread: most registers that one thread can address.
        threads_per_block: most threads of one block.

    Source: CUDA C++ Programming Guide, table of technical specifications per compute capability (NVIDIA/cccl
    states the same in `cuda/__device/arch_traits.h`); Hopper and Blackwell Tuning Guides for clusters of 16;
    PTX ISA 9.0 target notes for the features, each of which the tests assemble; PTX ISA 9.0 §9.7.16.1 for
    tensor memory.
    """

    name: str
    smem_per_block_bytes: int
    threads_per_sm: int
    blocks_per_sm: int
    features: frozenset[Feature]
    cluster_portable: int = 1
    cluster_largest: int = 1
    tmem_columns: int = 0
    smem_static_bytes: int = 48 * 1_024
    smem_reserved_bytes: int = 1_024
    registers_per_block: int = 65_536
    registers_per_thread: int = 255
    threads_per_block: int = 1_024

    @property
    def compute_capability(self) -> tuple[int, int]:
        """The compute capability as the driver reports it: `(9, 0)` for `sm_90a`."""
        digits = self.name.removeprefix("sm_").rstrip("af")
        return int(digits[:-1]), int(digits[-1])

    @property
    def smem_per_sm_bytes(self) -> int:
        """Shared memory of one SM: the most that a block can have, and what the driver takes for it."""
        return self.smem_per_block_bytes + self.smem_reserved_bytes

    def registers_for(self, threads: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Registers that each of `threads` resident threads gets when a kernel starts."""
        shared: npt.NDArray[np.int64] = self.registers_per_block // threads // REGISTER_STEP * REGISTER_STEP
        return np.minimum(shared, self.registers_per_thread)


ARCHS: Final[dict[str, Arch]] = {
    arch.name: arch
    for arch in (
        Arch("sm_80", 166_912, 2_048, 32, _AMPERE),
        Arch("sm_86", 101_376, 1_536, 16, _AMPERE),
        Arch("sm_87", 166_912, 1_536, 16, _AMPERE),
        Arch("sm_89", 101_376, 1_536, 24, _ADA),
        Arch("sm_90a", 232_448, 2_048, 32, _HOPPER | _WGMMA, 8, 16),
        Arch("sm_100a", 232_448, 2_048, 32, _BLACKWELL | _TCGEN05, 8, 16, tmem_columns=512),
        Arch("sm_103a", 232_448, 2_048, 32, _BLACKWELL | _TCGEN05, 8, 16, tmem_columns=512),
        Arch("sm_120a", 101_376, 1_536, 24, _BLACKWELL | _FP4, 8, 8),
        Arch("sm_121a", 101_376, 1_536, 24, _BLACKWELL | _FP4, 8, 8),
    )
}


def arch_named(name: str) -> Arch:
    """The arch of that name.

    Raises:
        ArchError: the name is unknown or lacks its suffix.
    """
    if name in ARCHS:
        return ARCHS[name]
    if f"{name}a" in ARCHS:
        raise ArchError(f"arch {name!r} lacks its suffix: {name} has no wgmma, setmaxnreg or tcgen05; write {name}a")
    hint = "" if re.fullmatch(r"sm_\d+[af]?", name) else " (an arch is written sm_90a)"
    raise ArchError(f"arch {name!r} is unknown{hint}: use one of {', '.join(ARCHS)}")


def arch_of_capability(major: int, minor: int) -> Arch:
    """The compile target of a compute capability.

    Raises:
        ArchError: no arch of ours has it.
    """
    for arch in ARCHS.values():
        if arch.compute_capability == (major, minor):
            return arch
    known = ", ".join(f"{arch.compute_capability[0]}.{arch.compute_capability[1]}" for arch in ARCHS.values())
    raise ArchError(f"compute capability {major}.{minor} has no compile target: tensor-core kernels exist for {known}")
