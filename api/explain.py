"""POST /v1/explain: whether a config is legal, and every rule that it breaks."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import Field

from api.auth import require
from api.http_errors import responses
from api.schemas import ExplanationOut, ProblemIn, Strict
from space.arch import arch_named
from space.explain import explain
from space.family import family_named, family_with

router = APIRouter(tags=["explain"], dependencies=[Depends(require("read"))])


class ExplainIn(Strict):
    """A config and its problem."""

    problem: ProblemIn
    knobs: dict[str, int | str] = Field(default_factory=dict, description="missing knobs take their defaults")
    family: str | None = Field(default=None, description="by default, the arch's family that has these knobs")
    arch: str = "sm_90a"


@router.post("/v1/explain", operation_id="explainConfig", responses=responses(413))
def explain_config(body: ExplainIn) -> ExplanationOut:
    """Checks a config against the rules. An illegal config gives `legal: false`; only a malformed one is an error."""
    arch = arch_named(body.arch)
    family = family_named(body.family) if body.family else family_with(body.arch, body.knobs)
    return ExplanationOut.of(explain(family, body.problem.problem(), family.config(body.knobs), arch))
