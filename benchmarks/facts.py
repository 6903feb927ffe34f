"""Facts of a run: which kernels, model, data and machine its numbers depend on."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from space.family import FAMILIES
from tuner.prediction.files import SHIPPED
from tuner.settings import settings
from workers.kernels.source import source_of_family

#: Digits of a digest that are shown.
SHOWN: Final = 12
#: Longest device name of the driver.
_NAME_BYTES: Final = 256


def kernels() -> str:
    """Digest of each family's kernel source, without configs: `sm90_wgmma 6bbbb3cd0c2c, gemv e0ea0932770b`."""
    own = [family for family in FAMILIES.values() if family.own]
    return ", ".join(f"{family.name} `{source_of_family(family).digest[:SHOWN]}`" for family in own)


def as_today(kernels: str) -> str:
    """The fact `kernels` with today's digest in place of each whose text compiles to the same machine code."""
    for family in FAMILIES.values():
        if family.own:
            source = source_of_family(family)
            for digest in source.alike:
                kernels = kernels.replace(f"`{digest[:SHOWN]}`", f"`{source.digest[:SHOWN]}`")
    return kernels


def models() -> str:
    """Path and SHA-256 of each model that ships.

    Raises:
        SystemExit: a model trained on this machine replaces one of them.
    """
    shipped = sorted(SHIPPED.glob("*.npz"))
    folder = settings().model_dir
    if trained := [path for path in shipped if (folder / path.name).exists()]:
        raise SystemExit(
            f"{folder / trained[0].name} was trained here and is used in place of {trained[0].name}: "
            f"set GEMMTUNE_MODEL_DIR to an empty folder to publish"
        )
    root = SHIPPED.parents[2]
    return ", ".join(f"`{path.relative_to(root)}` `{digest_of(path)[:SHOWN]}`" for path in shipped)


def data(root: Path, read: Iterable[Path]) -> str:
    """Path, relative to `root`, and digest of each input."""
    named = [f"`{path.resolve().relative_to(root)}` `{digest_of(path)[:SHOWN]}`" for path in read]
    return ", ".join(named) or "none besides the command and the program"


def recordings(device: str) -> list[Path]:
    """The folder that a device of the command line replays, as in `recorded:h200`; none for a GPU."""
    kind, _, name = device.partition(":")
    return [settings().recorded_dir / name.partition(":")[0]] if kind == "recorded" else []


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of a folder's sorted lines `digest name`."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    lines = (f"{digest_of(file)}  {file.relative_to(path)}\n" for file in _files(path))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def gpus() -> str:
    """Names of the GPUs that the driver shows to this process, as in `NVIDIA H200` or `4 × NVIDIA H200`."""
    counted = Counter(gpu_names())
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counted.items()) or "none"


def drivers() -> str:
    """Version of the NVIDIA driver."""
    if not any(gpu_names()):
        return "none"
    from cuda.bindings import nvml

    library: Any = nvml
    library.init_v2()
    return str(library.system_get_driver_version())


def machine() -> str:
    """Cores, processor and load average."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{os.cpu_count()} cores of {model or platform.machine()}, load average {os.getloadavg()[0]:.1f}"


def gpu_names() -> Iterator[str]:
    """Names of the GPUs that the driver shows to this process, in its order."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return
    for ordinal in range(count.value):
        device, name = ctypes.c_int(0), ctypes.create_string_buffer(_NAME_BYTES)
        driver.cuDeviceGet(ctypes.byref(device), ordinal)
        driver.cuDeviceGetName(name, _NAME_BYTES, device)
        yield name.value.decode()


def _files(folder: Path) -> list[Path]:
    """Every file, sorted by name, without interpreter caches."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
