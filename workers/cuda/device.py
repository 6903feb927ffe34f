"""The device of this process: its context, its facts, and why it can't be used where it can't."""

from __future__ import annotations

from cuda.bindings import driver as cu

from workers.build import nvrtc_version
from workers.cuda.driver import CudaError, check
from workers.errors import DriverError
from workers.measurement import DeviceFacts


def open_device(ordinal: int) -> DeviceFacts:
    """Makes the context of GPU `ordinal` current in this thread.

    Raises:
        DriverError: no such GPU, one that our kernels can't run on, or a driver too old for what we compile.
        CudaError: the driver refuses.
    """
    try:
        check("cuInit", cu.cuInit(0))
    except CudaError as error:
        raise DriverError(f"the NVIDIA driver finds no GPU ({error}): see what nvidia-smi says") from error
    check_driver_age(int(check("cuDriverGetVersion", cu.cuDriverGetVersion())), nvrtc_version())
    count = int(check("cuDeviceGetCount", cu.cuDeviceGetCount()))
    if ordinal >= count:
        raise DriverError(f"cuda:{ordinal} is not here: this machine has {count} GPU, numbered from cuda:0")
    device = check("cuDeviceGet", cu.cuDeviceGet(ordinal))

    def read(name: str) -> int:
        attribute = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(name, cu.cuDeviceGetAttribute(attribute, device)))

    name = check("cuDeviceGetName", cu.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
    capability = read("COMPUTE_CAPABILITY_MAJOR"), read("COMPUTE_CAPABILITY_MINOR")
    if capability != (9, 0):
        raise DriverError(
            f"{name} is compute capability {capability[0]}.{capability[1]}: kernels exist for 9.0 (sm_90a) only"
        )
    context = check("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(device))
    check("cuCtxSetCurrent", cu.cuCtxSetCurrent(context))
    digits = bytes(check("cuDeviceGetUuid", cu.cuDeviceGetUuid(device)).bytes).hex()
    uuid = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    memory = int(check("cuDeviceTotalMem", cu.cuDeviceTotalMem(device)))
    return DeviceFacts(name, "sm_90a", "cuda", uuid, "", read("MULTIPROCESSOR_COUNT"), read("L2_CACHE_SIZE"), memory)


def check_driver_age(driver_api: int, nvrtc: str) -> None:
    """Refuses a driver of an older major CUDA version than the compiler: it can't load what we compile.

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
