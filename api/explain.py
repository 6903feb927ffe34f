"""POST /v1/explain: whether a config is legal, and every rule that it breaks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, BeforeValidator, Field

from api.auth import require
from api.derived import fields_of
from api.http_errors import responses
from api.json_bodies import JsonRoute
from api.problem_schemas import ProblemIn, ProblemOut
from api.schemas import Body, ConfigOut
from space.arch import arch_named
from space.config import Config
from space.devices import DEFAULT_DEVICE, DeviceProfile, profile_named, reference_profile
from space.explain import Explanation, config_asked, explain
from space.family import family_named, family_with
from space.plug import Family
from space.problem import Problem

router = APIRouter(tags=["explain"], dependencies=[Depends(require("read"))], route_class=JsonRoute)


class ExplainIn(Body):
    """A config and its problem."""

    problem: ProblemIn
    knobs: dict[str, int | str] = Field(
        default_factory=dict,
        description="knobs not named take their defaults; without any, the legal config nearest to the defaults",
    )
    family: str | None = Field(default=None, description="default: the arch's family with these knobs")
    device: str | None = Field(default=None, description="device whose limits apply; default: the arch's reference")
    arch: str = profile_named(DEFAULT_DEVICE).arch.name

    def asked(self) -> tuple[Family, Problem, Config, DeviceProfile]:
        """What `explain` takes.

        Raises:
            SpaceError: an unknown device, arch, family or knob, or a malformed problem.
        """
        device = reference_profile(arch_named(self.arch).name) if self.device is None else profile_named(self.device)
        problem = self.problem.problem()
        knobs = self.knobs
        family = family_with(device.arch.name, knobs, problem) if self.family is None else family_named(self.family)
        return family, problem, config_asked(family, problem, knobs, device), device


@fields_of(
    Explanation, problem=ProblemOut, config=ConfigOut, nearest=ConfigOut | None, legal=bool, judged=bool,
    change=Annotated[str | None, BeforeValidator(lambda change: change or None)],
)  # fmt: skip
class ExplanationOut(BaseModel):
    """The result of checking a config against every rule."""


@router.post(
    "/v1/explain", operation_id="explainConfig", response_model=ExplanationOut, responses=responses()
)  # fmt: skip
def explain_config(body: ExplainIn) -> Explanation:
    """Checks a config against the rules. An illegal config answers `legal: false`; a malformed one is an error.

    `judged: false` says that the family has no rules: its library alone knows what is legal.
    """
    return explain(*body.asked())
