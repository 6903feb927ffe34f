"""The pages about the API name every route and every type of error, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from api.app import create_app
from api.http_errors import ERRORS
from tests.integration.attacks.test_authorship import route_table
from tests.pages import ROOT, blocks
from tuner.evidence.store import Store
from tuner.evidence.tokens import Scope

API = ROOT / "docs" / "api.md"


def test_every_route_is_documented(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        paths = create_app(store).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    named = set(re.findall(r"`((?:GET|POST|DELETE) /[^`?]*)`", API.read_text()))
    assert named == routes


def test_items_that_the_page_shows_have_members_of_the_schemas(tmp_path: Path) -> None:
    """What curl prints is checked where the pages' commands run."""
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        schemas = create_app(store).openapi()["components"]["schemas"].values()
    members = [set(schema.get("properties", ())) for schema in schemas]
    shown = [set(re.findall(r'[{,]\s*"(\w+)":', each.text)) for each in blocks(API) if each.language == "json"]
    assert len(shown) == 2
    for names in shown:
        assert any(names - {"key"} <= known for known in members), names


def test_questions_that_use_post_are_named_beside_their_scope(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        table = route_table(store)
    (row,) = re.findall(r"^\| `read` \|.*$", API.read_text(), re.MULTILINE)
    asking = {path.removeprefix("/v1/") for (method, path), scopes in table.items()
              if method == "POST" and scopes == {Scope.READ}}  # fmt: skip
    assert set(re.findall(r"`([a-z]+(?::[a-z]+)?)`", row)) - {"read"} == asking
    others = {path for (method, path), scopes in table.items() if method == "GET" and scopes - {Scope.READ}}
    assert others == {"/v1/builds/{digest}/cubin"}


def test_every_type_of_error_is_documented() -> None:
    documented = set(re.findall(r"`/problems/([a-z-]+)`", (ROOT / "docs" / "http-errors.md").read_text()))
    raised = {kind for _, kind in ERRORS.values()}
    for path in (ROOT / "api").rglob("*.py"):
        text = path.read_text()
        raised |= set(re.findall(r"HttpError\(\s*\d{3},\s*\"([a-z-]+)\"", text))
    assert raised - documented == set()
    assert len(raised) > 20
