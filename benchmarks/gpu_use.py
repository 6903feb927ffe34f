"""Measures how busy GPUs are: NVML's utilization, the share of time with a kernel on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Final

from benchmarks.repeated import Repeated

_POLL_SECONDS: Final = 0.05

#: Reads NVML's utilization of one GPU, in percent; None if NVML has no figure.
Reading = Callable[[], int | None]


class GpuUse(Repeated):
    """Polls every 50 ms between `__enter__` and `__exit__`.

    Args:
        readings: one per GPU; none disables polling.
    """

    def __init__(self, readings: Sequence[Reading]) -> None:
        super().__init__("gpu use")
        self._readings = tuple(readings)
        self._percents: list[int] = []

    def share(self) -> float | None:
        """Share of the time so far in which a kernel ran, averaged over the GPUs; None if NVML gives no figure."""
        return fmean(self._percents) / 100 if self._percents else None

    def _run(self) -> None:
        while self._readings and not self._ended.wait(_POLL_SECONDS):
            self._percents += [percent for reading in self._readings if (percent := reading()) is not None]


def gpu_of(uuid: str) -> Reading:
    """The GPU with this UUID of the CUDA driver."""
    nvml = _nvml()
    return _reading(nvml, nvml.device_get_handle_by_uuid(uuid))


def first_gpus(count: int) -> list[Reading]:
    """The first `count` GPUs in NVML's order."""
    if not count:
        return []
    nvml = _nvml()
    return [_reading(nvml, nvml.device_get_handle_by_index_v2(number)) for number in range(count)]


def _nvml() -> Any:  # noqa: ANN401  (the bindings are untyped)
    from cuda.bindings import nvml

    library: Any = nvml
    library.init_v2()
    return library


def _reading(nvml: Any, handle: object) -> Reading:  # noqa: ANN401
    def read() -> int | None:
        try:
            return int(nvml.device_get_utilization_rates(handle).gpu)
        except nvml.NotSupportedError:
            # A partition of a GPU has no figure of its own.
            return None

    return read
