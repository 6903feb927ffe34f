"""What goes in and out over HTTP, and how the tuner's values become it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from space.arch import DEVICES
from space.config import Config
from space.explain import Broken, Explanation
from space.problem import DTYPES, LAYOUTS, MAX_EXTENT, Problem
from space.rank import roofline_us
from tuner.answers import Answer
from tuner.records import Best, StoredMeasurement

Extent = Annotated[int, Field(ge=1, le=MAX_EXTENT)]
DtypeWord = Annotated[str, Field(description=f"one of {', '.join(DTYPES)}")]
LayoutWord = Annotated[str, Field(description=f"one of {', '.join(LAYOUTS)}; row-major letters of A and B")]
T = TypeVar("T")


class Strict(BaseModel):
    """Input: unknown fields are refused, so that a typing error is not taken for a default."""

    model_config = ConfigDict(extra="forbid")


class ProblemIn(Strict):
    """A problem as asked for."""

    m: Extent
    n: Extent
    k: Extent
    dtype: DtypeWord = "bf16"
    layout: LayoutWord = "nt"

    def problem(self) -> Problem:
        """The problem; raises `ProblemError` for an unknown dtype or layout."""
        return Problem.of(self.m, self.n, self.k, self.dtype, self.layout)


class ProblemOut(BaseModel):
    """A problem with its key."""

    key: str
    m: int
    n: int
    k: int
    batch: int
    layout: str
    dtype: str
    dtype_a: str
    dtype_b: str
    dtype_c: str
    dtype_acc: str
    epilogue: str

    @classmethod
    def of(cls, problem: Problem) -> ProblemOut:
        """From the value."""
        return cls(**asdict(problem), key=problem.key, dtype=problem.dtype)


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
    """One measurement, whole."""

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
    verification: dict[str, Any] | None
    clocks: dict[str, Any] | None
    build_digest: str
    note: str
    provenance: dict[str, Any]
    taken_at: datetime

    @classmethod
    def of(cls, stored: StoredMeasurement) -> MeasurementOut:
        """From the value."""
        m, problem = stored.measurement, Problem.from_key(stored.measurement.problem_key)
        median = m.median_us if m.samples_us else None
        return cls(
            id=stored.id, study_id=stored.study_id, problem=ProblemOut.of(problem), device=stored.device,
            device_kind=stored.device_kind, config=ConfigOut.of(m.config), stage=m.stage, policy=m.policy.value,
            outcome=m.outcome.value, median_us=median, tflops=problem.tflops(median) if median else None,
            samples_us=list(m.samples_us), detail=m.detail, verification=_dict(m.verification), clocks=_dict(m.clocks),
            build_digest=m.build_digest, note=m.note, provenance=asdict(stored.provenance), taken_at=stored.taken_at,
        )  # fmt: skip


class Evidence(BaseModel):
    """Why a measured or nearest answer is to be believed."""

    problem: ProblemOut
    measurement: MeasurementOut
    versus_cublaslt_first: dict[str, Any] | None
    versus_cublaslt_best: dict[str, Any] | None
    runner_up: ConfigOut | None
    tried: int
    failed: dict[str, int]

    @classmethod
    def of(cls, best: Best) -> Evidence:
        """From the value."""
        return cls(
            problem=ProblemOut.of(best.problem), measurement=MeasurementOut.of(best.winner),
            versus_cublaslt_first=_dict(best.versus_first), versus_cublaslt_best=_dict(best.versus_best),
            runner_up=ConfigOut.of(best.runner_up) if best.runner_up else None, tried=best.tried, failed=best.failed,
        )  # fmt: skip


class BestOut(BaseModel):
    """The best known config, where it comes from, and the evidence."""

    problem: ProblemOut
    device: str
    policy: str
    source: Literal["measured", "nearest", "predicted", "default", "none"]
    why: str
    config: ConfigOut | None
    time_us: float | None = Field(description="measured median, or an estimate when source is not measured")
    tflops: float | None
    roofline_us: float | None = Field(description="no kernel is faster than this; null for an unknown device")
    evidence: Evidence | None
    tune: str = Field(description="the command that measures it")

    @classmethod
    def of(cls, answer: Answer) -> BestOut:
        """From the value."""
        problem, limits = answer.problem, DEVICES.get(answer.device)
        return cls(
            problem=ProblemOut.of(problem), device=answer.device, policy=answer.policy.value, source=answer.source,
            why=answer.why, config=ConfigOut.of(answer.config) if answer.config else None, time_us=answer.time_us,
            tflops=answer.tflops, roofline_us=roofline_us(problem, limits) if limits else None,
            evidence=Evidence.of(answer.best) if answer.best else None,
            tune=f"gemmtune tune {problem.shape} --dtype {problem.dtype} --layout {problem.layout}",
        )  # fmt: skip


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
    """Everything that the rules say of one config."""

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


def _dict(value: Any) -> dict[str, Any] | None:  # noqa: ANN401  (any of our dataclasses)
    return asdict(value) if value is not None else None
