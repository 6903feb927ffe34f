"""GET /v1/best: the one question that the service exists for."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request

from api.auth import require
from api.problems import HttpProblem, responses
from api.schemas import BestOut, ProblemIn
from space.arch import H200
from tuner.answers import answer
from tuner.store.store import Store

router = APIRouter(tags=["best"], dependencies=[Depends(require("read"))])


class BestQuery(ProblemIn):
    """A problem, and the GPU that it is asked for."""

    device: str | None = None
    require: Literal["any", "measured"] = "any"


@router.get("/v1/best", operation_id="getBest", responses=responses(404))
def get_best(request: Request, query: Annotated[BestQuery, Query()]) -> BestOut:
    """The best known config for a problem on a device.

    An untuned shape is answered too: `source` says whether the config was `measured`, comes from the
    `nearest` measured shape, is `predicted`, or is the `default`. With `require=measured` only the first
    will do, and 404 otherwise.
    """
    store: Store = request.app.state.store
    found = answer(store, query.problem(), query.device or only_device(store))
    if query.require == "measured" and found.source != "measured":
        raise HttpProblem(
            404,
            "not-measured",
            f"{found.problem.shape} was not measured on {found.device}: run "
            f"`gemmtune tune {found.problem.shape}`, or leave out require=measured for a {found.source} answer",
        )
    return BestOut.of(found)


def only_device(store: Store) -> str:
    """The device that is meant when none is named: the only one known, or the H200 of an empty store.

    Raises:
        HttpProblem: 422, there are several.
    """
    names = sorted({name for name, _ in store.devices()})
    if len(names) > 1:
        raise HttpProblem(422, "device-needed", f"the store knows {', '.join(names)}: say which with device=…")
    return names[0] if names else H200.name
