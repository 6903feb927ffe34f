"""Compile targets with their limits, and devices with their measured rates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from space.errors import ArchError


@dataclass(frozen=True, slots=True)
class Arch:
    """What one compile target allows.

    Attributes:
        name: with its suffix; `sm_90` and `sm_90a` are different targets.
        smem_per_block_bytes: opt-in dynamic shared memory of one block.
        registers_per_block: 32-bit registers that the threads of one block share.
        threads_per_block: largest block.
        cluster_portable: largest cluster that every device of this arch can launch.
        wgmma: whether `wgmma.mma_async` and `setmaxnreg` assemble.

    Source: CUDA C++ Programming Guide, table of technical specifications per compute capability;
    PTX ISA, target notes of `wgmma.mma_async` and `setmaxnreg`.
    """

    name: str
    smem_per_block_bytes: int
    registers_per_block: int = 65_536
    threads_per_block: int = 1_024
    cluster_portable: int = 1
    wgmma: bool = False


ARCHS: Final[dict[str, Arch]] = {
    arch.name: arch
    for arch in (
        Arch("sm_80", 166_912),
        Arch("sm_86", 101_376),
        Arch("sm_89", 101_376),
        Arch("sm_90a", 232_448, cluster_portable=8, wgmma=True),
        Arch("sm_100a", 232_448, cluster_portable=8),
        Arch("sm_120a", 101_376, cluster_portable=8),
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
class DeviceLimits:
    """Rates of one GPU model that times are estimated with; measured, sustained, random data.

    Attributes:
        name: as the driver names it.
        arch: compile target to use on it.
        sm_count: multiprocessors.
        l2_bytes: L2 capacity as the driver reports it.
        tensor_tflops: sustained dense rate by dtype of A.
        hbm_tbs, l2_tbs: bytes per second, in 10^12.
        clock_ghz: SM clock under sustained tensor load.
        launch_us: time of an almost empty kernel inside a CUDA graph.
    """

    name: str
    arch: str
    sm_count: int
    l2_bytes: int
    tensor_tflops: dict[str, float]
    hbm_tbs: float
    l2_tbs: float
    clock_ghz: float
    launch_us: float

    def peak_tflops(self, dtype: str) -> float:
        """Sustained rate for operands of `dtype`; the 16-bit rate where none was measured."""
        return self.tensor_tflops.get(dtype, self.tensor_tflops["bf16"])


#: NVIDIA H200 SXM: rates measured on cards of this model (see `docs/measuring.md`); the bf16 rate is the
#: short-burst one, so that the roofline bound stays a bound.
H200: Final = DeviceLimits(
    name="NVIDIA H200", arch="sm_90a", sm_count=132, l2_bytes=60 * 2**20,
    tensor_tflops={"bf16": 790.0, "fp16": 790.0, "tf32": 430.0, "fp8_e4m3": 1450.0, "fp8_e5m2": 1450.0,
                   "int8": 1450.0},
    hbm_tbs=4.0, l2_tbs=9.7, clock_ghz=1.6, launch_us=2.2,
)  # fmt: skip

DEVICES: Final[dict[str, DeviceLimits]] = {device.name: device for device in (H200,)}
