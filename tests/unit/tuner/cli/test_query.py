"""The last line of `gemmtune best`: where what was not measured can be measured."""

from __future__ import annotations

import pytest

from tuner.cli.query import elsewhere
from tuner.studying import open_worker
from workers.cuda import device
from workers.errors import DriverError

H100 = "NVIDIA H100 80GB HBM3"


def test_the_gpu_of_this_machine_is_measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_worker, "driver_present", lambda: True)
    monkeypatch.setattr(device, "identity_here", lambda: H100)
    assert elsewhere(H100) == ""
    assert elsewhere("NVIDIA L40S") == ", on a machine with an NVIDIA L40S"


def test_a_machine_without_a_gpu_measures_nothing_not_even_the_h200_that_it_replays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_worker, "driver_present", lambda: False)
    assert elsewhere("NVIDIA H200") == ", on a machine with an NVIDIA H200"


def test_a_gpu_that_cannot_be_used_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> str:
        raise DriverError("Tesla V100 can't be used: compute capability 7.0 has no compile target")

    monkeypatch.setattr(open_worker, "driver_present", lambda: True)
    monkeypatch.setattr(device, "identity_here", refused)
    assert elsewhere(H100) == f", on a machine with an {H100}"
