"""gemmtune.hpp and its example, built by g++ against the driver and the cuBLASLt that this process uses."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch

from benchmarks.published import ROOT

_INCLUDES: Final = ("/usr/local/cuda/include", "/usr/include")


def built(folder: Path) -> tuple[Path, Path]:
    """The headers as a shared library, and the example program.

    Without cuBLASLt or its header the library runs kernels alone, and says so of an algorithm.
    """
    cpp, library, example = ROOT / "gemmtune" / "cpp", folder / "cpp_bundle.so", folder / "example"
    flags = ["g++", "-std=c++17", "-O2", "-Wall", f"-I{cpp / 'include'}", f"-I{header_folder('cuda.h')}"]
    # The library is loaded into a process that has the driver's; the program is linked as users do.
    driver = linked(folder, "libcuda.so", "-lcuda")
    subprocess.run([*flags, "-shared", "-fPIC", str(ROOT / "benchmarks" / "cpp_bundle.cpp"), "-o", str(library),
                    *driver, *cublaslt(folder)], check=True)  # fmt: skip
    subprocess.run([*flags, str(cpp / "example.cpp"), "-o", str(example), *driver], check=True)
    return library, example


def header_folder(name: str) -> Path:
    """The folder of a header: of the toolkit, or of the wheels beside torch."""
    for folder in _folders():
        if (folder / name).exists():
            return folder
    raise SystemExit(f"{name} is not here: install the CUDA toolkit, or its wheel beside torch")


def cublaslt(folder: Path) -> list[str]:
    """What compiles and links gemmtune/cublaslt.hpp; nothing where that can't be done."""
    try:
        # CUDA 13's toolkit has nv/target in a folder of its own; no package of torch's brings it.
        found = [header_folder(name) for name in ("cublasLt.h", "nv/target")]
    except SystemExit as missing:
        print(f"the library's algorithms are left out: {missing}", flush=True)
        return []
    library = linked(folder, "libcublasLt.so", "-lcublasLt")
    return library and ["-DWITH_CUBLASLT", *(f"-I{each}" for each in found), *library]


def linked(folder: Path, name: str, option: str) -> list[str]:
    """What links against a library that this process has loaded, as in `libcuda.so`; nothing for one that isn't.

    Without the toolkit the library lacks the name that `-l` takes.
    """
    link = folder / name
    if not link.exists():
        torch.cuda.init()
        mapped = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if f"/{name}" in line]
        if not mapped:
            return []
        link.symlink_to(mapped[0])
    return [f"-L{folder}", option, "-Wl,--allow-shlib-undefined"]


def _folders() -> Iterator[Path]:
    wheels = Path(torch.__file__).parents[1] / "nvidia"
    beside_nvcc = [Path(nvcc).resolve().parents[1] / "include"] if (nvcc := shutil.which("nvcc")) else []
    for folder in (*beside_nvcc, *map(Path, _INCLUDES), *sorted(wheels.glob("*/include"))):
        yield folder
        yield folder / "cccl"
