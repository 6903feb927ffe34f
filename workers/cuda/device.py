"""The device of this process: its context and the driver's facts, or one sentence on why it can't be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cuda.bindings import driver as cu

from space.arch import arch_of_capability
from space.devices import DriverFacts, identity_of, profile_from
from space.errors import SpaceError
from space.family import families_for
from workers.build import nvrtc_version
from workers.cuda.clocks import power_limits_w
from workers.cuda.driver import CudaError, check
from workers.errors import DriverError
from workers.measurement import DeviceFacts


def open_device(ordinal: int) -> DeviceFacts:
    """Makes the context of GPU `ordinal` current in this thread.

    Raises:
        DriverError: no such GPU, one that no family serves, or a driver too old for what we compile.
        CudaError: the driver refuses.
    """
    device = _device(ordinal)
    check_driver_age(int(check("cuDriverGetVersion", cu.cuDriverGetVersion())), nvrtc_version())
    uuid = _uuid(device)
    said = driver_facts(device, uuid)
    try:
        families_for(said.arch)
        profile_from(said)
    except SpaceError as error:
        raise DriverError(f"{said.name} can't be used: {error}") from error
    check("cuCtxSetCurrent", cu.cuCtxSetCurrent(_primary(ordinal)))
    assert said.sm_count is not None
    assert said.l2_bytes is not None
    return DeviceFacts(
        identity_of(said), said.arch, "cuda", uuid, "", said.sm_count, said.l2_bytes, said.memory_bytes or 0
    )


@contextmanager
def current(ordinal: int) -> Iterator[None]:
    """Makes the context of GPU `ordinal` current in this thread, and afterwards the one that was.

    Raises:
        DriverError: no such GPU.
        CudaError: the driver refuses.
    """
    check("cuCtxPushCurrent", cu.cuCtxPushCurrent(_primary(ordinal)))
    try:
        yield
    finally:
        check("cuCtxPopCurrent", cu.cuCtxPopCurrent())


@cache
def _primary(ordinal: int) -> Any:  # noqa: ANN401
    """The context that libraries share; held until the process ends."""
    return check("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(_device(ordinal)))


def identity_here(ordinal: int = 0) -> str:
    """The identity of GPU `ordinal`, as in `NVIDIA H200`; makes no context.

    Raises:
        DriverError: no such GPU, or one that nothing can be compiled for.
        CudaError: the driver refuses.
    """
    device = _device(ordinal)
    return identity_of(driver_facts(device, _uuid(device)))


def driver_facts(device: cu.CUdevice, uuid: str) -> DriverFacts:
    """What the driver and NVML say of a GPU; needs no context.

    Raises:
        DriverError: nothing can be compiled for its compute capability.
        CudaError: the driver refuses.
    """

    def read(name: str) -> int:
        attribute = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(name, cu.cuDeviceGetAttribute(attribute, device)))

    name = check("cuDeviceGetName", cu.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
    try:
        arch = arch_of_capability(read("COMPUTE_CAPABILITY_MAJOR"), read("COMPUTE_CAPABILITY_MINOR")).name
    except SpaceError as error:
        raise DriverError(f"{name} can't be used: {error}") from error
    power_w, default_power_w = power_limits_w(uuid)
    return DriverFacts(
        name=name, arch=arch, sm_count=read("MULTIPROCESSOR_COUNT"), l2_bytes=read("L2_CACHE_SIZE"),
        memory_bytes=int(check("cuDeviceTotalMem", cu.cuDeviceTotalMem(device))),
        highest_clock_ghz=read("CLOCK_RATE") / 1e6 or None,
        # Two transfers per clock, kHz, bits.
        memory_tbs=2 * read("MEMORY_CLOCK_RATE") * read("GLOBAL_MEMORY_BUS_WIDTH") / 8 / 1e9 or None,
        power_w=power_w, default_power_w=default_power_w,
    )  # fmt: skip


def _device(ordinal: int) -> cu.CUdevice:
    try:
        check("cuInit", cu.cuInit(0))
    except CudaError as error:
        raise DriverError(f"the NVIDIA driver finds no GPU ({error}): check it with nvidia-smi") from error
    except RuntimeError as missing:
        # What cuda.bindings raise where there is no libcuda.so.1.
        raise DriverError("no NVIDIA driver is here (libcuda.so.1): run this on a machine with a GPU") from missing
    count = int(check("cuDeviceGetCount", cu.cuDeviceGetCount()))
    if ordinal >= count:
        raise DriverError(f"cuda:{ordinal} is not here: this machine has {count} GPU, numbered from cuda:0")
    return check("cuDeviceGet", cu.cuDeviceGet(ordinal))


def _uuid(device: cu.CUdevice) -> str:
    """`GPU-` and the digits in five groups, as NVML takes it."""
    digits = bytes(check("cuDeviceGetUuid", cu.cuDeviceGetUuid(device)).bytes).hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def check_driver_age(driver_api: int, nvrtc: str) -> None:
    """Refuses a driver of an older major CUDA version than the compiler: it can't load our cubins.

    Within one major version every driver loads the cubins of every toolkit (CUDA compatibility guide, minor
    version compatibility).

    Args:
        driver_api: as `cuDriverGetVersion` gives it, 13000 for 13.0.
        nvrtc: as in `13.5`.

    Raises:
        DriverError: too old.
    """
    major, minor = driver_api // 1000, driver_api % 1000 // 10
    needed = int(nvrtc.partition(".")[0])
    if major < needed:
        raise DriverError(
            f"the driver is for CUDA {major}.{minor}, and NVRTC {nvrtc} compiles for CUDA {needed}: its cubins don't "
            f"load there. Install a driver for CUDA {needed}.0 or newer, or nvidia-cuda-nvrtc of CUDA {major}"
        )
