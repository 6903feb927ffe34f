"""GET /v1/rules, /v1/space and /v1/funnel: which configs there are, and which rule removes the others."""

from __future__ import annotations

from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field, model_validator

from api.auth import require
from api.clients import watched
from api.derived import FromAttributes, fields_of
from api.encoding import NOT_MODIFIED
from api.http_errors import HttpError, responses
from api.patterns import PRINTABLE
from api.problem_schemas import Absent, ProblemOut, ProblemQuery
from api.schemas import DeviceName, Strict
from api.thread_routes import ThreadRoute
from api.views.kept import Views, ViewsDependency
from space.devices import profile_named
from tuner.views import funnel, spaces
from tuner.views.cells import Cells
from tuner.views.funnel import Funnel, Step
from tuner.views.spaces import FamilySpace, KnobFacts, Removed, RuleFacts, SpaceFacts

router = APIRouter(tags=["views"], dependencies=[Depends(require("read"))], route_class=ThreadRoute)
Word = Annotated[str, Field(min_length=1, max_length=60, pattern=PRINTABLE)]


class RulesQuery(Strict):
    """A kernel family; all by default."""

    family: Word | Absent = None


@fields_of(RuleFacts, reads=list[str])
class RuleOut(FromAttributes):
    """A rule: its sentence, its source, and the knobs and derived values that it reads."""


class RulesOut(FromAttributes):
    """Rules of the families."""

    items: list[RuleOut]


class SpaceQuery(ProblemQuery):
    """A problem on a device, and two knobs."""

    device: DeviceName | Absent = None
    family: Word | Absent = None
    legal: Annotated[bool, Field(description="also count what is legal but not worth trying: takes seconds")] = False
    x: Annotated[Word | Absent, Field(description="a knob; needs y")] = None
    y: Annotated[Word | Absent, Field(description="another knob; needs x")] = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.x is None) != (self.y is None):
            raise ValueError("x and y belong together: give two knobs, or neither")
        return self


@fields_of(Removed)
class RemovedOut(FromAttributes):
    """Configs that a rule is the first to remove."""


@fields_of(KnobFacts, values=list[int | str])
class KnobOut(FromAttributes):
    """A knob and its values."""


@fields_of(FamilySpace, removed=list[RemovedOut], legal_removed=list[RemovedOut] | None, knobs=list[KnobOut])
class FamilySpaceOut(FromAttributes):
    """The space of one family."""


@fields_of(Cells, x_values=list[int | str], y_values=list[int | str])
class CellsOut(FromAttributes):
    """A space over two knobs: in each table a row for each value of y, an entry for each of x."""


@fields_of(SpaceFacts, problem=ProblemOut, families=list[FamilySpaceOut], cells=CellsOut | None)
class SpaceOut(FromAttributes):
    """The space of a problem on a device."""


class FunnelQuery(ProblemQuery):
    """A problem on a device."""

    device: DeviceName | Absent = None
    legal: Annotated[bool, Field(description="count the legal configs too: takes seconds the first time")] = False


@fields_of(Step)
class StepOut(FromAttributes):
    """One step: how many configs are left."""


@fields_of(Funnel, problem=ProblemOut, steps=list[StepOut])
class FunnelOut(FromAttributes):
    """The steps from all configs to the served one."""


@router.get("/v1/rules", operation_id="listRules", response_model=RulesOut, responses={**responses(), **NOT_MODIFIED})
async def list_rules(request: Request, query: Annotated[RulesQuery, Query()], views: ViewsDependency) -> Response:
    """Every rule, in the order in which its family lists them."""
    return await views.keep(request, ("rules", query.family), lambda: {"items": spaces.rules(query.family)})


@router.get("/v1/rules/{rule}", operation_id="getRule", response_model=RuleOut, responses=responses(404))
def get_rule(
    rule: Annotated[str, Path(min_length=1, max_length=100, pattern=PRINTABLE)], query: Annotated[RulesQuery, Query()]
) -> RuleFacts:
    """One rule; the first of that id if several families have one."""
    known = spaces.rules(query.family)
    for found in known:
        if found.id == rule:
            return found
    near = spaces.rule_near(rule, known)
    detail = f"no family has a rule {rule!r}: " + (f"the nearest is {near}" if near else "/v1/rules lists all")
    raise HttpError(404, "unknown-rule", detail)


@router.get("/v1/space", operation_id="getSpace", response_model=SpaceOut, responses={**responses(), **NOT_MODIFIED})
async def get_space(request: Request, query: Annotated[SpaceQuery, Query()], views: ViewsDependency) -> Response:
    """How many configs a problem has, what each rule removes, and the cells over two knobs."""
    device = profile_named(await views.device(request, query.device))
    problem = query.problem()
    families = spaces.own_families(problem, device, query.family)
    counts = await _legal(request, views, query, device.name) if query.legal else None
    asked = ("space", problem.key, device.name, query.family, query.x, query.y, query.legal)
    return await views.keep(
        request, asked, lambda: spaces.space_of(problem, device, families, query.x, query.y, counts),
        schema=SpaceOut, slow=True,
    )  # fmt: skip


@router.get("/v1/funnel", operation_id="getFunnel", response_model=FunnelOut, responses=responses())
async def get_funnel(request: Request, query: Annotated[FunnelQuery, Query()], views: ViewsDependency) -> Funnel:
    """The steps from all configs of a problem to one: legal, worth trying, measured, in the finals, served."""
    device = profile_named(await views.device(request, query.device))
    problem = query.problem()
    families = spaces.own_families(problem, device, None)
    legal = await _legal(request, views, query, device.name) if query.legal else None
    asked = (problem.key, device.name, query.legal)
    counts = views.funnels.get(asked)
    if counts is None:
        counts = await views.run_slow(request, lambda: funnel.counts_of(problem, device, families, legal))
        views.funnels[asked] = counts
        while len(views.funnels) > MOST_COUNTED:
            del views.funnels[next(iter(views.funnels))]
    return await views.run(lambda: funnel.funnel(views.store, problem, device, counts))


async def _legal(request: Request, views: Views, query: SpaceQuery | FunnelQuery, device: str) -> dict[str, Any]:
    """The number of legal configs, counted by another process, one at a time, callers in turn."""
    problem, family = query.problem(), getattr(query, "family", None)
    asked = (problem.key, device, family)
    if asked not in views.counted:
        async with watched(request) as wanted:
            found = await views.counts.run(
                request.state.who, lambda: views.counted.get(asked) or spaces.legal_counts(problem, device, family),
                wanted,
            )  # fmt: skip
        views.counted[asked] = found
        while len(views.counted) > MOST_COUNTED:
            del views.counted[next(iter(views.counted))]
    return views.counted[asked]


#: Counts of legal configs in memory.
MOST_COUNTED = 1_000
