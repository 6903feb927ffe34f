"""GET /v1/devices: the GPU models that gemmtune knows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field

from api.auth import require
from api.http_errors import HttpError, responses
from api.schemas import PRINTABLE
from api.snapshot import Snapshot
from space.arch import DEVICES, DeviceLimits

router = APIRouter(tags=["devices"], dependencies=[Depends(require("read"))])

DevicePath = Annotated[str, Path(min_length=1, max_length=100, pattern=PRINTABLE, description="GPU model")]


class DeviceOut(BaseModel):
    """A GPU model."""

    name: str = Field(description="as the driver names it")
    bests: int = Field(description="problems with a measured best")
    kinds: dict[str, int] = Field(description="bests by device kind: cuda for a GPU, recorded for replayed times")
    limits: DeviceLimits | None = Field(description="measured rates for estimating times; null if unknown")


class DevicesOut(BaseModel):
    """Every GPU model with bests, and every model whose rates are known."""

    items: list[DeviceOut]


@router.get("/v1/devices", operation_id="listDevices", responses=responses())
def list_devices(request: Request) -> DevicesOut:
    """Devices, sorted by name."""
    snapshot: Snapshot = request.app.state.answer_service.snapshot
    return DevicesOut(items=[_device(snapshot, name) for name in sorted({*snapshot.devices, *DEVICES})])


@router.get("/v1/devices/{device}", operation_id="getDevice", responses=responses(404))
def get_device(request: Request, device: DevicePath) -> DeviceOut:
    """One device."""
    snapshot: Snapshot = request.app.state.answer_service.snapshot
    if device not in snapshot.devices and device not in DEVICES:
        known = ", ".join(sorted({*snapshot.devices, *DEVICES}))
        raise HttpError(404, "unknown-device", f"device {device!r} is unknown: use one of {known}")
    return _device(snapshot, device)


def _device(snapshot: Snapshot, name: str) -> DeviceOut:
    known = snapshot.devices.get(name)
    kinds = known.kinds() if known else {}
    return DeviceOut(name=name, bests=sum(kinds.values()), kinds=kinds, limits=DEVICES.get(name))
