"""The answer to an address that does not exist: a page for a browser, an error document for everybody else."""

from __future__ import annotations

import re
from difflib import get_close_matches
from html import escape
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse

from api import http_errors
from api.dashboard.assets import LINKS, assets
from api.dashboard.routes import POLICY
from api.http_errors import HttpError

_MOST_CHARACTERS: Final = 80
_NEAREST: Final = 3
#: What the shell needs to show a page of its own.
_SCRIPTS: Final = re.compile(r'^<(?:link rel="modulepreload"|script) .*\n?', re.MULTILINE)
_MAIN: Final = re.compile(r"<main .*?</main>", re.DOTALL)


def install(app: FastAPI) -> None:
    """Registers the handler."""

    async def answer(request: Request, error: Exception) -> Response:
        # An endpoint that does not find something says so itself.
        unknown = not isinstance(error, HttpError) and request.method == "GET"
        if unknown and "text/html" in request.headers.get("accept", "").lower():
            headers = {"Content-Security-Policy": POLICY, "Vary": "Accept"}
            return HTMLResponse(page(request.url.path), 404, headers)
        return await http_errors.answer(request, error)

    app.add_exception_handler(404, answer)


def page(path: str) -> str:
    """The page, without scripts, with links to the pages whose addresses or names resemble `path`."""
    pages = {name.lower(): place for place, name in LINKS.items()} | {place: place for place in LINKS}
    asked = path.lower().rstrip("/")[:_MOST_CHARACTERS]
    near = [pages[known] for word in (asked, asked.rpartition("/")[2]) for known in get_close_matches(word, pages)]
    places = [*dict.fromkeys(near)][:_NEAREST] or ["/", "/problems"]
    links = " · ".join(f'<a href="{place}">{LINKS[place]}</a>' for place in places)
    shown = escape(path if len(path) <= _MOST_CHARACTERS else f"{path[: _MOST_CHARACTERS - 1]}…")
    main = (f'<main id="main" tabindex="-1"><h1>Not here</h1>\n<p class="sentence">There is no page {shown}: choose '
            f"one of these or one above.</p>\n<p>{links}</p></main>")  # fmt: skip
    shell = _SCRIPTS.sub("", assets().shells["/"].decode()).replace("<title>", "<title>Not here · ")
    return _MAIN.sub(lambda _: main, shell)
