"""Request and response schemas of campaigns and workers, and their conversion from and to the tuner's values."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, Field

from api.derived import fields_of
from api.pages import Page
from api.patterns import PRINTABLE, WITHOUT_NUL
from api.problem_schemas import ProblemIn, ProblemOut
from api.schemas import Body, Part
from space.devices import identity_named
from space.errors import ProblemError
from space.problem import Problem
from tuner.fleet.campaigns.documents import document
from tuner.fleet.campaigns.gain import Gain, Won
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
from tuner.tables.problems import MOST_COUNT, MOST_PROBLEMS, distinct, from_fields, ladder

Text = Annotated[str, Field(max_length=4_000, pattern=WITHOUT_NUL)]


class DeviceIn(Part):
    """A GPU model whose workers run the campaign's rounds."""

    name: Annotated[str, Field(min_length=1, max_length=80, pattern=PRINTABLE), AfterValidator(identity_named)]
    kind: Literal["cuda", "recorded"] = "cuda"


class BudgetIn(Part):
    """When the campaign stops; see docs/fleet.md."""

    candidates: Annotated[int, Field(ge=1, le=100_000, description="most candidates to screen per problem")] = 96
    rounds: Annotated[int, Field(ge=5, le=1_000, description="fewest turns that the finalists take")] = 30
    target: Annotated[float, Field(gt=0, le=1, description="share of the roofline bound that is enough")] | None = None
    gpu_seconds: Annotated[float, Field(gt=0, le=1e9, description="GPU time of all workers together")] | None = None

    def value(self) -> CampaignBudget:
        """The tuner's value."""
        return CampaignBudget(**self.model_dump())


class CountedProblemIn(ProblemIn):
    """A problem, and how often it runs in the program that is tuned."""

    count: Annotated[int, Field(ge=1, le=MOST_COUNT, description="runs; the largest expected savings go first")] = 1


class CampaignIn(Body):
    """A campaign to create, with problems listed one by one, as ladders, or both."""

    name: Annotated[str, Field(min_length=1, max_length=MOST_NAME, pattern=PRINTABLE)]
    problems: Annotated[list[CountedProblemIn], Field(max_length=MOST_PROBLEMS, default_factory=list)]
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
        listed = [entry.given() | {"kind": entry.kind} for entry in self.problems]
        problems = [from_fields(entry, f"problem {n}") for n, entry in enumerate(listed, 1)]
        counts: Counter[Problem] = Counter()
        for problem, entry in zip(problems, self.problems, strict=True):
            counts[problem] += entry.count
        for expression in self.ladders:
            problems += ladder(expression)
            if len(problems) > 10 * MOST_PROBLEMS:
                raise ProblemError(f"the ladders expand to more than {10 * MOST_PROBLEMS:,} problems: shorten them")
        devices = tuple((device.name, str(device.kind)) for device in self.devices)
        found, budget = distinct(problems), self.budget.value()
        counted = any(count > 1 for count in counts.values())
        runs = tuple(counts[problem] or 1 for problem in found) if counted else ()
        return CampaignRequest(self.name, found, devices, budget, self.priority, runs)


class RecordOut(BaseModel):
    """A record of the tuner as JSON."""

    @classmethod
    def of(cls, value: object) -> Self:
        return cls.model_validate(document(value))


@fields_of(Campaign, status=Literal["running", "paused", "cancelled", "finished"], budget=dict[str, Any])
class CampaignOut(RecordOut):
    """A campaign."""


class CampaignsPage(Page[CampaignOut]):
    """A page of campaigns, oldest first."""


@fields_of(
    Progress,
    campaign=CampaignOut,
    problems=Annotated[dict[str, int], Field(description="problems by status: waiting, open, done, parked, skipped")],
    failed=Annotated[dict[str, int], Field(description="failed candidates by outcome")],
)
class ProgressOut(RecordOut):
    """A campaign's progress."""


@fields_of(Gain)
class GainOut(BaseModel):
    """The gain over cuBLASLt's first choice; ratios are its time over ours."""


@fields_of(Won)
class WonOut(BaseModel):
    """Share of a program's GEMM time that tuning won, each problem as often as it runs."""


@fields_of(Summary, progress=ProgressOut, gain=GainOut | None, won=WonOut | None)
class SummaryOut(RecordOut):
    """A campaign's results so far."""


@fields_of(
    CampaignProblem, campaign_id=None, problem=ProblemOut,
    status=Literal["waiting", "open", "done", "parked", "skipped"], tflops=float | None,
    versus_first=None, versus_best=None,
    versus_cublaslt_first=dict[str, Any] | None, versus_cublaslt_best=dict[str, Any] | None,
)  # fmt: skip
class CampaignProblemOut(RecordOut):
    """One problem of a campaign on one device."""


class CampaignProblemsPage(Page[CampaignProblemOut]):
    """A page of a campaign's problems, in the order of its list."""


@fields_of(Worker)
class WorkerOut(RecordOut):
    """A worker."""


class WorkersPage(Page[WorkerOut]):
    """A page of workers, in order of registration."""
