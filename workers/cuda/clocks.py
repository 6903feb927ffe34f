"""What NVML says of the device: clocks, power, temperature, throttle reasons, and who else uses it."""

from __future__ import annotations

import os
from typing import Any, Final

from workers.measurement import Clocks

#: Bits of nvmlClocksEventReasons that lower the clock. Idle and application-clock settings are no throttling.
_REASONS: Final[dict[int, str]] = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
#: Reasons for which a round is taken again: the card is protecting itself. A power cap is how it always runs.
DISTURBING: Final = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"})


class Monitor:
    """One card, by its uuid as the CUDA driver gives it."""

    def __init__(self, uuid: str) -> None:
        from cuda.bindings import nvml

        self._nvml: Any = nvml
        nvml.init_v2()
        self._handle = nvml.device_get_handle_by_uuid(uuid)

    @property
    def driver(self) -> str:
        """Driver version."""
        return str(self._nvml.system_get_driver_version())

    def read(self) -> Clocks:
        """The card's state now."""
        nvml, handle = self._nvml, self._handle
        bits = int(nvml.device_get_current_clocks_event_reasons(handle))
        return Clocks(
            sm_mhz=int(nvml.device_get_clock_info(handle, nvml.ClockType.SM)),
            memory_mhz=int(nvml.device_get_clock_info(handle, nvml.ClockType.MEM)),
            power_w=int(nvml.device_get_power_usage(handle)) / 1000,
            temperature_c=int(nvml.device_get_temperature_v(handle, nvml.TemperatureSensors.GPU)),
            throttle_reasons=tuple(name for bit, name in _REASONS.items() if bits & bit),
        )

    def others(self) -> list[str]:
        """Other processes with a context on this card, one sentence each."""
        try:
            processes = self._nvml.device_get_compute_running_processes_v3(self._handle)
            found = [(int(process.pid), int(process.used_gpu_memory)) for process in processes]
        except Exception:
            # Not every driver lets every user list processes; then nobody can be named.
            return []
        return [
            f"process {pid} uses this GPU too ({used / 2**30:.1f} GiB): times may be disturbed"
            for pid, used in found
            if pid != os.getpid()
        ]
