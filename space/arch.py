"""Compile targets with their limits, GPU models with their SMs, and devices with their measured rates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from space.errors import ArchError

#: What an arch may have beside the instructions that every one of ours has.
Feature = Literal[
    "cp_async", "mma_fp8", "mma_fp4", "clusters", "tma", "stmatrix", "setmaxnreg", "wgmma", "matrix_b8", "tcgen05"
]



def _also(base: frozenset[Feature], *names: Feature) -> frozenset[Feature]:
    return base.union(names)


_AMPERE: Final = _also(frozenset(), "cp_async")
_ADA: Final = _also(_AMPERE, "mma_fp8")
_HOPPER: Final = _also(_ADA, "clusters", "tma", "stmatrix", "setmaxnreg")
_BLACKWELL: Final = _also(_HOPPER, "matrix_b8")


@dataclass(frozen=True, slots=True)
class Arch:
    """What one compile target allows.

    Attributes:
        name: with its suffix; `sm_90` and `sm_90a` are different targets.
        smem_per_block_bytes: opt-in dynamic shared memory of one block.
        threads_per_sm: resident at once.
        blocks_per_sm: resident at once.
        features: what assembles there: `cp_async`; fp8 operands of `mma.sync` (`mma_fp8`); its fp6, fp4 and
            block-scaled forms (`mma_fp4`); `clusters` and `tma`; `stmatrix`; `setmaxnreg`; `wgmma`;
            `ldmatrix` and `stmatrix` of 8-bit elements (`matrix_b8`); `tcgen05`.
        cluster_portable: largest cluster that every device of this arch can launch; 1 without clusters.
        cluster_largest: with `cudaFuncAttributeNonPortableClusterSizeAllowed`, where a source names a larger one.
        tmem_columns: of tensor memory, 128 lanes of 32 bits each; 0 where there is none.
        smem_static_bytes: a block may use without opting in.
        smem_reserved_bytes: that the driver takes of the SM for each block.
        registers_per_block: 32-bit registers that the threads of one block share; the whole SM's.
        registers_per_thread: most that one thread addresses.
        threads_per_block: largest block.

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
    def wgmma(self) -> bool:
        """Whether `wgmma.mma_async` assembles."""
        return "wgmma" in self.features

    @property
    def smem_per_sm_bytes(self) -> int:
        """Shared memory of one SM: one block's most, and what the driver keeps beside it."""
        return self.smem_per_block_bytes + self.smem_reserved_bytes


ARCHS: Final[dict[str, Arch]] = {
    arch.name: arch
    for arch in (
        Arch("sm_80", 166_912, 2_048, 32, _AMPERE),
        Arch("sm_86", 101_376, 1_536, 16, _AMPERE),
        Arch("sm_89", 101_376, 1_536, 24, _ADA),
        Arch("sm_90a", 232_448, 2_048, 32, _also(_HOPPER, "wgmma"), 8, 16),
        Arch("sm_100a", 232_448, 2_048, 32, _also(_BLACKWELL, "tcgen05"), 8, 16, tmem_columns=512),
        Arch("sm_120a", 101_376, 1_536, 24, _also(_BLACKWELL, "mma_fp4"), 8, 8),
    )
}


