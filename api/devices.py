"""GET /v1/devices: the GPU models that anything is known of."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field

from api.auth import require
from api.problems import HttpProblem, responses
from api.schemas import PRINTABLE
from api.snapshot import Snapshot
from space.arch import DEVICES, DeviceLimits

router = APIRouter(tags=["devices"], dependencies=[Depends(require("read"))])

DevicePath = Annotated[str, Path(min_length=1, max_length=100, pattern=PRINTABLE, description="GPU model")]


class DeviceOut(BaseModel):
    """A GPU model."""

    name: str = Field(description="as the driver names it")
    bests: int = Field(description="problems with a measured best")
    kinds: dict[str, int] = Field(description="of these, by a GPU's own (cuda) and replayed (recorded) ones")
    limits: DeviceLimits | None = Field(description="measured rates that times are estimated with; null if unknown")


class DevicesOut(BaseModel):
    """Every GPU model that was tuned on, and those whose rates are known."""

    items: list[DeviceOut]


@router.get("/v1/devices", operation_id="listDevices", responses=responses())
def list_devices(request: Request) -> DevicesOut:
    """Devices in order of their names."""
    snapshot: Snapshot = request.app.state.answerer.snapshot
    return DevicesOut(items=[_device(snapshot, name) for name in sorted({*snapshot.devices, *DEVICES})])


@router.get("/v1/devices/{device}", operation_id="getDevice", responses=responses(404))
def get_device(request: Request, device: DevicePath) -> DeviceOut:
    """One device."""
    snapshot: Snapshot = request.app.state.answerer.snapshot
    if device not in snapshot.devices and device not in DEVICES:
        known = ", ".join(sorted({*snapshot.devices, *DEVICES}))
        raise HttpProblem(404, "unknown-device", f"nothing is known of {device!r}: there are {known}")
    return _device(snapshot, device)


def _device(snapshot: Snapshot, name: str) -> DeviceOut:
    known = snapshot.devices.get(name)
    kinds = known.kinds() if known else {}
    return DeviceOut(name=name, bests=sum(kinds.values()), kinds=kinds, limits=DEVICES.get(name))
