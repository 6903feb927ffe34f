"""GET /: devices, bests with their evidence, campaigns, and a form that asks for a best config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import Field

from api.auth import Caller, TokenCache
from api.dashboard import views
from api.http_errors import HttpError
from api.schemas import PRINTABLE, Strict
from space.registry import DEFAULT_KIND, KINDS
from tuner.errors import StoreError
from tuner.evidence.tokens import Scope
from tuner.fleet.campaigns.results import newest
from tuner.fleet.campaigns.statistics import fleet_statistics

_FOLDER: Final = Path(__file__).parent
_STYLE: Final = (_FOLDER / "style.css").read_text()
#: Allows no scripts, only our own style sheet, and forms only to this service.
_POLICY: Final = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_templates = Environment(
    loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_REFRESH_SECONDS: Final = 5
_CAMPAIGNS: Final = 10
#: The form's choices.
_CHOICES: Final = {f"{field.name}s": field.choices for field in KINDS[DEFAULT_KIND].fields if field.choices}

router = APIRouter(include_in_schema=False)


class PageQuery(Strict):
    """Selects the device, the bests and the question. A form sends empty strings for empty fields."""

    device: Annotated[str, Field(max_length=100, pattern=PRINTABLE)] = ""
    find: Annotated[str, Field(max_length=100, pattern=PRINTABLE)] = ""
    cursor: Annotated[str | None, Field(max_length=2000)] = None
    m: Annotated[str, Field(max_length=12)] = ""
    n: Annotated[str, Field(max_length=12)] = ""
    k: Annotated[str, Field(max_length=12)] = ""
    dtype: Annotated[str, Field(max_length=60)] = "bf16"
    layout: Annotated[str, Field(max_length=2)] = "nt"

    def question(self) -> dict[str, str]:
        """The problem's fields as typed; empty without a shape."""
        return self.model_dump(include={"m", "n", "k", "dtype", "layout"}) if self.m or self.n or self.k else {}


async def reader(
    request: Request, given: Annotated[HTTPBasicCredentials | None, Depends(HTTPBasic(auto_error=False))]
) -> Caller:
    """The caller of the page: a browser asks for a name and a password, and the password is a token.

    Only pages accept a password: a browser sends it automatically, so it must not authorize any change.
    """
    token_cache: TokenCache = request.app.state.token_cache
    found: Caller | HttpError = request.state.caller
    if isinstance(found, HttpError) and given:
        found = token_cache.caller(b"Bearer " + given.password.encode())
    if isinstance(found, HttpError) or not found.may(Scope.READ):
        detail = "the page needs a token with scope read: enter it as the password, with any name"
        raise HttpError(401, "token-needed", detail, {"WWW-Authenticate": 'Basic realm="gemmtune", charset="UTF-8"'})
    return found


@router.get("/")
def get_page(
    request: Request, query: Annotated[PageQuery, Query()], caller: Annotated[Caller, Depends(reader)]
) -> HTMLResponse:
    """The page."""
    state = request.app.state
    snapshot = state.answer_service.snapshot
    device = query.device or next(iter(snapshot.devices), "")
    asked, asked_device = query.question(), device or state.answer_service.device(None)
    answer, wrong = views.answer(state.answer_service, asked, asked_device) if asked else (None, "")
    fleet = ""
    try:
        devices, campaigns = views.devices(snapshot, fleet_statistics(state.store)), newest(state.store, _CAMPAIGNS)
    except StoreError as error:
        devices, campaigns, fleet = [], [], str(error)
    running = any(item.campaign.status == "running" for item in campaigns)
    html = _templates.get_template("page.html").render(
        caller=caller, age=state.follower.age_seconds(), wrong=fleet, devices=devices, campaigns=campaigns,
        question=query, asked_device=asked_device, answer=answer, wrong_question=wrong, find=query.find,
        bests=views.bests(snapshot, device, query.find, query.cursor),
        refresh=_REFRESH_SECONDS if running and not asked else None, **_CHOICES,
    )  # fmt: skip
    return HTMLResponse(html, headers={"Content-Security-Policy": _POLICY})


@router.get("/style.css")
async def get_style() -> Response:
    """The page's style sheet."""
    return Response(_STYLE, media_type="text/css", headers={"Cache-Control": "max-age=300"})
