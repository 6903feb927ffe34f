"""GET /openapi.json: the complete description of the API."""

from __future__ import annotations

import threading
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from api import batches, http_errors
from api.encoding import Rendered
from api.thread_routes import ThreadRoute

router = APIRouter(include_in_schema=False, route_class=ThreadRoute)
#: Schemas that appear in no endpoint's signature.
_SCHEMAS: Final = (http_errors.ProblemDocument, batches.BatchIn)


class Description:
    """The OpenAPI document of an application, made in half a second when it is first asked for: never on the event
    loop.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app, self._making = app, threading.Lock()
        self._rendered: Rendered | None = None

    def document(self) -> dict[str, Any]:
        """FastAPI's document, with our error schema in place of its own validation errors."""
        with self._making:
            if self._app.openapi_schema is None:
                self._app.openapi_schema = _document(self._app)
            return self._app.openapi_schema

    def rendered(self) -> Rendered:
        """The document as JSON."""
        if self._rendered is None:
            self._rendered = Rendered.of(self.document())
        return self._rendered


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    # A malformed path parameter matches no route: 404.
    for path, operations in document["paths"].items():
        for operation in operations.values() if "{" in path else ():
            operation["responses"].setdefault("404", http_errors.responses(404)[404])
    schemas = document["components"]["schemas"]
    for kind in _SCHEMAS:
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[kind.__name__] = schema
    return document


@router.get("/openapi.json")
def get_description(request: Request) -> Response:
    """The description, from memory; open to everyone."""
    description: Description = request.app.state.description
    return description.rendered().response(request)
