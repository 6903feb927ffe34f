"""GET /v1/studies: the runs in which problems were tuned, their finals, and what further search would bring."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from api.answer_service import AnswerService
from api.auth import require
from api.derived import FromAttributes, fields_of
from api.encoding import NOT_MODIFIED
from api.http_errors import responses
from api.pages import Page, PageQuery, page_of
from api.problem_schemas import ProblemOut
from api.schemas import Absent, ConfigOut, DeviceName, NumberPath, ProblemKey
from api.thread_routes import ThreadRoute
from api.views.kept import ViewsDependency
from space.kind import problem_from_key
from tuner.evidence.known_devices import check_known
from tuner.evidence.records import Clocks, Provenance
from tuner.prediction.files import Choice
from tuner.views import studies, versions
from tuner.views.outlook import StudyOutlook, outlook
from tuner.views.studies import Final, Pick, StudyFacts, StudyInFull

router = APIRouter(tags=["views"], dependencies=[Depends(require("read"))], route_class=ThreadRoute)


class StudiesQuery(PageQuery):
    """Filters, all optional."""

    problem: ProblemKey | Absent = None
    device: DeviceName | Absent = None


@fields_of(
    StudyFacts, problem=ProblemOut, status=Literal["running", "finished"],
    failed=Annotated[dict[str, int], Field(description="screened candidates that were not correct, by outcome")],
    best_us=Annotated[float | None, Field(description="the fastest correct screening")],
)  # fmt: skip
class StudyOut(FromAttributes):
    """A study in short."""


class StudiesPage(Page[StudyOut]):
    """A page of studies, newest first."""


@fields_of(
    Final,
    config=ConfigOut,
    clocks=Clocks | None,
    behind=Annotated[float | None, Field(description="share by which it is slower than the fastest, turn by turn")],
)
class FinalOut(FromAttributes):
    """One measurement of the last finals."""


@fields_of(Pick)
class PickOut(FromAttributes):
    """The winner under one policy, and the rule that picked it."""


@fields_of(
    StudyInFull, study=StudyOut, finals=list[FinalOut], picks=list[PickOut], provenance=Provenance | None
)  # fmt: skip
class StudyInFullOut(FromAttributes):
    """A study with its last finals."""


@fields_of(StudyOutlook)
class StudyOutlookOut(FromAttributes):
    """What trying more candidates is still expected to gain."""


@router.get("/v1/studies", operation_id="listStudies", response_model=StudiesPage, responses=responses())
def list_studies(
    request: Request, response: Response, query: Annotated[StudiesQuery, Query()], views: ViewsDependency
) -> dict[str, object]:
    """Studies of a problem, of a device, or all of them, newest first."""
    problem = problem_from_key(query.problem) if query.problem else None
    filters = {"of": "studies", "problem": query.problem, "device": query.device}
    place = query.place(views.store, filters)
    rows = studies.page(views.store, problem, query.device, place.after, query.limit + 1)
    if not rows:
        check_known(views.store, query.device)
    items, following = page_of(request, response, rows, query.limit, place)
    return {"items": items, "next": following}


@router.get(
    "/v1/studies/{study_id:int}", operation_id="getStudy", response_model=StudyInFullOut,
    responses={**responses(404), **NOT_MODIFIED},
)  # fmt: skip
async def get_study(request: Request, study_id: NumberPath, views: ViewsDependency) -> Response:
    """One study with every sample of its last finals, the tie bands, and the rule that picked each winner."""
    return await views.keep(
        request, ("study", study_id), lambda: studies.in_full(views.store, study_id),
        version=lambda: versions.of_study(views.store, study_id), schema=StudyInFullOut,
    )  # fmt: skip


@router.get(
    "/v1/studies/{study_id:int}/outlook", operation_id="getStudyOutlook", response_model=StudyOutlookOut,
    responses={**responses(404), **NOT_MODIFIED},
)  # fmt: skip
async def get_study_outlook(request: Request, study_id: NumberPath, views: ViewsDependency) -> Response:
    """The chance that an untried candidate is faster, and what trying all of them is expected to gain."""

    answer_service: AnswerService = request.app.state.answer_service

    def model() -> Choice:
        return answer_service.model_of(studies.in_short(views.store, study_id).device)

    return await views.keep(
        request, ("outlook", study_id), lambda: asdict(outlook(views.store, study_id, model().model)),
        version=lambda: (versions.of_study(views.store, study_id), model().version), slow=True,
    )  # fmt: skip
