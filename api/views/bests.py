"""GET /v1/bests:columns: every best of a device in one answer, column by column."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api.auth import require
from api.derived import FromAttributes, fields_of
from api.devices import DevicePath, card, no_bests_of
from api.encoding import NOT_MODIFIED, Rendered
from api.http_errors import responses
from api.schemas import DIGITS, Absent, DeviceName, PolicyName, Strict
from api.views.columns import Coded, Columnar, ConfigsOut
from api.views.kept import ViewsDependency
from tuner.evidence import changes
from tuner.views.drift import Drift, ProgramChange, ProgramFacts, drift

router = APIRouter(tags=["views"], dependencies=[Depends(require("read"))])


class BestColumnsQuery(Strict):
    """A device and a timing policy."""

    device: DeviceName
    policy: PolicyName | Absent = None
    after: Annotated[
        int, Field(ge=0, lt=2**53, description="`version` of an earlier answer: only rows that changed since"), DIGITS
    ] = 0


class GainOut(BaseModel):
    """The gain over the library, its geometric mean with a 95 % interval."""

    problems: int
    geometric_mean: float
    low: float
    high: float
    faster: int
    tied: int
    slower: int
    least: float
    most: float


class GainsOut(BaseModel):
    """The gain over all problems, sampled or not, except bests that a rule forbids by now: they are not served."""

    first: GainOut | None = Field(description="over cuBLASLt's first choice")
    best: GainOut | None = Field(description="over the fastest of its candidates")


class TimesOut(BaseModel):
    """Times of one policy; null where nothing was measured under it."""

    time_us: list[float | None]
    low_us: list[float | None]
    high_us: list[float | None]
    first: list[float | None] = Field(description="time of cuBLASLt's first choice over ours")
    first_low: list[float | None]
    first_high: list[float | None]
    first_paired: list[bool | None]
    best: list[float | None] = Field(description="time of cuBLASLt's fastest candidate over ours")
    best_low: list[float | None]
    best_high: list[float | None]
    best_paired: list[bool | None]


class BestTableOut(TimesOut):
    """The columns, one entry per problem, by problem key."""

    key: list[str]
    m: list[int]
    n: list[int]
    k: list[int]
    kind: Coded[str]
    dtype: Coded[str]
    layout: Coded[str | None]
    class_: Coded[str] = Field(alias="class", description="gemv, skinny, deep, shallow, wide or square")
    bound: Coded[str | None] = Field(description="what the roofline expects to limit it: compute or memory")
    flops: list[int]
    bytes: list[int]
    roofline_us: list[float | None]
    tflops: list[float]
    policy: Coded[str]
    device_kind: Coded[str]
    config: list[int] = Field(description="place in `configs`")
    measurement_id: list[int]
    study_id: list[int]
    tried: list[int]
    failed: list[int]
    taken_at: list[float] = Field(description="seconds since 1970")
    driver: Coded[str]
    nvrtc: Coded[str]
    kernels: Coded[str]
    cublaslt: Coded[str]
    stale: list[bool | None] = Field(description="whether its kernel or compiler has changed since; null until known")
    forbidden: list[bool | None] = Field(description="whether a rule forbids its config by now; null until known")


class CeilingsOut(BaseModel):
    """Rates that no kernel exceeds for long."""

    memory_tbs: float
    tensor_tflops: dict[str, float]
    clock_ghz: float


class BestColumnsOut(Columnar):
    """Every best of a device."""

    device: str
    version: int = Field(description="`after` of the next question; another store has others")
    changed: list[str] | None = Field(
        description="keys of the problems whose bests are new, better or gone since `after`; null: all rows are here"
    )
    gain: GainsOut
    columns: BestTableOut
    fields: dict[str, Coded[Any]] = Field(description="further fields of the problems")
    policies: dict[str, TimesOut] = Field(description="the same rows under each policy, if there are several")
    configs: ConfigsOut
    ceilings: CeilingsOut | None


@fields_of(ProgramFacts)
class ProgramOut(FromAttributes):
    """A driver, a compiler, kernels and a library that measured bests."""


@fields_of(ProgramChange)
class ProgramChangeOut(FromAttributes):
    """Bests that passed from one program to another; `geometric_mean` is new time over old."""


@fields_of(Drift, programs=list[ProgramOut], changes=list[ProgramChangeOut])
class DriftOut(FromAttributes):
    """The programs that measured a device's bests, oldest first, and the changes between them."""


@router.get(
    "/v1/devices/{device}/drift", operation_id="getDrift", response_model=DriftOut,
    responses={**responses(404), **NOT_MODIFIED},
)  # fmt: skip
async def get_drift(request: Request, device: DevicePath, views: ViewsDependency) -> Response:
    """How driver, compiler, kernels and library moved a device's bests."""

    def found() -> Drift:
        found = drift(views.store, device)
        if not found.programs and device not in dict(views.store.devices()):
            card(device)  # refuses a name that no card has
        return found

    return await views.keep(
        request, ("drift", device), found, schema=DriftOut,
        version=lambda: (changes.version(views.store.changed(), "best"), views.revocations()),
    )  # fmt: skip


@router.get(
    "/v1/bests:columns", operation_id="listBestColumns", response_model=BestColumnsOut,
    responses={**responses(404), **NOT_MODIFIED},
)  # fmt: skip
async def list_best_columns(
    request: Request, query: Annotated[BestColumnsQuery, Query()], views: ViewsDependency
) -> Response:
    """Every served best of a device, or those of one policy, as columns; compressed, with an ETag.

    With `after`, replace the rows of the problems in `changed` by those in the answer. If `changed` is null (too much
    has changed, or the store was restored), the answer has all rows.
    """
    policy = query.policy.value if query.policy else None

    def make() -> Rendered:
        found = views.bests(query.device, policy, query.after)
        if found is None:
            raise no_bests_of(request.app.state.answer_service.snapshot, query.device)
        return found

    return await views.answer(request, ("bests", query.device, policy, query.after), make)
