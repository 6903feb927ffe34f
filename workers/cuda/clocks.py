"""NVML's view of the device: clocks, power, temperature, throttle reasons, and other processes that use it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

from workers.measurement import Clocks

POWER_CAP: Final = "sw_power_cap"
#: Bits of nvmlClocksEventReasons that lower the clock. Idle and application-clock settings do not count as throttling.
_REASONS: Final[dict[int, str]] = {
    0x4: POWER_CAP,
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
#: NVML's word for memory that it may not tell (nvml.h: NVML_VALUE_NOT_AVAILABLE, as 64 bits).
_UNTOLD: Final = 2**64 - 1
#: Seconds between two looks at the energy counter, which moves every 0.1 s.
LOOK_SECONDS: Final = 0.004
#: Reasons to repeat a round: the card is protecting itself. A power cap is its normal state under load.
DISTURBING: Final = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"})


class Monitor:
    """One card, by its uuid as the CUDA driver returns it.

    Args:
        present: compute processes on the card before this one had its context, from `processes_of`.
    """

    def __init__(self, uuid: str, present: frozenset[int]) -> None:
        from cuda.bindings import nvml

        self._nvml: Any = nvml
        nvml.init_v2()
        self._handle, self._whole = _card_of(nvml, uuid)
        # In a container NVML returns the host's process ids: ours is the one that appeared with our context.
        self._own = frozenset(self._memory_by_process()) - present | {os.getpid()}

    @property
    def driver(self) -> str:
        return str(self._nvml.system_get_driver_version())

    def read(self) -> Clocks:
        """The card's state now."""
        nvml, handle = self._nvml, self._handle
        bits = int(nvml.device_get_current_clocks_event_reasons(handle))
        return Clocks(
            sm_mhz=int(nvml.device_get_clock_info(handle, nvml.ClockType.CLOCK_SM)),
            memory_mhz=int(nvml.device_get_clock_info(handle, nvml.ClockType.CLOCK_MEM)),
            power_w=int(nvml.device_get_power_usage(handle)) / 1000,
            temperature_c=int(nvml.device_get_temperature_v(handle, nvml.TemperatureSensors.TEMPERATURE_GPU)),
            throttle_reasons=tuple(name for bit, name in _REASONS.items() if bits & bit),
        )

    def metered(self) -> Meter:
        """Counts energy while the body of a `with` runs."""
        return Meter(self.energy_joules)

    def energy_joules(self) -> float | None:
        """Energy that the board has taken since the driver was loaded; None where NVML does not count it.

        The counter moves ten times a second.
        """
        if not self._whole:
            # The board's counter would count the other slices too.
            return None
        try:
            return int(self._nvml.device_get_total_energy_consumption(self._handle)) / 1000
        except Exception:
            # Not every board has the counter.
            return None

    def others(self) -> tuple[str, ...]:
        """Other processes with a context on this card: pid, memory, and share of the multiprocessors' time."""
        found = {pid: used for pid, used in self._memory_by_process().items() if pid not in self._own}
        if not found:
            return ()
        shares = self._share_by_process()
        return tuple(
            f"process {pid} uses this GPU too ({_memory_text(used)}, {_share_text(shares.get(pid))})"
            for pid, used in sorted(found.items())
        )

    def _memory_by_process(self) -> dict[int, int]:
        try:
            processes = self._nvml.device_get_compute_running_processes_v3(self._handle)
            return {int(process.pid): int(process.used_gpu_memory) for process in processes}
        except Exception:
            # Not every driver lets every user list processes.
            return {}

    def _share_by_process(self) -> dict[int, int]:
        try:
            samples = self._nvml.device_get_process_utilization(self._handle, 0)
            # Oldest first: a process's last sample counts.
            return {int(s.pid): int(s.sm_util) for s in sorted(samples, key=lambda s: int(s.time_stamp))}
        except Exception:
            # Not found: no process computed lately. Not permitted: unknown.
            return {}


class Meter(threading.Thread):
    """Watches an energy counter that moves in steps, from a thread of its own.

    Args:
        counted: joules so far; None where nothing counts them.
    """

    def __init__(self, counted: Callable[[], float | None]) -> None:
        super().__init__(daemon=True)
        self._counted, self._ended = counted, threading.Event()
        self._steps: list[tuple[float, float]] = []

    def run(self) -> None:
        """Looks until the `with` ends."""
        while (joules := self._counted()) is not None:
            if not self._steps or joules != self._steps[-1][1]:
                self._steps.append((time.monotonic(), joules))
            if self._ended.wait(LOOK_SECONDS):
                return

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    @property
    def watts(self) -> float | None:
        """Mean power between the first step of the counter and its last; None without two steps."""
        # The first look falls between two steps.
        if len(self._steps) < 3:
            return None
        (begin, low), (end, high) = self._steps[1], self._steps[-1]
        return (high - low) / (end - begin)


def power_limits_w(uuid: str) -> tuple[float | None, float | None]:
    """Enforced and default power limit of a card; None where NVML does not say, as for a MIG slice."""
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
        handle = nvml.device_get_handle_by_uuid(uuid)
        enforced = nvml.device_get_enforced_power_limit(handle)
        default = nvml.device_get_power_management_default_limit(handle)
        return int(enforced) / 1000, int(default) / 1000
    except Exception:
        return None, None


def processes_of(ordinal: int) -> frozenset[int]:
    """Compute processes on a card before this process has a context on it; empty where NVML does not list them."""
    from cuda.bindings import driver as cu
    from cuda.bindings import nvml

    try:
        nvml.init_v2()
        cu.cuInit(0)
        _, device = cu.cuDeviceGet(ordinal)
        _, bus = cu.cuDeviceGetPCIBusId(32, device)
        handle = nvml.device_get_handle_by_pci_bus_id_v2(bus.split(b"\0")[0].decode())
        return frozenset(int(process.pid) for process in nvml.device_get_compute_running_processes_v3(handle))
    except Exception:
        # `open_device` reports the reason.
        return frozenset()


def _card_of(nvml: Any, uuid: str) -> tuple[int, bool]:  # noqa: ANN401
    """NVML's handle of the card of a device, and whether the device is all of it.

    Of a MIG slice CUDA tells the slice's uuid; clocks, power and temperature are those of the card that it is cut from.
    """
    try:
        return nvml.device_get_handle_by_uuid(uuid), True
    except nvml.NvmlError:
        part = nvml.device_get_handle_by_uuid(uuid.replace("GPU-", "MIG-", 1))
        return nvml.device_get_device_handle_from_mig_device_handle(part), False


def _memory_text(used: int) -> str:
    return "memory unknown" if used == _UNTOLD else f"{used / 2**30:.1f} GiB"


def _share_text(share: int | None) -> str:
    return "idle lately" if share is None else f"{share} % of its multiprocessors' time"
