"""GET /v1/devices: the GPU models that gemmtune knows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import AfterValidator, AliasPath, BaseModel, BeforeValidator, Field

from api.auth import require
from api.derived import FromAttributes
from api.device_bests import DeviceBests
from api.http_errors import HttpError, responses
from api.patterns import PRINTABLE
from api.snapshot import Snapshot
from api.thread_routes import ThreadRoute
from space.arch import DOCUMENT
from space.devices import find_profile, identity_named, known_names, profile_named
from space.errors import ProfileError

router = APIRouter(tags=["devices"], dependencies=[Depends(require("read"))], route_class=ThreadRoute)

DevicePath = Annotated[
    str, Path(min_length=1, max_length=100, pattern=PRINTABLE, description="GPU model"), AfterValidator(identity_named)
]


#: Figures that every device of an arch has.
_OF_ARCH = ("compute_capability", "smem_per_block_bytes", "smem_per_sm_bytes", "registers_per_sm")


class ProfileOut(FromAttributes):
    """What is known of a device, each figure with its source."""

    name: str = Field(description="the device's identity")
    arch: str = Field(validation_alias=AliasPath("arch", "name"), description="compile target")
    compute_capability: tuple[int, int]
    sm_count: int
    smem_per_block_bytes: int = Field(validation_alias=AliasPath("arch", "smem_per_block_bytes"))
    smem_per_sm_bytes: int = Field(validation_alias=AliasPath("arch", "smem_per_sm_bytes"))
    registers_per_sm: int = Field(
        validation_alias=AliasPath("arch", "registers_per_block"), description="32-bit registers of one multiprocessor"
    )
    l2_bytes: int
    memory_bytes: int
    power_w: float
    clock_ghz: float = Field(description="multiprocessor clock under sustained tensor load")
    highest_clock_ghz: float
    memory_tbs: float = Field(description="peak rate of device memory, 10^12 bytes a second")
    hbm_tbs: float = Field(description="rate that copying kernels get")
    hbm_read_tbs: float = Field(description="rate that reading kernels get")
    l2_tbs: float
    tensor_tflops: dict[str, float] = Field(description="dense rate by dtype of A")
    tensor_flops_per_clock: int = Field(description="16-bit operations of one multiprocessor in a clock")
    launch_us: float
    resident_clusters: dict[int, int] = Field(description="number of clusters that run at once, by blocks per cluster")
    measured: bool = Field(description="whether the rates were measured on such cards")
    sources: Annotated[
        dict[str, str], BeforeValidator(lambda given: dict.fromkeys(_OF_ARCH, DOCUMENT) | dict(given))
    ] = Field(description="source of each figure: driver, measured, estimated or a document")


class DeviceOut(BaseModel):
    """A device."""

    name: str = Field(description="its identity: the driver's name, and what sets it apart from others of that name")
    bests: int = Field(description="problems with a measured best")
    kinds: dict[str, int] = Field(description="bests that a GPU measured (cuda) and that a replay gave (recorded)")
    limits: ProfileOut | None = Field(description="its profile; null for an unknown card")


class DevicesOut(BaseModel):
    """Every known card, and every other device that was tuned on."""

    items: list[DeviceOut]


@router.get("/v1/devices", operation_id="listDevices", responses=responses())
def list_devices(request: Request) -> DevicesOut:
    """Devices in order of their names."""
    snapshot: Snapshot = request.app.state.answer_service.snapshot
    return DevicesOut(items=[_device(snapshot, name) for name in sorted({*snapshot.devices, *known_names()})])


@router.get("/v1/devices/{device}", operation_id="getDevice", responses=responses(404))
def get_device(request: Request, device: DevicePath) -> DeviceOut:
    """One device, by its identity or by a name that people use for it."""
    snapshot: Snapshot = request.app.state.answer_service.snapshot
    return _device(snapshot, device if device in snapshot.devices else card(device))


def card(device: str) -> str:
    """The name of a known card, from it or from a name that people use for it.

    Raises:
        HttpError: 404, no such card is known.
    """
    try:
        return profile_named(device).name
    except ProfileError as error:
        raise HttpError(404, "unknown-device", str(error)) from error


def bests_of(snapshot: Snapshot, device: str) -> DeviceBests:
    """The bests of a device.

    Raises:
        HttpError: 404, the snapshot has no best of it.
    """
    known = snapshot.devices.get(device)
    if known is None:
        raise no_bests_of(snapshot, device)
    return known


def no_bests_of(snapshot: Snapshot, device: str) -> HttpError:
    """The error for a device without any best."""
    names = ", ".join(snapshot.devices) or "no device yet"
    detail = f"no best of device {device!r}: there are bests of {names}; see /v1/devices"
    return HttpError(404, "unknown-device", detail)


def _device(snapshot: Snapshot, name: str) -> DeviceOut:
    known, profile = snapshot.devices.get(name), find_profile(name)
    kinds = known.kinds() if known else {}
    limits = ProfileOut.model_validate(profile) if profile else None
    return DeviceOut(name=name, bests=sum(kinds.values()), kinds=kinds, limits=limits)
