"""What NVML says of the device: clocks, power, temperature, throttle reasons, and who else uses it."""

from __future__ import annotations

import os
from typing import Any, Final

from workers.measurement import Clocks

#: The reason for which the clock depends on what ran before.
POWER_LIMITED: Final = "sw_power_cap"
#: Bits of nvmlClocksEventReasons that lower the clock. Idle and application-clock settings are no throttling.
_REASONS: Final[dict[int, str]] = {
    0x4: POWER_LIMITED,
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
#: Reasons for which a round is taken again: the card is protecting itself. A power cap is how it always runs.
DISTURBING: Final = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"})


class Monitor:
    """One card, by its uuid as the CUDA driver gives it.

    Args:
        present: compute processes on the card before this one had its context, from `processes_of`.
    """

    def __init__(self, uuid: str, present: frozenset[int]) -> None:
        from cuda.bindings import nvml

        self._nvml: Any = nvml
        nvml.init_v2()
        self._handle = nvml.device_get_handle_by_uuid(uuid)
        # In a container NVML gives the host's process ids: ours is the one that came with our context.
        self._own = frozenset(self._memory_by_process()) - present | {os.getpid()}

    @property
    def driver(self) -> str:
        """Driver version."""
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

    def others(self) -> tuple[str, ...]:
        """Other processes with a context on this card: pid, memory, and share of the multiprocessors' time."""
        found = {pid: used for pid, used in self._memory_by_process().items() if pid not in self._own}
        if not found:
            return ()
        shares = self._share_by_process()
        return tuple(
            f"process {pid} uses this GPU too ({used / 2**30:.1f} GiB, {_share_text(shares.get(pid))})"
            for pid, used in sorted(found.items())
        )

    def _memory_by_process(self) -> dict[int, int]:
        try:
            processes = self._nvml.device_get_compute_running_processes_v3(self._handle)
            return {int(process.pid): int(process.used_gpu_memory) for process in processes}
        except Exception:
            # Not every driver lets every user list processes; then nobody can be named.
            return {}

    def _share_by_process(self) -> dict[int, int]:
        try:
            samples = self._nvml.device_get_process_utilization(self._handle, 0)
            # Oldest first: the last sample of a process stands.
            return {int(s.pid): int(s.sm_util) for s in sorted(samples, key=lambda s: int(s.time_stamp))}
        except Exception:
            # Not found: nobody computed lately. Not permitted: nobody can tell.
            return {}


def processes_of(ordinal: int) -> frozenset[int]:
    """Compute processes on a card, before anything of this process is; empty where NVML does not tell."""
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
        # The reason is told by whoever opens the device.
        return frozenset()


def _share_text(share: int | None) -> str:
    return "idle lately" if share is None else f"{share} % of its multiprocessors' time"
