"""/v1/rounds: a worker begins, announces and reports the rounds that it holds. Every request carries the lease."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from api.auth import Caller, require
from api.fleet import ReportLimit, RoundCallLimit, RoundsDependency
from api.fleet_schemas import Text
from api.http_errors import responses
from api.json_bodies import JsonRoute
from api.patterns import PRINTABLE
from api.schemas import Body, NumberPath, Part
from tuner.errors import ResultRefused
from tuner.fleet.campaigns.checks import MOST_MEASUREMENTS, MOST_SAMPLES, config_from_key
from tuner.fleet.campaigns.records import (
    Clocks,
    Measurement,
    Outcome,
    Policy,
    Provenance,
    RoundReport,
    StudyHistory,
    Verification,
)

router = APIRouter(tags=["rounds"], route_class=JsonRoute)
#: The caller, to whose token a round belongs.
Worker = Annotated[Caller, Depends(require("work"))]
Lease = Annotated[str, Field(min_length=32, max_length=32, pattern=PRINTABLE)]
ConfigKey = Annotated[str, Field(min_length=3, max_length=500, pattern=PRINTABLE)]
Version = Annotated[str, Field(max_length=200, pattern=PRINTABLE)]
Name = Annotated[str, Field(max_length=80, pattern=PRINTABLE)]
Digest = Annotated[str, Field(max_length=64, pattern=PRINTABLE)]
#: The databases store signed 64-bit integers.
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]


class ProvenanceIn(Part):
    """The versions, device and seed that produced a round's measurements."""

    device: Name
    device_uuid: Name
    driver: Version
    nvrtc: Version
    kernel_source_digest: Digest
    cublaslt: Version
    gemmtune: Version
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
    rotation_bytes: Whole = 0

    def value(self) -> Provenance:
        """The tuner's value."""
        return Provenance(**self.model_dump())


class BeginIn(Body):
    """Begins a round, once its device is prepared."""

    lease: Lease
    provenance: ProvenanceIn


class TriedOut(BaseModel):
    """A candidate that the study has already screened."""

    config: str
    outcome: str
    median_us: float | None = Field(description="null unless correct")
    noise: float = Field(description="range of its samples, as a share of the median")


class PastOut(BaseModel):
    """The history of a round's study."""

    study_id: int
    tried: list[TriedOut]
    finals_done: bool = Field(description="no candidate was screened since the study's last finals")
    winners: list[str] = Field(description="winning configs of similar problems, most similar first")

    @classmethod
    def of(cls, past: StudyHistory) -> PastOut:
        tried = [
            TriedOut(
                config=entry.config.key,
                outcome=entry.outcome.value,
                median_us=entry.median_us if math.isfinite(entry.median_us) else None,
                noise=entry.noise,
            )
            for entry in past.tried
        ]
        winners = [config.key for config in past.winners]
        return cls(study_id=past.study_id, tried=tried, finals_done=past.finals_done, winners=winners)


class AnnounceIn(Body):
    """Announces the candidates that are measured next."""

    lease: Lease
    stage: Literal["screen", "final"]
    configs: Annotated[list[ConfigKey], Field(min_length=1, max_length=64)]


class VerificationIn(Part):
    """Comparison of every element of C with the reference."""

    elements: Whole
    mismatches: Whole
    worst_ratio: Annotated[float | None, Field(allow_inf_nan=False, description="null if infinite")]
    reference: Version

    def value(self) -> Verification:
        """The tuner's value."""
        worst = math.inf if self.worst_ratio is None else self.worst_ratio
        return Verification(self.elements, self.mismatches, worst, self.reference)


class ClocksIn(Part):
    """Device state right after the samples."""

    sm_mhz: Annotated[int, Field(ge=0, le=100_000)]
    memory_mhz: Annotated[int, Field(ge=0, le=100_000)]
    power_w: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]
    temperature_c: Annotated[int, Field(ge=-273, le=1_000)]
    throttle_reasons: Annotated[list[Name], Field(max_length=20, default_factory=list)]

    def value(self) -> Clocks:
        """The tuner's value."""
        return Clocks(**self.model_dump(exclude={"throttle_reasons"}), throttle_reasons=tuple(self.throttle_reasons))


