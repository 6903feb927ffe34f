"""Request and response schemas, and their conversion from the tuner's values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

from fastapi import Path
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from api.derived import FromAttributes
from api.patterns import PRINTABLE
from api.problem_schemas import DECIMAL as DECIMAL
from api.problem_schemas import DIGITS as DIGITS
from api.problem_schemas import Absent as Absent
from api.problem_schemas import ProblemOut, check_count
from space.devices import identity_named
from space.kind import problem_from_key
from tuner.evidence.physics import in_range
from tuner.evidence.records import Clocks, Policy, Provenance, Ratio, StoredMeasurement, Verification
from tuner.tables.entries import fields


def _text(given: object) -> object:
    """Refuses a number, which pydantic would take for seconds since 1970."""
    if not isinstance(given, str) or not given[:10].count("-") == 2:
        raise ValueError("give a date and a time with its zone, as in 2026-03-01T12:00:00Z")
    return given


def _in_utc(moment: datetime) -> datetime:
    """The moment in UTC: databases keep no other zone, and the first and last years of the calendar may have none."""
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("give a moment that lies in the years 1 to 9999 of UTC") from error


def _policy(given: object) -> object:
    """The policy of a name, not of the one that old stores and recordings have for `rounds`."""
    if not isinstance(given, str):
        return given
    if given not in [*Policy]:
        raise ValueError(f"give one of {', '.join(Policy)}")
    return Policy(given)


#: The largest id of a row that every database has.
MOST_NUMBER: Final = 2**31 - 1
#: A row's id in a body or a query, and in a path.
Number = Annotated[int, Field(ge=1, le=MOST_NUMBER), DIGITS]
NumberPath = Annotated[int, Path(ge=1, le=MOST_NUMBER)]
#: A moment in ISO 8601.
Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_text), AfterValidator(_in_utc)]
#: A timing policy in a question; a strict enumeration takes no text.
PolicyName = Annotated[Policy, BeforeValidator(_policy)]
ProblemKey = Annotated[str, Field(min_length=1, max_length=300, pattern=PRINTABLE, description="problem key")]
DeviceName = Annotated[
    str,
    Field(min_length=1, max_length=100, pattern=PRINTABLE, description="GPU model, as in `NVIDIA H200` or `L40S`"),
    AfterValidator(identity_named),
]


class Strict(BaseModel):
    """Input that rejects unknown fields, so that a typo is not mistaken for a default."""

    model_config = ConfigDict(extra="forbid")
    _check_count = model_validator(mode="before")(check_count)


class Part(Strict):
    """An object in a JSON body, with its numbers and booleans as JSON has them: Python takes `"1_0"` for 10 too."""

    model_config = ConfigDict(strict=True)


#: Listing the errors of a body that has very many takes far longer than finding them.
MOST_ERRORS: Final = 100


class Body(Part):
    """The body of a request."""

    @model_validator(mode="wrap")
    @classmethod
    def _count_errors(cls, given: object, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(given)
        except ValidationError as error:
            raise too_many(error) or error from None


def too_many(error: ValidationError) -> PydanticCustomError | None:
    """The one error that stands for more than `MOST_ERRORS`."""
    count = error.error_count()
    if count <= MOST_ERRORS:
        return None
    return PydanticCustomError(
        "too_many_errors", "{count} values are wrong: compare the body with /openapi.json", {"count": count}
    )


class ConfigOut(FromAttributes):
    """A config with its key."""

    family: str
    knobs: dict[str, int | str]
    key: str


class Measured(BaseModel):
    """What a measurement and the evidence of a best have in common."""

    problem: ProblemOut
    config: ConfigOut
    policy: str
    device_kind: str = Field(description="cuda, or recorded for replayed times")
    samples_us: list[float]
    stage: str
    note: str
    verification: Verification | None
    clocks: Clocks | None
    product_joules: float | None = Field(description="energy of one product; null where none was counted")
    build_digest: str
    provenance: Provenance
    study_id: int
    taken_at: datetime


class MeasurementOut(Measured):
    """One measurement in full."""

    id: int
    device: str
    outcome: str
    median_us: float | None
    tflops: float | None
    detail: str
    worker_id: int | None = Field(description="of the worker that reported it; null without one")
    round_id: int | None
    token_id: int | None = Field(description="of the token that reported it; null without tokens")
    revoked: bool = Field(description="out of the running: its worker or token was revoked")

    @model_validator(mode="before")
    @classmethod
    def of(cls, stored: StoredMeasurement) -> dict[str, Any]:
        measurement, problem = stored.measurement, problem_from_key(stored.measurement.problem_key)
        median = measurement.median_us if measurement.samples_us else None
        return fields(stored) | fields(stored.author) | fields(measurement) | {
            "problem": problem, "median_us": median, "tflops": problem.tflops(median) if in_range(median) else None,
        }  # fmt: skip


class EvidenceOut(Measured):
    """The evidence of a measured or nearest answer: an entry of the device's table."""

    runner_up: ConfigOut | None = Field(description="the fastest other config; null if there was none")
    median_us: float
    tflops: float
    versus_cublaslt_first: Ratio | None
    versus_cublaslt_best: Ratio | None
    measurement_id: int
    tried: int
    failed: dict[str, int]


class BestOut(BaseModel):
    """The best known config, its source and its evidence."""

    problem: ProblemOut
    device: str
    policy: str
    source: Literal["measured", "stale", "recorded", "nearest", "predicted", "none"]
    why: str
    config: ConfigOut | None
    time_us: float | None = Field(description="median if source is measured or recorded, else an estimate")
    interval_us: tuple[float, float] | None = Field(
        description="95 % interval of the median if source is measured or recorded, else 90 % interval of the estimate"
    )
    tflops: float | None
    roofline_us: float | None = Field(description="lower bound of any kernel's time; null for an unknown device")
    grounds: list[str] = Field(description="sentences on how time and interval were obtained")
    evidence: EvidenceOut | None
    tune: str = Field(description="command that measures this problem")
