"""/v1/builds: what workers compiled, for those that need the same."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from api.auth import Caller, require
from api.pages import PageQuery, page_of
from api.problems import HttpProblem, answer, responses
from api.schemas import PRINTABLE, Absent, Strict
from space.problem import Problem
from tuner.errors import BuildDiffers, BuildRefused
from tuner.fleet import builds
from tuner.fleet.builds import MOST_CUBIN_BYTES, Offer, SharedBuild

router = APIRouter(tags=["builds"])
Reader = Depends(require("read"))
Worker = Annotated[Caller, Depends(require("work"))]

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the source and what compiles it")]
DigestPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
ArchName = Annotated[str, Field(max_length=16, pattern=PRINTABLE, description="compile target with its suffix")]


class BuildIn(Strict):
    """A build as a worker offers it."""

    digest: Digest
    problem: Annotated[str, Field(max_length=200, pattern=PRINTABLE, description="key of a problem that needs it")]
    config: Annotated[str, Field(max_length=500, pattern=PRINTABLE, description="key of a config that needs it")]
    arch: ArchName
    nvrtc: Annotated[str, Field(max_length=16, pattern=r"^\d+\.\d+$", description="version that compiled it")]
    registers: Annotated[int, Field(ge=1, le=255, strict=True)]
    warnings: Annotated[list[Annotated[str, Field(max_length=500, pattern=PRINTABLE)]], Field(max_length=50)]
    seconds: Annotated[float, Field(ge=0, lt=3600)]
    cubin: Annotated[str, Field(max_length=MOST_CUBIN_BYTES * 4 // 3, pattern=r"^[A-Za-z0-9+/]*={0,2}$")]

    def offer(self) -> Offer:
        """The value.

        Raises:
            ProblemError: `problem` is no problem's key.
            BuildRefused: `cubin` is no base64.
        """
        try:
            cubin = base64.b64decode(self.cubin, validate=True)
        except binascii.Error as error:
            raise BuildRefused(f"cubin is no base64 ({error})") from error
        return Offer.of(
            Problem.from_key(self.problem), self.config, self.arch, self.digest, self.nvrtc, self.registers,
            self.warnings, self.seconds, cubin,
        )  # fmt: skip


class BuildOut(BaseModel):
    """A build that is kept, without its bytes."""

    digest: str
    arch: str
    nvrtc: str
    problem_key: str
    config_key: str
    registers: int
    warnings: list[str]
    seconds: float = Field(description="that compiling took")
    cubin_sha256: str
    offered_by: str = Field(description="name of the token")
    offered_at: datetime

    @classmethod
    def of(cls, build: SharedBuild) -> BuildOut:
        """From the value."""
        return cls.model_validate(build, from_attributes=True)


class CubinOut(BaseModel):
    """A build with its bytes."""

    build: BuildOut
    cubin: str = Field(description="base64")


class BuildsQuery(PageQuery):
    """Filters, all optional."""

    arch: ArchName | Absent = None


class BuildsPage(BaseModel):
    """A page, in the order in which builds were offered."""

    items: list[BuildOut]
    next: str | None = Field(description="cursor of the next page; null on the last")


def install(app: FastAPI) -> None:
    """Makes the refusals of builds problems."""

    @app.exception_handler(BuildRefused)
    async def refused(request: Request, error: BuildRefused) -> JSONResponse:
        if isinstance(error, BuildDiffers):
            return answer(request, 409, "build-differs", str(error))
        return answer(request, 422, "build-refused", str(error))


@router.get("/v1/builds", operation_id="listBuilds", dependencies=[Reader], responses=responses())
def list_builds(request: Request, response: Response, query: Annotated[BuildsQuery, Query()]) -> BuildsPage:
    """Builds that are kept. A cursor stays valid while new ones arrive."""
    filters = {"of": "builds", "arch": query.arch}
    rows = builds.page(request.app.state.store, query.after(filters), query.limit + 1, query.arch)
    page, following = page_of(request, response, rows, query.limit, filters)
    return BuildsPage(items=[BuildOut.of(row) for row in page], next=following)


@router.get("/v1/builds/{digest}", operation_id="getBuild", dependencies=[Reader], responses=responses(404))
def get_build(request: Request, digest: DigestPath) -> BuildOut:
    """One build."""
    found = builds.shared(request.app.state.store, digest)
    if found is None:
        raise _unknown(digest)
    return BuildOut.of(found[0])


@router.get("/v1/builds/{digest}/cubin", operation_id="getCubin", responses=responses(404))
def get_cubin(request: Request, digest: DigestPath, _: Worker) -> CubinOut:
    """One build with its program, for a worker."""
    found = builds.shared(request.app.state.store, digest)
    request.app.state.meters.build_asked(found is not None)
    if found is None:
        raise _unknown(digest)
    build, cubin = found
    return CubinOut(build=BuildOut.of(build), cubin=base64.b64encode(cubin).decode())


@router.post(
    "/v1/builds", operation_id="offerBuild", status_code=201,
    responses=responses(409) | {200: {"model": BuildOut, "description": "the very same was kept before"}},
)  # fmt: skip
def offer_build(body: BuildIn, request: Request, response: Response, caller: Worker) -> BuildOut:
    """Keeps a build, if it is what it says: the digest is that of the config's source, the config is legal, and the
    bytes are a program for the arch."""
    kept, new = builds.offer(request.app.state.store, body.offer(), caller.name)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/builds/{kept.digest}"
    return BuildOut.of(kept)


def _unknown(digest: str) -> HttpProblem:
    return HttpProblem(404, "unknown-build", f"no build {digest[:12]} is kept: compile it, and offer it")
