"""Cubins: whether bytes are a program for an arch, judged by their ELF header."""

from __future__ import annotations

import re
import struct
from typing import Final

#: Twenty times our largest kernel.
MOST_CUBIN_BYTES: Final = 2 << 20
#: ELF: class 64, little endian, an executable for machine 190, which is CUDA (`elf.h`: EM_CUDA).
_ELF: Final = b"\x7fELF\x02\x01\x01"
_EXECUTABLE, _CUDA = 2, 190
_HEADER_BYTES: Final = 64
#: Type, machine and flags of the header.
_FACTS: Final = struct.Struct("<16xHH28xI")
#: The release of ptxas, as in `V13.0.88`, in a note that every cubin has.
_RELEASE: Final = re.compile(rb"Cuda compilation tools, release [\d.]{3,9}, V([\d.]{5,16})")


def fault_of(cubin: bytes, arch: str) -> str:
    """Why bytes are not a program for an arch; empty if they are one."""
    if not _HEADER_BYTES <= len(cubin) <= MOST_CUBIN_BYTES:
        return f"a cubin of {len(cubin):,} bytes: it has {_HEADER_BYTES} to {MOST_CUBIN_BYTES:,}"
    kind, machine, flags = _FACTS.unpack_from(cubin)
    if not cubin.startswith(_ELF) or (kind, machine) != (_EXECUTABLE, _CUDA):
        return "the bytes are not a cubin: give an ELF executable for CUDA"
    # The second byte of the flags is the SM number, as in 90; seen in what NVRTC 13 writes for every arch.
    built_for = flags >> 8 & 0xFF
    if str(built_for) != arch.removeprefix("sm_").rstrip("af"):
        return f"the cubin is for sm_{built_for}, not for {arch}"
    return ""


def release_of(cubin: bytes) -> str:
    """The release whose ptxas wrote a cubin, as in `13.0.88`, by the cubin's own word; empty if it does not say.

    NVRTC tells the first two numbers only, and another release gives other bytes.
    """
    found = _RELEASE.search(cubin)
    return found[1].decode() if found else ""
