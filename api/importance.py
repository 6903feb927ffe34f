"""GET /v1/importance: why a config won, from the measurements in the store."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api.answer_service import AnswerService
from api.auth import require
from api.derived import FromAttributes, fields_of
from api.encoding import NOT_MODIFIED
from api.http_errors import responses
from api.problem_schemas import Absent, ProblemOut, ProblemQuery
from api.schemas import ConfigOut, DeviceName
from api.views.kept import ViewsDependency
from tuner.answering.importance import RunnerUp, Why, why
from tuner.views import versions

router = APIRouter(tags=["explain"], dependencies=[Depends(require("read"))])


class ImportanceQuery(ProblemQuery):
    """A problem and the GPU model on which it was tuned."""

    device: DeviceName | Absent = None


@fields_of(RunnerUp, config=ConfigOut)
class RunnerUpOut(FromAttributes):
    """The fastest candidate with another kernel structure."""


@fields_of(
    Why,
    problem=ProblemOut,
    winner=ConfigOut,
    runners_up=list[RunnerUpOut],
    served=Annotated[bool, Field(description="whether the winner is what /v1/best answers")],
    time_us=Annotated[float, Field(description="on the scale of the screening, like every other time here")],
)
class ImportanceOut(BaseModel):
    """Why a config won."""


@router.get(
    "/v1/importance", operation_id="getImportance", response_model=ImportanceOut,
    responses={**responses(404), **NOT_MODIFIED},
)  # fmt: skip
async def get_importance(
    request: Request, query: Annotated[ImportanceQuery, Query()], views: ViewsDependency
) -> Response:
    """The knobs that decided a tuned problem, the cost of each single change of the winner, and the runners-up."""
    answer_service: AnswerService = request.app.state.answer_service
    device, problem = await views.device(request, query.device), query.problem()
    model = partial(answer_service.model_of, device)
    return await views.keep(
        request, ("importance", problem.key, device),
        lambda: why(views.store, problem, device, model=model().model),
        version=lambda: (versions.of_problem(views.store, problem.key, device), model().version),
        schema=ImportanceOut,
    )  # fmt: skip