def arch_named(name: str) -> Arch:
    """The facts of one arch.

    Raises:
        ArchError: unknown, or the suffix is missing.
    """
    if name in ARCHS:
        return ARCHS[name]
    if f"{name}a" in ARCHS:
        raise ArchError(f"arch {name!r} lacks its suffix: {name} has no wgmma, setmaxnreg or tcgen05; write {name}a")
    hint = "" if re.fullmatch(r"sm_\d+[af]?", name) else " (an arch is written sm_90a)"
    raise ArchError(f"arch {name!r} is unknown{hint}: use one of {', '.join(ARCHS)}")


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What is fixed when a GPU model is sold, measured or not.

    Attributes:
        name: as the driver names it.
        arch: compile target to use on it.
        sm_count: multiprocessors that are switched on.
        source: where the count is written down.
    """

    name: str
    arch: str
    sm_count: int
    source: str


_A100: Final = "NVIDIA A100 Tensor Core GPU Architecture whitepaper"
_H100: Final = "NVIDIA H100 Tensor Core GPU Architecture whitepaper"

#: A GPU model may be sold in forms with other counts: what the driver says at run time goes before this table.
GPU_MODELS: Final[dict[str, GpuModel]] = {
    model.name: model
    for model in (
        GpuModel("NVIDIA A100-SXM4-40GB", "sm_80", 108, _A100),
        GpuModel("NVIDIA A100-SXM4-80GB", "sm_80", 108, _A100),
        GpuModel("NVIDIA A100 80GB PCIe", "sm_80", 108, _A100),
        GpuModel("NVIDIA GeForce RTX 3090", "sm_86", 82, "NVIDIA Ampere GA102 GPU Architecture whitepaper"),
        GpuModel("NVIDIA L40S", "sm_89", 142, "NVIDIA L40S datasheet: 18,176 CUDA cores, 128 an SM"),
        GpuModel("NVIDIA GeForce RTX 4090", "sm_89", 128, "NVIDIA Ada GPU Architecture whitepaper"),
        GpuModel("NVIDIA H100 80GB HBM3", "sm_90a", 132, _H100),
        GpuModel("NVIDIA H100 PCIe", "sm_90a", 114, _H100),
        GpuModel("NVIDIA H200", "sm_90a", 132, "what its driver reports"),
        GpuModel("NVIDIA B200", "sm_100a", 148, "what its driver reports, in public logs of runs"),
        GpuModel("NVIDIA GeForce RTX 5090", "sm_120a", 170, "NVIDIA RTX Blackwell GPU Architecture whitepaper"),
    )
}


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Rates of one GPU model that times are estimated with; measured, sustained, random data.

    Attributes:
        name: as the driver names it.
        arch: compile target to use on it.
        sm_count: multiprocessors.
        l2_bytes: L2 capacity as the driver reports it.
        tensor_tflops: sustained dense rate by dtype of A.
        hbm_tbs, l2_tbs: bytes per second, in 10^12, as kernels get them.
        hbm_read_tbs: the fastest that any kernel, the library's too, was seen to read weights.
        clock_ghz, highest_clock_ghz: SM clock under sustained tensor load, and where power limits nothing.
        launch_us: time of an almost empty kernel inside a CUDA graph.
        resident_clusters: clusters of 1, 2, 4 … blocks that run at once, one block a multiprocessor. Clusters
            live within a GPC, and GPCs are of unequal sizes, so that larger ones strand multiprocessors.
    """

    name: str
    arch: str
    sm_count: int
    l2_bytes: int
    tensor_tflops: dict[str, float]
    hbm_tbs: float
    hbm_read_tbs: float
    l2_tbs: float
    clock_ghz: float
    highest_clock_ghz: float
    launch_us: float
    resident_clusters: dict[int, int]

    def peak_tflops(self, dtype: str) -> float:
        """Sustained rate for operands of `dtype`; the 16-bit rate where none was measured."""
        return self.tensor_tflops.get(dtype, self.tensor_tflops["bf16"])

    def cluster_slots(self, size: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Clusters of `size` blocks that run at once, one block a multiprocessor, for each row.

        Sizes that were not measured are taken to strand as many multiprocessors as the next smaller one does.
        """
        measured = np.array(sorted(self.resident_clusters))
        held = np.array([self.resident_clusters[size] for size in measured])
        below = np.searchsorted(measured, size, side="right") - 1
        slots: npt.NDArray[np.int64] = np.maximum(held[below] * measured[below] // size, 1)
        return slots


#: NVIDIA H200 SXM: rates measured on cards of this model (see `docs/measuring.md`); the bf16 rate is the
#: short-burst one, so that the roofline bound stays a bound. Clusters of four: in its recordings 30, 60, 90 and 120 of
#: them take one, two, three and four waves, and 32, 64, 96 and 128 one more.
H200: Final = DeviceLimits(
    name="NVIDIA H200", arch="sm_90a", sm_count=132, l2_bytes=60 * 2**20,
    tensor_tflops={"bf16": 790.0, "fp16": 790.0, "tf32": 430.0, "fp8_e4m3": 1450.0, "fp8_e5m2": 1450.0,
                   "int8": 1450.0},
    hbm_tbs=4.0, hbm_read_tbs=4.6, l2_tbs=9.7, clock_ghz=1.4, highest_clock_ghz=1.98, launch_us=2.2,
    resident_clusters={1: 132, 2: 66, 4: 30},
)  # fmt: skip

DEVICES: Final[dict[str, DeviceLimits]] = {device.name: device for device in (H200,)}
