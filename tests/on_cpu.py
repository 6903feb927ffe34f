"""Kernels' own text as a program for the CPU: `cuda_on_cpu.h` stands in for CUDA."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

#: Where `cuda_on_cpu.h` and `ptx_on_cpu.h` are.
HEADERS: Final = Path(__file__).parent / "integration" / "workers"
_COMPILER: Final = shutil.which("g++")
#: `ptx/relaxed.cuh` for a cluster that runs alone: nobody else comes to its meetings.
ALONE: Final = """
inline u32 atom_add_relaxed(u32*, u32) { return 0; }
inline void red_add_relaxed(u32*, u32) {}
inline u32 ld_relaxed(const u32*) { return 0; }
inline void st_relaxed(u32*, u32) {}
"""
needs_compiler: Final = pytest.mark.skipif(_COMPILER is None, reason="no C++ compiler")


def config_struct(source: str) -> str:
    """The definition of `Config` in a rendered kernel."""
    begin = source.index("struct Config {")
    return source[begin : source.index("};", begin) + 2]


def compiled(text: str, folder: Path, *flags: str) -> ctypes.CDLL:
    """A library made of a rendered kernel and entries in C."""
    assert _COMPILER is not None
    source, library = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text('#include "cuda_on_cpu.h"\n' + re.sub(r"^#line", "//#line", text, flags=re.MULTILINE))
    usual = ["-std=c++20", "-O1", "-w", "-fPIC", "-shared", "-pthread", f"-I{HEADERS}"]
    subprocess.run([_COMPILER, *usual, *flags, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))