class MeasurementIn(Part):
    """The measurement of one candidate. Problem and device are the round's."""

    config: ConfigKey
    stage: Literal["screen", "final"]
    policy: Annotated[Policy, Field(strict=False)]
    outcome: Annotated[Outcome, Field(strict=False)]
    samples_us: Annotated[
        list[Annotated[float, Field(gt=0, allow_inf_nan=False)]], Field(max_length=MOST_SAMPLES, default_factory=list)
    ]
    detail: Text = ""
    verification: VerificationIn | None = None
    clocks: ClocksIn | None = None
    build_digest: Digest = ""
    note: Text = ""
    product_joules: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def value(self, problem_key: str) -> Measurement:
        """The tuner's value.

        Raises:
            ResultRefused: the config is invalid, or the outcome is `correct` without a clean verification or samples.
        """
        config = config_from_key(self.config)
        try:
            return Measurement(
                problem_key, config, self.stage, self.policy, self.outcome, tuple(self.samples_us), self.detail,
                self.verification.value() if self.verification else None,
                self.clocks.value() if self.clocks else None, self.build_digest, self.note, self.product_joules,
            )  # fmt: skip
        except ValueError as error:
            raise ResultRefused(str(error)) from error


class FinishIn(Body):
    """The report of a round."""

    lease: Lease
    measurements: Annotated[list[MeasurementIn], Field(max_length=MOST_MEASUREMENTS, default_factory=list)]
    provenance: ProvenanceIn | None = Field(default=None, description="as given when the round began")
    problem_key: Version = Field(default="", description="the round's problem")
    busy_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 0.0
    ended: Text = Field(default="", description="why the study has ended; empty if it continues in another round")
    failure: Text = Field(default="", description="why the round failed; measurements taken before still count")
    hopeless: bool = Field(default=False, description="a retry would fail in the same way")
    handed_back: bool = Field(default=False, description="the worker was told to stop")

    def report(self) -> RoundReport:
        """The tuner's value.

        Raises:
            ResultRefused: a measurement is invalid.
        """
        return RoundReport(
            tuple(entry.value(self.problem_key) for entry in self.measurements),
            self.provenance.value() if self.provenance else None, self.busy_seconds, self.ended, self.failure,
            self.hopeless, self.handed_back,
        )  # fmt: skip


@router.post("/v1/rounds/{round_id:int}:begin", operation_id="beginRound", responses=responses(404, 409))
async def begin_round(
    round_id: NumberPath, body: BeginIn, rounds: RoundsDependency, limit: RoundCallLimit, caller: Worker
) -> PastOut:
    """Begins a round, once its device is prepared, and returns the history of its study."""
    return await limit.run(
        lambda: PastOut.of(rounds.begin(round_id, body.lease, body.provenance.value(), caller.token_id))
    )


@router.post(
    "/v1/rounds/{round_id:int}:announce", operation_id="announceCandidates", status_code=204,
    responses=responses(404, 409),
)  # fmt: skip
async def announce_candidates(
    round_id: NumberPath, body: AnnounceIn, rounds: RoundsDependency, limit: RoundCallLimit, caller: Worker
) -> None:
    """Announces the candidates that are measured next: the suspects if the worker goes silent."""
    await limit.run(lambda: rounds.announce(round_id, body.lease, body.stage, body.configs, caller.token_id))


@router.post(
    "/v1/rounds/{round_id:int}:finish", operation_id="finishRound", status_code=204, responses=responses(404, 409)
)  # fmt: skip
async def finish_round(
    round_id: NumberPath, body: FinishIn, rounds: RoundsDependency, limit: ReportLimit, caller: Worker
) -> None:
    """Reports a round. All of the report is stored, or none of it; sending the same one again is safe."""
    await limit.run(lambda: rounds.finish(round_id, body.lease, body.report(), caller.token_id))
