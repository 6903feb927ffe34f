"""GET /v1/ladder and /v1/weights: the best configs of one weight at every M, and the weights that were measured."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from api.answer_service import AnswerService
from api.auth import require
from api.derived import FromAttributes, fields_of
from api.encoding import NOT_MODIFIED
from api.http_errors import responses
from api.patterns import COUNTS
from api.problem_schemas import DIGITS, Absent, ProblemQuery
from api.schemas import ConfigOut, DeviceName, Strict
from api.views.kept import ViewsDependency
from tuner.answering.ladder import MOST_MS, MS, problems
from tuner.evidence.known_devices import check_known
from tuner.views.bests import Weight
from tuner.views.ladder import CliffFacts, Ladder, RungFacts, ladder

router = APIRouter(tags=["views"], dependencies=[Depends(require("read"))])
#: Weights that are listed.
MOST_WEIGHTS = 1_000


class LadderQuery(ProblemQuery):
    """A weight, as the problem at any M, and the values of M."""

    m: Annotated[int, Field(ge=1, lt=2**31, description="any valid M; the ladder uses its own values"), DIGITS] = 1
    device: DeviceName | Absent = None
    ms: (
        Annotated[
            str,
            # An M has ten digits at most.
            Field(max_length=11 * MOST_MS, pattern=COUNTS, description="values of M, as in 1,16,4096"),
        ]
        | Absent
    ) = None

    def given(self) -> dict[str, Any]:
        """The given fields, with an M."""
        return super().given() | {"m": self.m}


@fields_of(RungFacts, config=ConfigOut | None)
class RungOut(FromAttributes):
    """The answer for one M."""


@fields_of(CliffFacts, again=list[ConfigOut])
class CliffOut(FromAttributes):
    """Two rungs that can't both be right."""


@fields_of(Ladder, rungs=list[RungOut], cliffs=list[CliffOut], varied=list[str])
class LadderOut(FromAttributes):
    """A weight at every M, and where its times contradict each other."""


class WeightsQuery(Strict):
    """A device."""

    device: DeviceName


@fields_of(Weight)
class WeightOut(FromAttributes):
    """A weight that was measured at one M or more."""


class WeightsOut(FromAttributes):
    """Weights, those with most measured M first."""

    items: list[WeightOut]


@router.get(
    "/v1/ladder", operation_id="getLadder", response_model=LadderOut, responses={**responses(), **NOT_MODIFIED}
)  # fmt: skip
async def get_ladder(request: Request, query: Annotated[LadderQuery, Query()], views: ViewsDependency) -> Response:
    """The best known config of one weight at every M. Measured times that contradict each other are cliffs."""
    answer_service: AnswerService = request.app.state.answer_service
    ms = [int(part) for part in query.ms.split(",")] if query.ms else MS
    device, problem = await views.device(request, query.device), query.problem()
    bests, model = answer_service.snapshot, partial(answer_service.model_of, device)
    return await views.keep(
        request, ("ladder", problem.key, device, tuple(ms)),
        lambda: ladder(bests, problem, device, ms, model().model, answer_service.recordings),
        version=lambda: (
            bests.version_of(device), model().version, [bests.wrong(rung, device) for rung in problems(problem, ms)],
        ),
        schema=LadderOut, slow=True,
    )  # fmt: skip


@router.get(
    "/v1/weights", operation_id="listWeights", response_model=WeightsOut, responses={**responses(), **NOT_MODIFIED}
)  # fmt: skip
async def list_weights(request: Request, query: Annotated[WeightsQuery, Query()], views: ViewsDependency) -> Response:
    """Weights that were measured on a device, those with most values of M first: what a ladder can be asked for."""
    bests = views.best_columns.of

    def found() -> dict[str, Any]:
        items = bests(query.device).weights(MOST_WEIGHTS)
        if not items:
            check_known(views.store, query.device)
        return {"items": items}

    return await views.keep(
        request, ("weights", query.device), found, version=lambda: bests(query.device).state
    )  # fmt: skip
