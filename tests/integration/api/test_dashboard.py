"""The pages' shell and files: what is served, how it may be kept, and that nothing else can run in it."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from fastapi.testclient import TestClient

from api.access import AccessPolicy
from api.app import create_app
from api.dashboard.assets import LINKS, assets
from api.dashboard.routes import PAGES
from benchmarks.dashboard import types
from tests.integration.api.asking import problem_of
from tests.support import keep_best
from tuner.evidence import tokens
from tuner.evidence.store import Store

ROOT = Path(__file__).resolve().parents[3]
STATIC = ROOT / "api" / "dashboard" / "static"
MODULES = [path for path in sorted(STATIC.rglob("*.js")) if path.parent.name != "vendor"]


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    url = f"sqlite:///{tmp_path_factory.mktemp('pages')}/store.db"
    with Store.open(url) as store, TestClient(create_app(store), raise_server_exceptions=False) as client:
        yield client


class TestShell:
    def test_every_page_names_its_own_modules(self, http: TestClient) -> None:
        assert set(PAGES) == assets().shells.keys() >= LINKS.keys()
        for path in PAGES:
            page = http.get(path)
            assert page.status_code == 200
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            loaded = re.findall(r'modulepreload" href="/static/\w+/([^"]+)"', page.text)
            assert {"app.js", "lib/api.js", "vendor/lit-html.js", f"pages/{path[1:] or 'ask'}.js"} <= set(loaded)
            assert sum(name.startswith("pages/") for name in loaded) == 1
        assert "charts/forest.js" in http.get("/problems").text
        assert "charts/forest.js" not in http.get("/").text

    def test_its_policy_lets_nothing_of_others_run(self, http: TestClient) -> None:
        policy = http.get("/").headers["content-security-policy"]
        wanted = {"default-src 'none'", "script-src 'self'", "style-src 'self'", "require-trusted-types-for 'script'"}
        assert wanted <= set(policy.split("; "))
        assert "unsafe" not in policy

    def test_it_has_no_inline_script_and_loads_nothing_from_elsewhere(self, http: TestClient) -> None:
        text = http.get("/").text
        assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
        assert " on" not in "".join(re.findall(r"<[a-z][^>]*>", text)).replace(" once", "")
        links = re.findall(r'(?:src|href)="([^"]+)"', text)
        assert links
        for link in links:
            assert link == "#main" or http.get(link).status_code == 200, link

    def test_it_holds_no_data_and_needs_no_token(self, store: Store) -> None:
        keep_best(store)
        tokens.make(store, "reader", ["read"])
        with TestClient(create_app(store, AccessPolicy(tokens=True)), raise_server_exceptions=False) as http:
            page = http.get("/problems")
            assert page.status_code == 200
            assert "H200" not in page.text
            problem_of(http.get("/v1/devices"), 401, "token-needed")

    def test_a_password_authorizes_nothing(self, store: Store) -> None:
        _, admin = tokens.make(store, "admin", ["admin"])
        with TestClient(create_app(store, AccessPolicy(tokens=True)), raise_server_exceptions=False) as http:
            for method, path in (("GET", "/v1/devices"), ("POST", "/v1/campaigns"), ("GET", "/metrics")):
                problem_of(http.request(method, path, auth=("x", admin)), 401, "token-needed")


class TestFiles:
    def test_they_may_be_kept_for_ever(self, http: TestClient) -> None:
        file = http.get(f"/static/{assets().digest}/app.js")
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert file.headers["content-type"] == "text/javascript; charset=utf-8"

    def test_they_are_compressed_as_the_browser_asks(self, http: TestClient) -> None:
        url, content = f"/static/{assets().digest}/style.css", (STATIC / "style.css").read_bytes()
        decode = {"gzip": gzip.decompress, "zstd": zstandard.decompress, "identity": bytes}
        for coding, decoded in decode.items():
            with http.stream("GET", url, headers={"Accept-Encoding": coding}) as answer:
                assert answer.headers.get("content-encoding", "identity") == coding
                assert decoded(b"".join(answer.iter_raw())) == content

    @pytest.mark.parametrize("refused", ["gzip;q=0", "zstd;q=0, gzip; q=0.0", "*;q=0, identity"])
    def test_an_encoding_of_weight_zero_is_refused(self, http: TestClient, refused: str) -> None:
        answer = http.get(f"/static/{assets().digest}/style.css", headers={"Accept-Encoding": refused})
        assert "content-encoding" not in answer.headers

    @pytest.mark.parametrize("name", ["../routes.py", "%2e%2e/routes.py", "none.js", "vendor/README.md", ""])
    def test_others_are_not_served(self, http: TestClient, name: str) -> None:
        assert http.get(f"/static/{assets().digest}/{name}").status_code == 404

    def test_those_of_another_version_are_not_served(self, http: TestClient) -> None:
        problem_of(http.get("/static/0000000000000000/app.js"), 404, "no-such-path")

    def test_they_fit_the_budget_compressed(self) -> None:
        sizes = {name: min(map(len, file.bodies.values())) for name, file in assets().files.items()}
        assert sum(sizes.values()) <= 120 * 1024, sorted(sizes.items(), key=lambda item: -item[1])[:8]


class TestModules:
    def test_each_is_short_and_makes_no_markup_from_strings(self) -> None:
        forbidden = re.compile(r"(inner|outer|unsafe)HTML|insertAdjacent|document\.write|\beval\(|new Function")
        for path in MODULES:
            text = path.read_text()
            assert len(text.splitlines()) <= 150, path
            assert not forbidden.search(text), path

    def test_each_style_sheet_is_short(self) -> None:
        for path in STATIC.glob("*.css"):
            assert len(path.read_text().splitlines()) <= 150, path

    def test_each_import_exists(self) -> None:
        for path in MODULES:
            for name in re.findall(r'(?:from|import\(|^import) ?"(\.[^"]+)"', path.read_text(), re.MULTILINE):
                assert (path.parent / name).is_file(), f"{path} imports {name}"

    def test_types_are_those_of_the_api(self) -> None:
        current = types.FILE.read_text() == types.declarations(types.document())
        assert current, "the API's description has changed: run python -m benchmarks.dashboard.types"

    def test_types_hold(self) -> None:
        compiler = shutil.which(
            "tsc", path=f"{ROOT / '.tsc' / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
        )
        if compiler is None:
            pytest.skip("no tsc: `make check-pages` installs it where npm is")
        project = ROOT / "api" / "dashboard" / "jsconfig.json"
        checked = subprocess.run([compiler, "--project", str(project)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout

    def test_libraries_are_the_ones_that_the_table_names(self) -> None:
        rows = re.findall(r"\| `([\w-]+\.js)` \|.*`([0-9a-f]{64})` \|", (STATIC / "vendor" / "README.md").read_text())
        assert {name for name, _ in rows} == {path.name for path in (STATIC / "vendor").glob("*.js")}
        for name, digest in rows:
            assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest
            assert (STATIC / "vendor" / name).with_suffix(".LICENSE").is_file()
