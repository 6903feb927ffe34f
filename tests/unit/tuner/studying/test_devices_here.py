"""Several devices of a host: a pool learns at once which one is not there, instead of starting its process for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import DeviceError
from tuner.settings import settings
from tuner.studying import open_worker
from tuner.studying.open_worker import check_here


@pytest.mark.parametrize(("devices", "why"), [
    (["cuda:0", "cuda:9"], "cuda:9 is not here: the last GPU of this machine is cuda:1"),
    (["recorded:h200", "recorded:h20"], "recorded:h20 is not among the recordings"),
    (["recorded:h200", "recorded:h200:slowly"], "is unknown: use one of auto, cuda:0"),
    (["cuda:1", "cuda:0", "cuda:1"], "cuda:1 is given more than once"),
    (["auto", "cuda:0"], "cuda:0 is given more than once"),
])  # fmt: skip
def test_a_device_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, devices: list[str], why: str) -> None:
    monkeypatch.setattr(open_worker, "gpu_count", lambda: 2)
    with pytest.raises(DeviceError, match=why):
        check_here(devices, settings())


def test_a_folder_without_recordings_names_its_setting(tmp_path: Path) -> None:
    misspelt = settings().model_copy(update={"recorded_dir": tmp_path / "misspelt"})
    with pytest.raises(DeviceError, match="misspelt: there are none: set GEMMTUNE_RECORDED_DIR to a folder of sets"):
        check_here(["recorded:h200", "recorded:h200_again"], misspelt)


def test_devices_that_are_there_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_worker, "gpu_count", lambda: 2)
    check_here(["cuda:0", "cuda:1", "recorded:h200", "recorded:h200", "recorded:h200:realtime"], settings())
    monkeypatch.setattr(open_worker, "gpu_count", lambda: 0)
    check_here(["auto", "auto"], settings())
    with pytest.raises(DeviceError, match="no NVIDIA driver answers"):
        check_here(["recorded:h200", "cuda:0"], settings())
