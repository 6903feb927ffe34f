"""`gemmtune doctor`, with its checks of this machine; `tuner.fleet.checkup` has those of the fleet."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

import typer

from space.family import family_named
from space.kinds.gemm import Gemm
from tuner.cli.options import Db, Json, store_url, timing_of
from tuner.cli.output import console, emit
from tuner.counts import counted
from tuner.exits import EXIT_BROKEN
from tuner.fleet.checkup import Check, fleet_checkup, service_check
from tuner.settings import Settings, settings
from tuner.studying.open_worker import gpu_count, recorded_devices
from workers.build import BuildFailure, compile_source
from workers.errors import WorkerError
from workers.kernels.source import source_of_family
from workers.recording import read_outline


def doctor(db: Db = None, as_json: Json = False) -> None:
    """Checks this machine and the fleet: one line per check, with the fix for what fails.

    On this machine: driver, GPU, NVRTC, cache, recordings. In the fleet: the service at GEMMTUNE_URL, the database with
    its schema and clock, queue, workers, parked problems, disk. Changes nothing.

    Exits with code 1 if something is broken.
    """
    checks = []
    # Each is printed when it is done: to compile a kernel and to ask a silent service take seconds.
    for check in _checks(settings(), store_url(db)):
        checks.append(check)
        if not as_json:
            console.print(f"{check.state:<8} {check.name:<11} {check.found}")
            if check.fix:
                console.print(f"{'':<20} fix: {check.fix}")
    if as_json:
        emit({"checks": checks})
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(EXIT_BROKEN)


def _checks(config: Settings, db_url: str) -> Iterator[Check]:
    yield _driver()
    yield _gpu()
    yield _nvrtc()
    yield _cache(config.cache_dir)
    yield _recordings(config)
    if config.url:
        yield service_check(config.url, config.secret)
    yield from fleet_checkup(db_url, timing_of(config))


def _driver() -> Check:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        fix = "not needed for recorded devices; otherwise install R580 or newer"
        return Check("driver", "absent", "no NVIDIA driver", fix)
    version = ctypes.c_int(0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    text = f"NVIDIA driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    if version.value < 13_000:
        return Check("driver", "broken", f"{text}, too old for CUDA 13 cubins", "install R580 or newer")
    return Check("driver", "ok", text)


def _gpu() -> Check:
    count = gpu_count()
    if not count:
        return Check("gpu", "absent", "no GPU responds; recordings are replayed in its place", "")
    name = ctypes.create_string_buffer(96)
    ctypes.CDLL("libcuda.so.1").cuDeviceGetName(name, 96, 0)
    return Check("gpu", "ok", f"{count} GPU, cuda:0 is {name.value.decode()}")


def _nvrtc() -> Check:
    family = family_named("sm90_wgmma")
    source = source_of_family(family).render(family.compile_constants(Gemm(1, 1, 1), family.config({})))
    arch = family.reference.arch.name
    try:
        build = compile_source(source, arch, None)
    except (WorkerError, ImportError, OSError) as error:
        return Check("nvrtc", "broken", f"NVRTC can't be used ({error})", "install again: make clean, then make tune")
    if isinstance(build, BuildFailure):
        return Check("nvrtc", "broken", f"the default kernel doesn't compile: {build.reason}", "install again")
    return Check("nvrtc", "ok", f"NVRTC {build.nvrtc} compiled the default kernel for {arch} "
                 f"({build.registers} registers, {build.seconds:.2f} s)")  # fmt: skip


def _cache(folder: Path) -> Check:
    # The cache is made by what compiles; a check makes no folder.
    there = next(one for one in (folder, *folder.absolute().parents) if os.path.exists(one))
    fix = "free space, or set GEMMTUNE_CACHE_DIR to a folder that can be written"
    if not there.is_dir():
        return Check("cache", "broken", f"{folder} can't be written (Not a directory)", fix)
    try:
        with TemporaryFile(dir=there) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        return Check("cache", "broken", f"{folder} can't be written ({error.strerror})", fix)
    free = os.statvfs(there)
    return Check("cache", "ok", f"{folder}, {free.f_bavail * free.f_frsize / 1e9:.0f} GB free")


def _recordings(config: Settings) -> Check:
    found, bad = [], []
    for folder in recorded_devices(config):
        paths = sorted(folder.glob("*.parquet"))
        for path in paths:
            try:
                read_outline(path)
            except WorkerError as error:
                bad.append(str(error))
        found.append(f"recorded:{folder.name} ({counted(len(paths), 'problem')})")
    if bad:
        return Check("recordings", "broken", bad[0], "fetch the file again")
    if not found:
        fix = "only needed without a GPU: set GEMMTUNE_RECORDED_DIR, or `gemmtune record` on a GPU"
        return Check("recordings", "absent", f"none in {config.recorded_dir}", fix)
    return Check("recordings", "ok", f"{', '.join(found)}; `gemmtune recordings list` names them")
