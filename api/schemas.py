"""Request and response schemas, and their conversion from the tuner's values."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from api.problem_schemas import Absent as Absent
from api.problem_schemas import ProblemOut
from space.config import Config
from space.devices import identity_named
from space.explain import Broken, Explanation
from space.registry import problem_from_key
from tuner.evidence.records import Clocks, Provenance, Ratio, StoredMeasurement, Verification

#: Text without control characters, which every database can store and a log line can show.
PRINTABLE: Final = r"^[^\x00-\x1f\x7f]*$"
DeviceName = Annotated[
    str, Field(min_length=1, max_length=100, pattern=PRINTABLE, description="GPU model, as in `NVIDIA H200` or `L40S`"),
    AfterValidator(identity_named),
]


class Strict(BaseModel):
    """Input that rejects unknown fields, so that a typo is not mistaken for a default."""

    model_config = ConfigDict(extra="forbid")


class ConfigOut(BaseModel):
    """A config with its key."""

    family: str
    knobs: dict[str, int | str]
    key: str

    @classmethod
    def of(cls, config: Config) -> ConfigOut:
        """From the value."""
        return cls(family=config.family, knobs=config.knobs, key=config.key)


class MeasurementOut(BaseModel):
    """One measurement in full."""

    id: int
    study_id: int
    problem: ProblemOut
    device: str
    device_kind: str
    config: ConfigOut
    stage: str
    policy: str
    outcome: str
    median_us: float | None
    tflops: float | None
    samples_us: list[float]
    detail: str
    verification: Verification | None
    clocks: Clocks | None
    build_digest: str
    note: str
    provenance: Provenance
    taken_at: datetime

    @classmethod
    def of(cls, stored: StoredMeasurement) -> MeasurementOut:
        """From the value."""
        m, problem = stored.measurement, problem_from_key(stored.measurement.problem_key)
        median = m.median_us if m.samples_us else None
        return cls(
            id=stored.id, study_id=stored.study_id, problem=ProblemOut.of(problem), device=stored.device,
            device_kind=stored.device_kind, config=ConfigOut.of(m.config), stage=m.stage, policy=m.policy.value,
            outcome=m.outcome.value, median_us=median, tflops=problem.tflops(median) if median else None,
            samples_us=list(m.samples_us), detail=m.detail, verification=m.verification, clocks=m.clocks,
            build_digest=m.build_digest, note=m.note, provenance=stored.provenance, taken_at=stored.taken_at,
        )  # fmt: skip


class EvidenceOut(BaseModel):
    """The evidence of a measured or nearest answer: an entry of the device's table."""

    problem: ProblemOut
    config: ConfigOut
    runner_up: ConfigOut | None = Field(description="second fastest config; null if there was no other")
    policy: str
    device_kind: str = Field(description="cuda, or recorded for replayed times")
    median_us: float
    tflops: float
    samples_us: list[float]
    stage: str
    note: str
    versus_cublaslt_first: Ratio | None
    versus_cublaslt_best: Ratio | None
    verification: Verification | None
    clocks: Clocks | None
    build_digest: str
    provenance: Provenance
    measurement_id: int
    study_id: int
    taken_at: datetime
    tried: int
    failed: dict[str, int]


class BestOut(BaseModel):
    """The best known config, its source and its evidence."""

    problem: ProblemOut
    device: str
    policy: str
    source: Literal["measured", "nearest", "predicted", "default", "none"]
    why: str
    config: ConfigOut | None
    time_us: float | None = Field(description="measured median, or an estimate unless source is measured")
    interval_us: tuple[float, float] | None = Field(
        description="95 % interval of the median if source is measured, else 90 % interval of the estimate"
    )
    tflops: float | None
    roofline_us: float | None = Field(description="lower bound of any kernel's time; null for an unknown device")
    grounds: list[str] = Field(description="sentences on how time and interval were obtained")
    evidence: EvidenceOut | None
    tune: str = Field(description="command that measures this problem")


class BrokenOut(BaseModel):
    """One rule that a config breaks."""

    rule: str
    sentence: str
    numbers: str
    source: str

    @classmethod
    def of(cls, broken: Broken) -> BrokenOut:
        """From the value."""
        return cls(**asdict(broken))


class ExplanationOut(BaseModel):
    """The result of checking a config against every rule."""

    problem: ProblemOut
    arch: str
    config: ConfigOut
    legal: bool
    broken: list[BrokenOut]
    not_worth: list[BrokenOut]
    nearest: ConfigOut | None
    change: str | None
    derived: dict[str, int]

    @classmethod
    def of(cls, said: Explanation) -> ExplanationOut:
        """From the value."""
        return cls(
            problem=ProblemOut.of(said.problem), arch=said.arch, config=ConfigOut.of(said.config), legal=said.legal,
            broken=[BrokenOut.of(entry) for entry in said.broken],
            not_worth=[BrokenOut.of(entry) for entry in said.not_worth],
            nearest=ConfigOut.of(said.nearest) if said.nearest else None, change=said.change or None,
            derived=said.derived,
        )  # fmt: skip
