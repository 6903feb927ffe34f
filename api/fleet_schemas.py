"""Request and response schemas of campaigns and workers, and their conversion from and to the tuner's values."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from api.schemas import ProblemOut, Strict
from space.errors import ProblemError
from tuner.fleet.campaigns import documents
from tuner.fleet.campaigns.problems import MOST_PROBLEMS, distinct, from_fields, ladder
from tuner.fleet.campaigns.records import (
    MOST_NAME,
    PRIORITIES,
    Campaign,
    CampaignBudget,
    CampaignProblem,
    CampaignRequest,
    Progress,
    Summary,
    Worker,
)

#: Row ids; larger numbers can't exist.
Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
Text = Annotated[str, Field(max_length=4_000)]


class CampaignProblemIn(Strict):
    """One problem of a campaign."""

    m: Annotated[int, Field(ge=1, strict=True)]
    n: Annotated[int, Field(ge=1, strict=True)]
    k: Annotated[int, Field(ge=1, strict=True)]
    dtype: Annotated[str, Field(max_length=80)] = "bf16"
    layout: Annotated[str, Field(max_length=2)] = "nt"
    batch: Annotated[int, Field(ge=1, strict=True)] = 1
    epilogue: Annotated[str, Field(max_length=40)] = "none"


class DeviceIn(Strict):
    """A GPU model whose workers run the campaign's rounds."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    kind: Literal["cuda", "recorded"] = "cuda"


class BudgetIn(Strict):
    """When the campaign stops; see docs/fleet.md."""

    candidates: Annotated[int, Field(ge=1, le=100_000, description="most candidates to screen per problem")] = 96
    rounds: Annotated[int, Field(ge=5, le=1_000, description="interleaved rounds of the finals")] = 30
    target: Annotated[float, Field(gt=0, le=1, description="share of the roofline bound that is enough")] | None = None
    gpu_seconds: Annotated[float, Field(gt=0, le=1e9, description="GPU time of all workers together")] | None = None

    def value(self) -> CampaignBudget:
        """The tuner's value."""
        return CampaignBudget(**self.model_dump())


class CampaignIn(Strict):
    """A campaign to create, with problems listed one by one, as ladders, or both."""

    name: Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
    problems: Annotated[list[CampaignProblemIn], Field(max_length=MOST_PROBLEMS, default_factory=list)]
    ladders: Annotated[
        list[Annotated[str, Field(max_length=1_000, examples=["m=1..8192:x2 n=4096 k=4096 dtype=bf16"])]],
        Field(
            max_length=100,
            description="values per field, as lists or ranges a..b:xF or a..b:+S; a ladder means all combinations",
            default_factory=list,
        ),
    ]
    devices: Annotated[list[DeviceIn], Field(min_length=1, max_length=16)]
    budget: BudgetIn = BudgetIn()
    priority: Annotated[int, Field(ge=PRIORITIES.start, le=PRIORITIES.stop - 1)] = 0

    def request(self) -> CampaignRequest:
        """The tuner's value.

        Raises:
            ProblemError: a problem or a ladder is invalid.
        """
        problems = [from_fields(entry.model_dump(), f"problem {n}") for n, entry in enumerate(self.problems, 1)]
        for expression in self.ladders:
            problems += ladder(expression)
            if len(problems) > 10 * MOST_PROBLEMS:
                raise ProblemError(f"the ladders expand to more than {10 * MOST_PROBLEMS:,} problems: shorten them")
        devices = tuple((device.name, str(device.kind)) for device in self.devices)
        return CampaignRequest(self.name, distinct(problems), devices, self.budget.value(), self.priority)


class CampaignOut(BaseModel):
    """A campaign."""

    id: int
    name: str
    status: Literal["running", "paused", "cancelled", "finished"]
    stopped_because: str
    priority: int
    policy: str
    budget: dict[str, Any]
    created_at: datetime
    finished_at: datetime | None

    @classmethod
    def of(cls, campaign: Campaign) -> CampaignOut:
        """From the value."""
        return cls(**documents.campaign(campaign))


class CampaignsPage(BaseModel):
    """A page of campaigns, oldest first."""

    items: list[CampaignOut]
    next: str | None = Field(description="cursor of the next page; null on the last")


class ProgressOut(BaseModel):
    """A campaign's progress."""

    campaign: CampaignOut
    problems: dict[str, int] = Field(description="problems by status: waiting, open, done, parked, skipped")
    tried: int
    most_candidates: int
    failed: dict[str, int] = Field(description="failed candidates by outcome")
    gpu_seconds: float
    workers: int
    rounds_running: int
    candidates_a_second: float | None
    seconds_left: float | None

    @classmethod
    def of(cls, progress: Progress) -> ProgressOut:
        """From the value."""
        return cls(**documents.progress(progress))


class GainOut(BaseModel):
    """The gain over cuBLASLt's first choice; ratios are its time over ours."""

    problems: int
    geometric_mean: float
    faster: int
    tied: int
    slower: int
    least: float
    most: float


class SummaryOut(BaseModel):
    """A campaign's results so far."""

    progress: ProgressOut
    gain: GainOut | None
    failed: dict[str, int]
    parked: dict[str, int]

    @classmethod
    def of(cls, summary: Summary) -> SummaryOut:
        """From the value."""
        return cls(**documents.summary(summary))


class CampaignProblemOut(BaseModel):
    """One problem of a campaign on one device."""

    id: int
    problem: ProblemOut
    device: str
    device_kind: str
    status: Literal["waiting", "open", "done", "parked", "skipped"]
    reason: str
    attempts: int
    failing_config: str
    rounds: int
    tried: int
    failed: dict[str, int]
    gpu_seconds: float
    measurement_id: int | None
    config_key: str
    median_us: float | None
    tflops: float | None
    versus_cublaslt_first: dict[str, Any] | None
    versus_cublaslt_best: dict[str, Any] | None
    ended_at: datetime | None

    @classmethod
    def of(cls, entry: CampaignProblem) -> CampaignProblemOut:
        """From the value."""
        return cls(**documents.campaign_problem(entry))


class CampaignProblemsPage(BaseModel):
    """A page of a campaign's problems, in the order of its list."""

    items: list[CampaignProblemOut]
    next: str | None = Field(description="cursor of the next page; null on the last")


class WorkerOut(BaseModel):
    """A worker."""

    id: int
    name: str
    queue: str
    device: str
    device_kind: str
    device_uuid: str
    driver: str
    status: Literal["live", "draining", "gone"]
    gone_because: str
    registered_at: datetime
    beat_at: datetime
    rounds: int
    busy_seconds: float
    round_id: int | None

    @classmethod
    def of(cls, worker: Worker) -> WorkerOut:
        """From the value."""
        return cls(**documents.worker(worker))


class WorkersPage(BaseModel):
    """A page of workers, in order of registration."""

    items: list[WorkerOut]
    next: str | None = Field(description="cursor of the next page; null on the last")
