"""Readings of a fake NVML: clocks, throttle reasons, and other processes on the card."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
from cuda.bindings import nvml as real_nvml

from workers.cuda import bench, clocks
from workers.errors import DriverError

OURS, THEIRS, LATER = 4711, 99, 100


class Nvml(SimpleNamespace):
    """The functions that the monitor calls."""

    ClockType = SimpleNamespace(CLOCK_SM=1, CLOCK_MEM=2)
    TemperatureSensors = SimpleNamespace(TEMPERATURE_GPU=0)

    class NvmlError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__(processes={THEIRS: 3 * 2**30}, shares={}, reasons=0x4 | 0x40 | 0x1, known={"GPU-0": 1})

    def init_v2(self) -> None: ...
    def system_get_driver_version(self) -> str:
        return "580.1"

    def device_get_handle_by_uuid(self, uuid: str) -> int:
        if uuid not in self.known:
            raise self.NvmlError("not found")
        return int(self.known[uuid])

    def device_get_device_handle_from_mig_device_handle(self, handle: int) -> int:
        return {7: 1}[handle]

    def device_get_total_energy_consumption(self, handle: int) -> int:
        return {1: 12_345}[handle]

    def device_get_compute_running_processes_v3(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, used_gpu_memory=used) for pid, used in self.processes.items()]

    def device_get_process_utilization(self, handle: int, since: int) -> list[SimpleNamespace]:
        if not self.shares:
            raise RuntimeError("not found")
        return [SimpleNamespace(pid=pid, sm_util=share, time_stamp=when) for pid, when, share in self.shares]

    def device_get_current_clocks_event_reasons(self, handle: int) -> int:
        return int(self.reasons)

    def device_get_clock_info(self, handle: int, kind: int) -> int:
        return {1: 1980, 2: 3201}[kind] * {1: 1}[handle]

    def device_get_power_usage(self, handle: int) -> int:
        return 654_321

    def device_get_temperature_v(self, handle: int, sensor: int) -> int:
        return 61


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    import cuda.bindings

    stand_in = Nvml()
    monkeypatch.setattr(cuda.bindings, "nvml", stand_in, raising=False)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvml", stand_in)
    return stand_in


def monitor(nvml: Nvml) -> object:
    """Opened after our own context came, which NVML lists under the host's process id."""
    present = frozenset(nvml.processes)
    nvml.processes[OURS] = 2**30
    return clocks.Monitor("GPU-0", present)


def test_others_are_told_with_pid_memory_and_share(nvml: Nvml) -> None:
    opened = monitor(nvml)
    assert opened.others() == ("process 99 uses this GPU too (3.0 GiB, idle lately)",)
    nvml.shares = [(THEIRS, 2, 35), (THEIRS, 1, 90), (OURS, 2, 60)]
    nvml.processes[LATER] = 2**29
    assert opened.others() == (
        "process 99 uses this GPU too (3.0 GiB, 35 % of its multiprocessors' time)",
        "process 100 uses this GPU too (0.5 GiB, idle lately)",
    )


def test_memory_that_nvml_may_not_tell_is_no_number(nvml: Nvml) -> None:
    nvml.processes[THEIRS] = 2**64 - 1
    assert monitor(nvml).others() == ("process 99 uses this GPU too (memory unknown, idle lately)",)


def test_the_clocks_of_a_slice_are_its_cards_and_its_energy_is_not(nvml: Nvml) -> None:
    assert monitor(nvml).energy_joules() == 12.345
    nvml.known = {"MIG-0": 7}
    part = monitor(nvml)
    assert part.read().sm_mhz == 1980
    assert part.energy_joules() is None


def test_alone_is_alone(nvml: Nvml) -> None:
    nvml.processes.clear()
    opened = monitor(nvml)
    nvml.processes[os.getpid()] = 1
    assert opened.others() == ()


def test_clocks_are_read_with_the_reasons_that_lower_them(nvml: Nvml) -> None:
    read = monitor(nvml).read()
    assert (read.sm_mhz, read.memory_mhz, read.power_w, read.temperature_c) == (1980, 3201, 654.321, 61)
    assert read.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert set(read.throttle_reasons) & clocks.DISTURBING == {"hw_thermal_slowdown"}


def test_a_card_that_hides_its_power_is_refused_before_anything_is_measured(nvml: Nvml) -> None:
    assert bench._open_monitor("GPU-0", frozenset()).driver == "580.1"

    def hidden(handle: int) -> int:
        raise nvml.NvmlError("not supported")

    nvml.device_get_power_usage = hidden
    with pytest.raises(DriverError, match=r"not supported.*power"):
        bench._open_monitor("GPU-0", frozenset())


def test_reasons_that_lower_the_clock_are_nvmls(nvml: Nvml) -> None:
    opened, read = monitor(nvml), {}
    for bit in range(11):
        nvml.reasons = 1 << bit
        if told := opened.read().throttle_reasons:
            (read[1 << bit],) = told
    for reason in real_nvml.ClocksEventReasons:
        name = reason.name.partition("_REASON_")[2].lower().removesuffix("_slowdown")
        assert read.get(reason.value, "").removesuffix("_slowdown") in (name, "")
    assert sorted(read) == [0x4, 0x8, 0x20, 0x40, 0x80]


def test_power_is_counted_between_two_steps_of_the_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    now, counted = iter([0.0, 0.1, 0.2, 0.3]), iter([10.0, 10.0, 80.0, 80.0, 150.0, 230.0])
    monkeypatch.setattr(clocks, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr("workers.cuda.clocks.time.monotonic", lambda: next(now))
    meter = clocks.Meter(lambda: next(counted, None))
    meter.run()
    # The first look fell somewhere between two steps.
    assert meter.watts == pytest.approx((230.0 - 80.0) / 0.2)


def test_one_step_of_the_counter_is_no_power(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = iter([10.0, 80.0])
    monkeypatch.setattr(clocks, "LOOK_SECONDS", 0.0)
    meter = clocks.Meter(lambda: next(counted, None))
    meter.run()
    assert meter.watts is None


def test_a_board_without_a_counter_has_no_power() -> None:
    with clocks.Meter(lambda: None) as meter:
        pass
    assert meter.watts is None
