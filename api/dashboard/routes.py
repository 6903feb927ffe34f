"""GET / and the other pages: one HTML shell without data; scripts in the browser fill it from the API."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from api.dashboard.assets import assets
from api.http_errors import HttpError

#: Scripts, styles and data come from this service alone, no markup is made from strings, and no form leaves the page.
#: `lit-html` is the one policy that may make markup: of the templates in our modules, before any value enters them.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)
PAGES: Final = (
    "/", "/problems", "/problem", "/compare", "/space", "/rules", "/explain", "/layouts", "/campaigns", "/campaign",
    "/fleet", "/failures", "/ladder", "/devices", "/device",
)  # fmt: skip
#: Older addresses of files are not kept: a page that is open while the service is replaced reloads itself.
_FOR_EVER: Final = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


async def get_page(request: Request) -> HTMLResponse:
    """The shell. Its script shows the page that the address names; a token is asked for when data need one."""
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return HTMLResponse(assets().shells[request.url.path], headers=headers)


for _path in PAGES:
    router.add_api_route(_path, get_page)


@router.get("/static/{digest}/{name:path}")
async def get_file(digest: str, name: str, request: Request) -> Response:
    """One of the pages' files."""
    known = assets()
    if digest != known.digest or name not in known.files:
        raise HttpError(404, "no-such-path", f"this version has no file {name!r} at that address: reload the page")
    coding, body = known.files[name].accepted(request.headers.get("accept-encoding", ""))
    headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding"}
    if coding != "identity":
        headers["Content-Encoding"] = coding
    return Response(body, media_type=known.files[name].media_type, headers=headers)
