"""`--device`: names of GPU models, and `auto` on machines with and without a GPU."""

from __future__ import annotations

import pytest

from space.errors import ProfileError
from tuner.cli.options import AUTO, device_named, profile_from_words
from tuner.errors import DeviceError
from tuner.studying import open_worker
from workers.cuda import device
from workers.errors import DriverError

H100 = "NVIDIA H100 80GB HBM3"


def test_auto_is_the_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_worker, "driver_present", lambda: True)
    monkeypatch.setattr(device, "identity_here", lambda: H100)
    assert device_named(AUTO) == H100


def test_auto_is_the_h200_on_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_worker, "driver_present", lambda: False)
    assert device_named(AUTO) == "NVIDIA H200"


def test_a_gpu_that_nothing_compiles_for_is_refused_with_the_way_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> str:
        raise DriverError("Tesla V100 can't be used: compute capability 7.0 has no compile target")

    monkeypatch.setattr(open_worker, "driver_present", lambda: True)
    monkeypatch.setattr(device, "identity_here", refused)
    with pytest.raises(DeviceError, match=r"7\.0 has no compile target; name another device"):
        device_named(AUTO)


def test_an_arch_in_place_of_a_device_asks_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_worker, "driver_present", lambda: pytest.fail("the driver was asked"))
    assert profile_from_words(AUTO, "sm_80").arch.name == "sm_80"


@pytest.mark.parametrize(("name", "identity"), [("h100 sxm", H100), ("l40s", "NVIDIA L40S"), ("Toaster", "Toaster")])
def test_a_name_is_an_identity_whatever_this_machine_has(
    monkeypatch: pytest.MonkeyPatch, name: str, identity: str
) -> None:
    monkeypatch.setattr(open_worker, "driver_present", lambda: True)
    assert device_named(name) == identity


def test_a_device_that_is_not_utf_8_is_one_sentence() -> None:
    with pytest.raises(ProfileError, match=r"'o\\udcff' is not UTF-8"):
        device_named("o\udcff")
