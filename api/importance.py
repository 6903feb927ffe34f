"""GET /v1/importance: why a config won, from the measurements in the store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from api.answer_service import AnswerService
from api.auth import require
from api.http_errors import HttpError, responses
from api.problem_schemas import Absent, ProblemOut, ProblemQuery
from api.schemas import ConfigOut, DeviceName
from tuner.answering.importance import Why, why
from tuner.errors import NothingMeasured
from tuner.evidence.store import Store
from tuner.prediction.files import model_for

router = APIRouter(tags=["explain"], dependencies=[Depends(require("read"))])


class ImportanceQuery(ProblemQuery):
    """A problem and the GPU model on which it was tuned."""

    device: DeviceName | Absent = None


class KnobImportanceOut(BaseModel):
    """The importance of one knob."""

    knob: str
    share: float = Field(description="share of the importance of all knobs, which add up to 1")
    cost: float | None = Field(description="fastest time with any other value of this knob, over the winner's")


class ChangeOut(BaseModel):
    """The winner with one knob changed."""

    knob: str
    value: int | str
    source: Literal["measured", "expected", "illegal"]
    time_us: float | None
    ratio: float | None = Field(description="its time over the winner's")
    low: float | None
    high: float | None


class RunnerUpOut(BaseModel):
    """The fastest candidate with another kernel structure."""

    config: ConfigOut
    time_us: float
    ratio: float


class ImportanceOut(BaseModel):
    """Why a config won."""

    problem: ProblemOut
    device: str
    winner: ConfigOut
    time_us: float
    measured: int = Field(description="correct candidates in the study")
    importances: list[KnobImportanceOut]
    changes: list[ChangeOut]
    runners_up: list[RunnerUpOut]

    @classmethod
    def of(cls, found: Why) -> ImportanceOut:
        """From the value."""
        return cls(
            problem=ProblemOut.of(found.problem), device=found.device, winner=ConfigOut.of(found.winner),
            time_us=found.time_us, measured=found.measured,
            importances=[KnobImportanceOut(**asdict(each)) for each in found.importances],
            changes=[ChangeOut(**asdict(each)) for each in found.changes],
            runners_up=[
                RunnerUpOut(config=ConfigOut.of(each.config), time_us=each.time_us, ratio=each.ratio)
                for each in found.runners_up
            ],
        )  # fmt: skip


@router.get("/v1/importance", operation_id="getImportance", responses=responses(404))
def get_importance(request: Request, query: Annotated[ImportanceQuery, Query()]) -> ImportanceOut:
    """The knobs that decided a tuned problem, the cost of each single change of the winner, and the runners-up."""
    store: Store = request.app.state.store
    answer_service: AnswerService = request.app.state.answer_service
    device = answer_service.device(query.device)
    models: Path | None = answer_service.models
    try:
        return ImportanceOut.of(why(store, query.problem(), device, model=model_for(device, models).model))
    except NothingMeasured as error:
        raise HttpError(404, "not-measured", str(error)) from error
