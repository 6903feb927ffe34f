"""Opens the worker that a command line names; the only module that knows every kind of worker."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from space.devices import DEFAULT_DEVICE
from space.problem import Problem
from tuner.errors import DeviceError
from tuner.settings import Settings
from workers.builder import BuildCache
from workers.errors import RecordingError
from workers.ports import Worker
from workers.recorded import RecordedWorker
from workers.recording import file_name, read_outline
from workers.replays import replayed_from

_CUDA: Final = re.compile(r"cuda:(\d+)")
_RECORDED: Final = re.compile(r"recorded:([\w.-]+)(:realtime)?")


def open_worker(device: str, config: Settings, build_cache: BuildCache | None = None) -> Worker:
    """The worker that `device` names: `auto`, `cuda:N`, `recorded:NAME` or `recorded:NAME:realtime`.

    `auto` is the first GPU, or the recorded H200 on a machine without one. A recording is replayed at full speed, or
    in real time with `:realtime`.

    Args:
        build_cache: shared builds of other machines, for a fleet's worker.

    Raises:
        DeviceError: the word has none of these forms, or this machine has no such device.
        WorkerError: the device can't be used.
    """
    if device == "auto":
        device = "cuda:0" if driver_present() else "recorded:h200"
    if match := _CUDA.fullmatch(device):
        return _cuda_worker(int(match[1]), config, build_cache)
    if match := _RECORDED.fullmatch(device):
        folder = _recorded_folder(match[1], config)
        return RecordedWorker(folder, config.cache_dir, match[2] is not None, build_cache)
    raise _unknown(device, config)


def check_here(devices: Sequence[str], config: Settings) -> None:
    """Checks the words of several devices, of which a process each is to open one, without opening any.

    Raises:
        DeviceError: a word has no form that `open_worker` takes, this machine has no such device, or a GPU is named
            twice.
    """
    ordinals = []
    for device in devices:
        if match := _CUDA.fullmatch(device):
            _check_driver(ordinal := int(match[1]))
            if ordinal >= (count := gpu_count()):
                raise DeviceError(f"{device} is not here: the last GPU of this machine is cuda:{count - 1}")
            ordinals.append(ordinal)
        elif match := _RECORDED.fullmatch(device):
            _recorded_folder(match[1], config)
        elif device != "auto":
            raise _unknown(device, config)
        elif driver_present():
            ordinals.append(0)
    if twice := [ordinal for ordinal, count in Counter(ordinals).items() if count > 1]:
        raise DeviceError(f"cuda:{twice[0]} is given more than once: a GPU has one worker, so name each once")


def driver_present() -> bool:
    """Whether this machine has an NVIDIA driver with at least one GPU."""
    return gpu_count() > 0


def gpu_count() -> int:
    """Number of GPUs that the driver shows to this process; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    works = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if works else 0


def every_device() -> list[str]:
    """The device words of this machine's GPUs, or the recorded H200's without a GPU."""
    return [f"cuda:{ordinal}" for ordinal in range(gpu_count())] or ["recorded:h200"]


def device_here() -> str:
    """The identity of this machine's first GPU, or of the recorded H200 on a machine without one.

    Raises:
        WorkerError: the GPU can't be used.
    """
    if not driver_present():
        return DEFAULT_DEVICE
    from workers.cuda.device import identity_here

    return identity_here()


def recorded_devices(config: Settings) -> list[Path]:
    """Folders that hold recordings, and whose names open them."""
    folders = {path.parent for path in config.recorded_dir.glob("*/*.parquet")}
    return sorted(folder for folder in folders if _RECORDED.fullmatch(f"recorded:{folder.name}"))


def opens(word: str, problem: Problem, config: Settings) -> bool:
    """Whether a word opens a recorded device that holds a problem."""
    named = _RECORDED.fullmatch(word)
    return named is not None and (config.recorded_dir / named[1] / file_name(problem)).exists()


def devices_with(problem: Problem, config: Settings) -> list[str]:
    """The words of the recorded devices that hold a problem."""
    return [f"recorded:{folder.name}" for folder in _folders_with(problem, config)]


def recorded_nowhere(problems: Iterable[Problem], device: str, config: Settings) -> list[Problem]:
    """The problems that no recording here holds of a device; none of them where nothing here was recorded on it, as its
    replays are another machine's."""
    folders = [folder for folder in recorded_devices(config) if _recorded_on(folder) == device]
    return [
        problem for problem in problems
        if folders and not any((folder / file_name(problem)).exists() for folder in folders)
    ]  # fmt: skip


def _recorded_on(folder: Path) -> str:
    """The identity of a folder's device; empty where its first recording is damaged, which opening it says."""
    with suppress(RecordingError):
        return read_outline(min(folder.glob("*.parquet"))).facts.name
    return ""


def recorded_worker_of(problem: Problem, device: str, replay: str, config: Settings) -> RecordedWorker | None:
    """A worker that replays a problem of a device without compiling; None where nothing holds that recording of it.

    Args:
        replay: the sentence on a replay of it, which tells one recording from another.
    """
    for folder in _folders_with(problem, config):
        worker = RecordedWorker(folder, None, compiles=False)
        recording = worker.recording_of(problem) if worker.facts.name == device else None
        if recording and replayed_from(recording, replay):
            return worker
        worker.close()
    return None


def _folders_with(problem: Problem, config: Settings) -> list[Path]:
    return [folder for folder in recorded_devices(config) if (folder / file_name(problem)).exists()]


def _unknown(device: str, config: Settings) -> DeviceError:
    words = ", ".join(["auto", "cuda:0", *(f"recorded:{folder.name}" for folder in recorded_devices(config))])
    return DeviceError(f"device {device!r} is unknown: use one of {words}, or recorded:h200:realtime")


def _check_driver(ordinal: int) -> None:
    if not driver_present():
        raise DeviceError(
            f"cuda:{ordinal} was asked for, but no NVIDIA driver answers here (libcuda.so.1 with a GPU): "
            "install the driver, or leave --device out: recordings are replayed"
        )


def _cuda_worker(ordinal: int, config: Settings, build_cache: BuildCache | None) -> Worker:
    _check_driver(ordinal)
    from workers.cuda.worker import CudaWorker

    return CudaWorker(ordinal, config.cache_dir, deadline_seconds=config.deadline_seconds, build_cache=build_cache)


def _recorded_folder(name: str, config: Settings) -> Path:
    folder = config.recorded_dir / name
    if not folder.is_dir():
        known = ", ".join(f"recorded:{path.name}" for path in recorded_devices(config))
        none = "there are none: set GEMMTUNE_RECORDED_DIR to a folder of sets, or unset it for those that ship"
        which = f"there are {known}" if known else none
        raise DeviceError(f"recorded:{name} is not among the recordings in {config.recorded_dir}: {which}")
    return folder
