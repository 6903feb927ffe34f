"""Build: source text to cubin with NVRTC, kept in a content-addressed cache.

Needs neither GPU nor driver. NVRTC releases the interpreter lock, so that threads compile in parallel.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workers.errors import CacheError, make_room_or

if TYPE_CHECKING:
    from cuda.core.utils import FileStreamProgramCache

#: Raised whenever the facts kept beside a cubin change.
_CACHE_SCHEMA: Final = 1
#: ptxas messages about a kernel that is slower than its config promises (wgmma serialised, setmaxnreg ignored), or
#: wrong: where ptxas injects waits for wgmma (C7517, a mere "info"), it moves accumulators that are being written.
_FATAL: Final = re.compile(r"C75\d\d|wgmma.*serializ|setmaxnreg.*ignored", re.IGNORECASE)
_REGISTERS: Final = re.compile(r"Used (\d+) registers")
_SPILLS: Final = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
#: `cuda.core` replaces modules during its import: two threads must not import it at once.
_IMPORTING: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Build:
    """The result of compiling one source.

    Attributes:
        digest: content address of source, arch, options and NVRTC version.
        cubin: the program.
        registers: per thread at entry.
        warnings: the compiler's, one line each.
        nvrtc: its version.
        seconds: compile time; 0 from the cache.
    """

    digest: str
    cubin: bytes
    registers: int
    warnings: tuple[str, ...]
    nvrtc: str
    seconds: float


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """The reason why a source gave no usable cubin: an expected outcome of a candidate."""

    reason: str
    log: str


#: Compiles (source, arch, digest) in another process.
Elsewhere = Callable[[str, str, str], Build | BuildFailure]


def compile_source(
    source: str, arch: str, cache_dir: Path | None, fetch: Callable[[str], Build | None] = lambda digest: None,
    elsewhere: Elsewhere | None = None,
) -> Build | BuildFailure:  # fmt: skip
    """Compiles one translation unit for `arch` (`sm_90a`), or takes it from the cache.

    Spills, serialised wgmma and an ignored setmaxnreg are failures: such a kernel does not do what its config says.

    Args:
        fetch: looks for a build that the cache lacks, which then keeps the result.
        elsewhere: compiles in place of this process.

    Raises:
        CacheError: the cache can't be written, or there is no NVRTC.
    """
    digest = digest_of(source, arch, nvrtc_version())
    kept = _read(cache_dir, digest)
    if kept is not None:
        return kept
    made = fetch(digest) or (elsewhere or _compile)(source, arch, digest)
    if cache_dir is not None and isinstance(made, Build):
        _write(cache_dir, made)
    return made


def digest_of(source: str, arch: str, nvrtc: str) -> str:
    """The content address of the build of `source` for `arch` with that NVRTC."""
    return hashlib.sha256(f"{_CACHE_SCHEMA}\n{nvrtc}\n{arch}\n{source}".encode()).hexdigest()


def kept_cubin(cache_dir: Path, digest: str) -> bytes:
    """The cubin of a build that `compile_source` kept.

    Raises:
        CacheError: it is not there, or damaged.
    """
    build = _read(cache_dir, digest)
    if build is None:
        raise CacheError(f"build {digest[:12]} is not in {cache_dir}, or damaged: compile it again")
    return build.cubin


@cache
def nvrtc_version() -> str:
    """Version of the NVRTC that compiles here, as in `13.5`.

    Raises:
        CacheError: there is none, or it does not answer.
    """
    from cuda.bindings import nvrtc

    try:
        error, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as missing:
        # cuda.bindings look for the library at the first call.
        said = str(missing).partition("\n")[0]
        raise CacheError(f"NVRTC can't be loaded ({said}): install nvidia-cuda-nvrtc") from missing
    if int(error) != 0:
        raise CacheError(f"NVRTC does not answer (error {int(error)}): install nvidia-cuda-nvrtc")
    return f"{major}.{minor}"


@cache
def nvrtc_library() -> str:
    """Path of the NVRTC that compiles here; empty if there is none."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    try:
        return load_nvidia_dynamic_lib("nvrtc").abs_path or ""
    except RuntimeError:
        return ""


def _compile(source: str, arch: str, digest: str) -> Build | BuildFailure:
    started = time.perf_counter()
    with _IMPORTING:
        from cuda.core import Program, ProgramOptions

    log = io.StringIO()
    # From 12.9 on NVRTC keeps cubins of its own beside a driver, and answers from them without ptxas's messages (NVRTC
    # documentation, "Caching"): spills and serialised wgmma of a second compile would go unseen.
    options = ProgramOptions(arch=arch, std="c++17", ptxas_options=["-v", "-warn-spills"], no_cache=True)
    try:
        code = Program(source, "c++", options).compile("cubin", logs=log)
    except Exception as error:
        # cuda.core raises its own or NVRTC's errors, depending on the stage that failed.
        text = f"{log.getvalue()}\n{error}"
        return BuildFailure(_first_error(text), text)
    text = log.getvalue()
    warnings = tuple(line.strip() for line in text.splitlines() if "warning" in line.lower())
    if fatal := next((line.strip() for line in text.splitlines() if _FATAL.search(line)), None):
        return BuildFailure(fatal, text)
    if spills := sum(int(count) for pair in _SPILLS.findall(text) for count in pair):
        return BuildFailure(f"{spills:,} bytes of registers spilled to local memory", text)
    registers = max((int(count) for count in _REGISTERS.findall(text)), default=0)
    cubin = bytes(code.code)
    return Build(digest, cubin, registers, warnings, nvrtc_version(), time.perf_counter() - started)


def _first_error(log: str) -> str:
    lines = [line.strip(" \0") for line in log.splitlines() if line.strip(" \0")]
    return next((line for line in lines if re.search(r"error\s*:|fatal\s*:", line)), lines[0] if lines else "no log")


def _read(cache_dir: Path | None, digest: str) -> Build | None:
    """A kept build; None where there is none or its bytes are damaged."""
    if cache_dir is None:
        return None
    try:
        kept = _store(cache_dir)
        cubin, about = kept.get(digest), kept.get(f"{digest}.about")
    except OSError as error:
        raise _unusable(cache_dir, error) from error
    if cubin is None or about is None:
        return None
    try:
        facts = json.loads(about)
        if hashlib.sha256(cubin).hexdigest() != facts["cubin_sha256"]:
            return None
        return Build(digest, cubin, facts["registers"], tuple(facts["warnings"]), facts["nvrtc"], 0.0)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _write(cache_dir: Path, build: Build) -> None:
    about = {
        "registers": build.registers, "warnings": build.warnings, "nvrtc": build.nvrtc,
        "cubin_sha256": hashlib.sha256(build.cubin).hexdigest(),
    }  # fmt: skip
    try:
        kept = _store(cache_dir)
        kept[build.digest] = build.cubin
        kept[f"{build.digest}.about"] = json.dumps(about).encode()
    except OSError as error:
        raise _unusable(cache_dir, error) from error


@cache
def _store(cache_dir: Path) -> FileStreamProgramCache:
    with _IMPORTING:
        from cuda.core.utils import FileStreamProgramCache
    return FileStreamProgramCache(cache_dir / "builds")


def _unusable(cache_dir: Path, error: OSError) -> CacheError:
    return CacheError(
        f"build cache {cache_dir} can't be used ({error.strerror}): "
        + make_room_or("set GEMMTUNE_CACHE_DIR to a folder that can be written", error)
    )
