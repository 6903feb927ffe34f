"""/v1/builds: compiled kernels that workers share."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field

from api.auth import Caller, require
from api.derived import FromAttributes, fields_of
from api.http_errors import HttpError, responses
from api.json_bodies import JsonRoute
from api.pages import Page, PageQuery, page_of
from api.patterns import BASE64, DIGEST, PRINTABLE, VERSION
from api.schemas import Absent, Body
from space.arch import arch_named
from space.kind import problem_from_key
from tuner.cubins import MOST_CUBIN_BYTES
from tuner.errors import BuildRefused
from tuner.fleet import builds
from tuner.fleet.builds import Build, Offer, SharedBuild

router = APIRouter(tags=["builds"], route_class=JsonRoute)
Reader, Admin = Depends(require("read")), Depends(require("admin"))
Worker = Annotated[Caller, Depends(require("work"))]

Digest = Annotated[str, Field(pattern=DIGEST, description="SHA-256 of the source and the compiler")]
DigestPath = Annotated[str, Path(pattern=DIGEST)]
ArchName = Annotated[str, Field(max_length=16, pattern=PRINTABLE, description="compile target with its suffix")]


class BuildIn(Body):
    """A build that a worker offers."""

    digest: Digest
    problem: Annotated[str, Field(max_length=200, pattern=PRINTABLE, description="key of a problem that uses it")]
    config: Annotated[str, Field(max_length=500, pattern=PRINTABLE, description="key of a config that uses it")]
    arch: ArchName
    nvrtc: Annotated[str, Field(max_length=16, pattern=VERSION, description="version that compiled it")]
    registers: Annotated[int, Field(ge=1, le=255)]
    warnings: Annotated[list[Annotated[str, Field(max_length=500, pattern=PRINTABLE)]], Field(max_length=50)]
    seconds: Annotated[float, Field(ge=0, lt=3600)]
    cubin: Annotated[str, Field(max_length=MOST_CUBIN_BYTES * 4 // 3, pattern=BASE64)]

    def offer(self) -> Offer:
        """The tuner's value.

        Raises:
            ProblemError: `problem` is not a problem key.
            BuildRefused: `cubin` is not base64.
        """
        try:
            cubin = base64.b64decode(self.cubin, validate=True)
        except binascii.Error as error:
            raise BuildRefused(f"cubin is not base64 ({error})") from error
        build = Build(self.digest, cubin, self.registers, tuple(self.warnings), self.nvrtc, self.seconds)
        return Offer(problem_from_key(self.problem), self.config, self.arch, build)


@fields_of(
    SharedBuild, id=None, seconds=Annotated[float, Field(description="compile time")],
    offered_by=Annotated[str, Field(description="name of the worker's token")],
)  # fmt: skip
class BuildOut(FromAttributes):
    """A stored build without its cubin."""


class CubinOut(BaseModel):
    """A build with its cubin."""

    build: BuildOut
    cubin: str = Field(description="base64")


class BuildsQuery(PageQuery):
    """Filters, all optional."""

    arch: ArchName | Absent = None


class BuildsPage(Page[BuildOut]):
    """A page of builds, in the order in which they were offered."""


@router.get(
    "/v1/builds", operation_id="listBuilds", dependencies=[Reader], response_model=BuildsPage, responses=responses()
)
def list_builds(request: Request, response: Response, query: Annotated[BuildsQuery, Query()]) -> dict[str, object]:
    """Stored builds. A cursor stays valid while new builds arrive."""
    filters = {"of": "builds", "arch": query.arch}
    place = query.place(request.app.state.store, filters)
    rows = builds.page(request.app.state.store, place.after, query.limit + 1, query.arch)
    if not rows and query.arch is not None:
        arch_named(query.arch)
    items, following = page_of(request, response, rows, query.limit, place)
    return {"items": items, "next": following}


@router.get(
    "/v1/builds/{digest}", operation_id="getBuild", dependencies=[Reader], response_model=BuildOut,
    responses=responses(404),
)  # fmt: skip
def get_build(request: Request, digest: DigestPath) -> SharedBuild:
    """One build."""
    found = builds.shared(request.app.state.store, digest)
    if found is None:
        raise _unknown(digest)
    return found[0]


@router.get(
    "/v1/builds/{digest}/cubin", operation_id="getCubin", response_model=CubinOut, responses=responses(404)
)  # fmt: skip
def get_cubin(request: Request, digest: DigestPath, _: Worker) -> dict[str, object]:
    """One build with its cubin, for a worker."""
    found = builds.shared(request.app.state.store, digest)
    request.app.state.metrics.build_asked(found is not None)
    if found is None:
        raise _unknown(digest)
    build, cubin = found
    return {"build": build, "cubin": base64.b64encode(cubin).decode()}


@router.post(
    "/v1/builds", operation_id="offerBuild", status_code=201, response_model=BuildOut,
    responses=responses(409) | {200: {"model": BuildOut, "description": "the same build was already stored"}},
)  # fmt: skip
def offer_build(body: BuildIn, request: Request, response: Response, caller: Worker) -> SharedBuild:
    """Stores a build after checking it: the digest matches the config's source, the config is legal, and the cubin is a
    program for the arch."""
    kept, new = builds.offer(request.app.state.store, body.offer(), caller.name)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/builds/{kept.digest}"
    return kept


@router.delete(
    "/v1/builds/{digest}", operation_id="removeBuild", status_code=204, dependencies=[Admin], responses=responses(404)
)  # fmt: skip
def remove_build(digest: DigestPath, request: Request) -> None:
    """Deletes a build, such as a damaged or forged one. Another worker may then offer the right one."""
    if not builds.remove(request.app.state.store, digest):
        raise _unknown(digest)


def _unknown(digest: str) -> HttpError:
    return HttpError(404, "unknown-build", f"build {digest[:12]} is not stored: compile it and offer it")
